//! The delivery rate of a path, by the peer's clock and byte count.

use super::feedback::Mark;
use crate::time::{Duration, Instant};

/// The rate is the maximum over the present and the previous span, each this number of RTTs long.
const SPAN_RTTS: u32 = 3;
/// Minimum interval of a measurement: reports arrive in batches.
const MIN_INTERVAL: Duration = Duration::from_millis(8);

/// Estimator of the delivery rate.
#[derive(Debug, Default)]
pub(in super::super) struct DeliveryRate {
    /// Start of the present measurement: the peer's clock and count, and the send time of the packet that
    /// the report covered.
    begin: Option<(Mark, Instant)>,
    span_since: Instant,
    before: Option<f64>,
    now: Option<f64>,
    /// Whether the present span measured the path's capacity, not the offered load.
    full: bool,
    /// The latest measurement, at full load or not, in bytes/s.
    pub(super) last: Option<f64>,
    /// When more could last have been sent.
    pub(in super::super) idle: Instant,
    /// When the window or pacing last limited sending.
    pub(super) limited: Instant,
}

impl DeliveryRate {
    /// The rate, in bytes/s.
    pub(in super::super) fn bytes_s(&self) -> Option<f64> {
        larger(self.before, self.now)
    }

    /// Takes the latest measurement for the rate: the path was full.
    pub(super) fn adopt(&mut self) {
        self.now = larger(self.now, self.last);
    }

    /// Applies a report about a packet sent at `sent` that was queued in the path for `queued`. The path was full
    /// if it queued packets all the time, or if the window or pacing limited sending, but not during a
    /// `min_rtt_probe`.
    pub(super) fn note(
        &mut self,
        now: Instant,
        sent: Instant,
        at: Mark,
        rtt: Duration,
        min_rtt_probe: bool,
        queued: Duration,
    ) {
        let Some((begin, begin_sent)) = self.begin else {
            self.begin = Some((at, sent));
            return;
        };
        if at.since(begin) < MIN_INTERVAL.max(rtt / 2) {
            return;
        }
        self.begin = Some((at, sent));
        let rate = at.bytes_s_since(begin);
        self.last = Some(rate);
        let is_limited = self.idle < begin_sent && self.limited >= begin_sent;
        let full = (is_limited || queued >= at.since(begin)) && !min_rtt_probe;
        // The offered load is a lower bound of the rate.
        if full || self.bytes_s().is_some_and(|known| rate > known) {
            self.now = larger(self.now, self.last);
        }
        self.full |= full;
        if now.since(self.span_since) > rtt * SPAN_RTTS {
            self.span_since = now;
            if self.full {
                self.before = self.now.take().or(self.before);
                self.full = false;
            }
        }
    }
}

fn larger(left: Option<f64>, right: Option<f64>) -> Option<f64> {
    left.into_iter().chain(right).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    /// The rate after 1.25 MB/s at full load, and then half of it for a second at less than full load.
    fn after_a_fall(queued: Duration) -> Option<f64> {
        let mut rate = DeliveryRate::default();
        let (mut us, mut bytes) = (0, 0);
        for tick in 0..60 {
            let now = Instant::from_millis(tick * 25);
            let (is_full, arrived) = if tick < 20 { (true, 31_250) } else { (false, 15_625) };
            rate.note(now, now, Mark { us, bytes }, RTT, false, if is_full { Duration::ZERO } else { queued });
            if is_full {
                rate.limited = now + Duration::from_millis(1);
            }
            (us, bytes) = (us + 25_000, bytes + arrived);
        }
        rate.bytes_s()
    }

    #[test]
    fn a_path_that_queued_packets_all_the_time_was_full() {
        assert_eq!(after_a_fall(Duration::from_millis(24)), Some(1.25e6), "1 ms less than a measurement takes");
        assert_eq!(after_a_fall(Duration::from_millis(25)), Some(0.625e6));
    }
}
