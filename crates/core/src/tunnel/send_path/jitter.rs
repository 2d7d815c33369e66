//! Jitter of a path: how much the RTTs of successive reports differ (as the interarrival jitter of RFC 3550,
//! section 6.4.1). Second differences are taken, so that a queue that grows or drains does not count.

use crate::time::Duration;

/// Jitter up to this may be the timing of queues and reports.
const MIN_JITTER_S: f64 = 0.002;
/// Number of samples in the mean.
const SAMPLES: f64 = 8.0;
/// Ratio of the mean second difference of independent delays to their mean difference: √6 to √2.
const SECOND_TO_FIRST: f64 = 1.732;

/// Estimator of jitter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Jitter {
    last: Option<Duration>,
    last_change_s: Option<f64>,
    mean_s: f64,
    samples: f64,
}

impl Jitter {
    /// Adds an RTT.
    pub(super) fn note(&mut self, rtt: Duration) {
        let Some(last) = self.last.replace(rtt) else { return };
        let change_s = rtt.as_secs_f64() - last.as_secs_f64();
        if let Some(last_change_s) = self.last_change_s.replace(change_s) {
            let difference_s = (change_s - last_change_s).abs() / SECOND_TO_FIRST;
            self.samples = (self.samples + 1.0).min(SAMPLES);
            self.mean_s += (difference_s - self.mean_s) / self.samples;
        }
    }

    /// Mean difference of successive RTTs; zero if that is small.
    pub(super) fn mean(&self) -> Duration {
        if self.mean_s > MIN_JITTER_S { Duration::from_secs_f64(self.mean_s) } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jitter_ms(rtts_ms: impl IntoIterator<Item = u64>) -> f64 {
        let mut jitter = Jitter::default();
        rtts_ms.into_iter().for_each(|rtt_ms| jitter.note(Duration::from_millis(rtt_ms)));
        jitter.mean().as_secs_f64() * 1e3
    }

    #[test]
    fn a_queue_that_grows_or_drains_is_no_jitter() {
        assert!(jitter_ms((0..20).map(|n| 40 + 5 * n)) < 1e-9);
        assert!(jitter_ms((0..20).map(|n| 200 - 5 * n)) < 1e-9);
    }

    #[test]
    fn delays_that_vary_from_packet_to_packet_are() {
        // RTTs of 40 to 60 ms, in an order without a pattern: their mean difference is 7.2 ms.
        let rtts = [47, 60, 42, 55, 51, 40, 58, 49, 53, 44, 57, 46, 50, 59, 43, 54];
        let found = jitter_ms(rtts);
        assert!((5.0..15.0).contains(&found), "{found} ms");
    }
}
