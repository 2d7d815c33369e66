//! The highest rate of the recent past.

use crate::recent::RecentMax;
use crate::time::{Duration, Instant};

/// Minimum interval of a measurement.
const INTERVAL: Duration = Duration::from_millis(250);

/// Maximum of the rates measured recently.
#[derive(Debug, Default)]
pub(super) struct RecentRate {
    /// Start of the present measurement, and its bytes.
    since: Instant,
    bytes: u64,
    /// In bytes/s.
    highest: RecentMax<f64, 8>,
}

impl RecentRate {
    /// Adds bytes.
    pub(super) fn note(&mut self, now: Instant, bytes: u32) {
        let took = now.since(self.since);
        if took >= INTERVAL {
            self.highest.note(now, self.bytes as f64 / took.as_secs_f64());
            (self.since, self.bytes) = (now, 0);
        }
        self.bytes += u64::from(bytes);
    }

    /// The maximum, in bytes/s; zero before the first measurement.
    pub(super) fn max(&self) -> f64 {
        self.highest.max().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maximum after each second, with so many bytes every 10 ms in it.
    fn max_each_second(bytes: impl IntoIterator<Item = u32>) -> alloc::vec::Vec<f64> {
        let mut rate = RecentRate::default();
        let seconds = bytes.into_iter().zip(0..).map(|(bytes, second)| {
            (0..100).for_each(|tick| rate.note(Instant::from_millis(second * 1000 + tick * 10), bytes));
            rate.max()
        });
        seconds.collect()
    }

    #[test]
    fn the_best_rate_counts_for_eight_to_sixteen_seconds() {
        let found = max_each_second([1000].into_iter().chain([100; 20]));
        assert!(found[..9].iter().all(|rate| (9e4..1.1e5).contains(rate)), "{found:?}");
        assert!(found[18..].iter().all(|rate| (9e3..1.1e4).contains(rate)), "{found:?}");
    }

    #[test]
    fn a_pause_is_no_high_rate() {
        let mut rate = RecentRate::default();
        assert_eq!(rate.max(), 0.0);
        rate.note(Instant::from_millis(1_000), 1000);
        rate.note(Instant::from_millis(11_000), 1000);
        assert_eq!(rate.max(), 100.0);
    }
}
