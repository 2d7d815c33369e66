//! What was recent: the last values, and the greatest one.

use alloc::collections::VecDeque;

use crate::time::{Duration, Instant};

/// Maximum of the recent values: a value counts for one to two times a span of so many seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentMax<T, const SPAN_S: u64> {
    /// That of the present span, and of the span before.
    now: Option<T>,
    before: Option<T>,
    /// When the present span began.
    since: Instant,
}

impl<T: Copy + PartialOrd, const SPAN_S: u64> RecentMax<T, SPAN_S> {
    const SPAN: Duration = Duration::from_secs(SPAN_S);

    /// Adds a value.
    pub(crate) fn note(&mut self, now: Instant, value: T) {
        if now.since(self.since) > Self::SPAN {
            self.before = self.now.take();
            self.since = now;
        }
        if self.now.is_none_or(|greatest| value > greatest) {
            self.now = Some(value);
        }
    }

    /// The maximum; `None` before the first value. It stays until a later value replaces it.
    pub(crate) fn max(&self) -> Option<T> {
        if self.before > self.now { self.before } else { self.now }
    }

    /// The maximum; `None` if there was no value for as long as one counts.
    pub(crate) fn recent(&self, now: Instant) -> Option<T> {
        self.max().filter(|_| now.since(self.since) <= Self::SPAN * 2)
    }
}

/// Appends to the last `limit` values.
pub(crate) fn push_recent<T>(values: &mut VecDeque<T>, limit: usize, value: T) {
    if values.len() >= limit {
        values.pop_front();
    }
    values.push_back(value);
}
