//! Whether senders have more data than paths take.

use super::Latest;
use crate::time::{Duration, Instant};

/// A path is full after this long: a new connection fills its window for some RTTs only.
pub(super) const FULL: Duration = Duration::from_millis(200);
/// Statistics older than this say nothing.
const STALE: Duration = Duration::from_millis(50);

/// The time in which the congestion window of paths has been full, or bytes have waited to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fullness {
    /// Since when, and until when.
    span: Option<[Instant; 2]>,
}

impl Fullness {
    /// Notes the latest measurements of the paths; one that is full suffices.
    pub(super) fn observe<'a>(&mut self, now: Instant, mut paths: impl Iterator<Item = &'a Latest>) {
        let is_full = |latest: &Latest| {
            latest.transport.is_some_and(|(at, transport)| now.since(at) < STALE && transport.is_full())
        };
        if paths.any(is_full) {
            let since = self.span.filter(|[_, last]| now.since(*last) < STALE).map_or(now, |[since, _]| since);
            self.span = Some([since, now]);
        }
    }

    /// Whether it lasts for [`FULL`] already.
    pub(super) fn lasts(&self, now: Instant) -> bool {
        self.span.is_some_and(|[since, last]| now == last && now.since(since) >= FULL)
    }

    /// When it was so last.
    pub(super) fn last(&self) -> Option<Instant> {
        self.span.map(|[_, last]| last)
    }
}
