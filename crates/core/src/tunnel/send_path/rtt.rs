//! The round trip of a path, without the time a report was held back.

use crate::time::{Duration, Instant};

/// After so long the shortest round trip is measured anew, without a queue.
const MIN_LIFETIME: Duration = Duration::from_secs(8);
/// So near to the shortest says again that it is the shortest.
const MIN_TOLERANCE: Duration = Duration::from_micros(300);

/// See the module.
#[derive(Debug, Default)]
pub(in super::super) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    min: Option<Duration>,
    min_at: Instant,
}

impl Rtt {
    /// RFC 6298, section 2: the smoothed round trip and its variation.
    pub(super) fn note(&mut self, now: Instant, took: Duration) {
        match self.smoothed {
            None => {
                self.smoothed = Some(took);
                self.variation = took / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(took)) / 4;
                self.smoothed = Some((smoothed * 7 + took) / 8);
            }
        }
        if self.min.is_none_or(|min| took <= min + MIN_TOLERANCE) {
            self.min = Some(self.min.map_or(took, |min| min.min(took)));
            self.min_at = now;
        }
    }

    pub(in super::super) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or_default()
    }

    pub(in super::super) fn variation(&self) -> Duration {
        self.variation
    }

    /// The shortest.
    pub(in super::super) fn min(&self) -> Option<Duration> {
        self.min
    }

    /// Whether the shortest was seen long ago.
    pub(super) fn min_is_old(&self, now: Instant) -> bool {
        now.since(self.min_at) > MIN_LIFETIME
    }

    /// This was measured without a queue.
    pub(super) fn set_min(&mut self, now: Instant, shortest: Duration) {
        self.min = Some(shortest);
        self.min_at = now;
    }
}
