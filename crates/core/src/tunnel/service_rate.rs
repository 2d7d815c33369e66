//! How fast the queue is served: at best, and on average while packets wait.

use crate::time::{Duration, Instant};

/// Length of a measurement: several RTTs, so that bursts do not count.
const SPAN: Duration = Duration::from_millis(250);
/// A measurement counts for one to two times this time.
const MEMORY: Duration = Duration::from_secs(8);
/// Maximum factor of a rate that varies.
const MAX_FACTOR: f64 = 4.0;

/// Measurements of one period of memory.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    /// Maximum rate of a span, in bytes/s.
    best: f64,
    /// Bytes and seconds of the spans in which a packet always waited.
    busy: (f64, f64),
}

/// The rate at which packets leave the queue.
#[derive(Debug, Default)]
pub(super) struct ServiceRate {
    span_since: Instant,
    span_bytes: u64,
    /// Whether the queue was empty in the span.
    was_empty: bool,
    period_since: Instant,
    now: Period,
    before: Period,
}

impl ServiceRate {
    /// Records that no packet waits.
    pub(super) fn note_empty(&mut self) {
        self.was_empty = true;
    }

    /// Records a packet that leaves the queue.
    pub(super) fn note(&mut self, now: Instant, bytes: u32) {
        let span = now.since(self.span_since);
        if span >= SPAN {
            self.end_span(now, span.as_secs_f64());
        }
        self.span_bytes += u64::from(bytes);
    }

    fn end_span(&mut self, now: Instant, span_s: f64) {
        if now.since(self.period_since) > MEMORY {
            self.before = core::mem::take(&mut self.now);
            self.period_since = now;
        }
        let bytes = self.span_bytes as f64;
        self.now.best = self.now.best.max(bytes / span_s);
        if !self.was_empty {
            self.now.busy.0 += bytes;
            self.now.busy.1 += span_s;
        }
        (self.span_since, self.span_bytes, self.was_empty) = (now, 0, false);
    }

    /// The bytes that are no standing queue, with this target of the queueing time: what the best rate of the last
    /// seconds would carry within it. A rate that varies gets as many times more as its best exceeds its mean: the next
    /// rise may exceed the last one, and a sender that was cut down is too slow to follow it.
    pub(super) fn allowed_bytes(&self, target: Duration) -> f64 {
        let best = self.now.best.max(self.before.best);
        let [bytes, seconds] = [self.now.busy.0 + self.before.busy.0, self.now.busy.1 + self.before.busy.1];
        let variability = if bytes > 0.0 { best * seconds / bytes } else { 1.0 };
        best * target.as_secs_f64() * variability.clamp(1.0, MAX_FACTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 1000 bytes from `from_ms` to `to_ms`, one each `each_ms`.
    fn serve(rate: &mut ServiceRate, [from_ms, to_ms]: [u64; 2], each_ms: u64) {
        (from_ms..to_ms).filter(|ms| ms % each_ms == 0).for_each(|ms| rate.note(Instant::from_millis(ms), 1000));
    }

    /// Allowed bytes, in ms at 1000 bytes a ms, of a target of 50 ms.
    fn allowed_ms(rate: &ServiceRate) -> u64 {
        (rate.allowed_bytes(Duration::from_millis(50)) / 1000.0).round() as u64
    }

    #[test]
    fn at_a_constant_rate_the_target_is_allowed() {
        let mut rate = ServiceRate::default();
        assert_eq!(allowed_ms(&rate), 0);
        serve(&mut rate, [0, 10_000], 1);
        assert_eq!(allowed_ms(&rate), 50);
    }

    #[test]
    fn time_without_packets_is_no_variation() {
        let mut rate = ServiceRate::default();
        for second in 0..10 {
            rate.note_empty();
            serve(&mut rate, [second * 1000, second * 1000 + 250], 10);
            rate.note_empty();
            serve(&mut rate, [second * 1000 + 500, second * 1000 + 1000], 1);
        }
        assert_eq!(allowed_ms(&rate), 50);
    }

    #[test]
    fn a_rate_that_varies_is_allowed_more_until_it_has_been_constant_for_16_s() {
        let mut rate = ServiceRate::default();
        (0..20).for_each(|second| {
            serve(&mut rate, [second * 1000, second * 1000 + 500], 1);
            serve(&mut rate, [second * 1000 + 500, second * 1000 + 1000], 10);
        });
        let allowed = allowed_ms(&rate);
        assert!((80..105).contains(&allowed), "50 ms, 1 / 0.55 times: {allowed}");
        serve(&mut rate, [20_000, 38_000], 2);
        assert_eq!(allowed_ms(&rate), 25);
    }
}
