//! The maximum of a duration in the recent past.

use crate::time::{Duration, Instant};

/// A value counts for one to two times this time.
const MEMORY: Duration = Duration::from_secs(4);

/// Maximum of the recent values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentMax {
    now: Option<Duration>,
    before: Option<Duration>,
    since: Instant,
}

impl RecentMax {
    /// Adds a value.
    pub(super) fn note(&mut self, now: Instant, value: Duration) {
        if now.since(self.since) > MEMORY {
            self.before = self.now.take();
            self.since = now;
        }
        self.now = self.now.max(Some(value));
    }

    /// The maximum; `None` before the first value. It stays until a later value replaces it.
    pub(super) fn max(&self) -> Option<Duration> {
        self.now.max(self.before)
    }

    /// The maximum; `None` if there was no value for as long as one counts.
    pub(super) fn recent(&self, now: Instant) -> Option<Duration> {
        self.max().filter(|_| now.since(self.since) <= MEMORY * 2)
    }
}
