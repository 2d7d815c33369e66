//! Pacing of a subflow, for congestion control that sets a rate.

use crosslane_core::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    /// Time of the next transmission.
    pub(super) next: Instant,
}

impl Pacer {
    /// Notes a transmission; `rate` is in bytes per second.
    pub(super) fn note_sent(&mut self, now: Instant, bytes: u64, rate: f64) {
        let wait = Duration::from_nanos((bytes as f64 / rate.max(1.0) * 1e9) as u64);
        self.next = self.next.max(now) + wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmissions_keep_the_rate_and_idle_time_is_not_made_up() {
        let mut pacer = Pacer::default();
        let at = Instant::from_millis;
        pacer.note_sent(at(100), 1000, 1e5);
        pacer.note_sent(at(100), 1000, 1e5);
        assert_eq!(pacer.next, at(120));
        pacer.note_sent(at(200), 1000, 1e5);
        assert_eq!(pacer.next, at(210));
    }
}
