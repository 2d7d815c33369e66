//! How much public-key work is done: a token bucket, so that a flood of
//! handshakes cannot take the processor.

use std::time::Duration;

use crosslane_core::time::Instant;

/// Between two handshakes in the long run. A stranger's initiation costs 0.1 ms, so that a flood of them takes 1 % of a
/// core; a gateway needs a twelfth of it for a thousand vehicles, each with a handshake every two minutes.
pub(super) const EVERY: Duration = Duration::from_millis(10);
/// At once: what a gateway hears when it comes back and its vehicles all call.
pub(super) const BURST: u32 = 100;

/// Tokens, counted as the moment at which all of them will be there again.
#[derive(Debug, Default)]
pub(super) struct RateLimit {
    full_at: Instant,
}

impl RateLimit {
    /// Takes a token if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + EVERY;
        let there = full_at.since(now) <= EVERY * BURST;
        if there {
            self.full_at = full_at;
        }
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(rate_limit_: &mut RateLimit, from: Instant, to: Instant, every: Duration) -> u32 {
        let mut now = from;
        let mut taken = 0;
        while now < to {
            taken += u32::from(rate_limit_.take(now));
            now = now + every;
        }
        taken
    }

    #[test]
    fn a_flood_gets_the_burst_and_then_the_rate() {
        let mut rate_limit_ = RateLimit::default();
        let (begin, end) = (Instant::from_millis(7), Instant::from_millis(10_007));
        let taken = taken(&mut rate_limit_, begin, end, Duration::from_micros(100));
        assert_eq!(taken, BURST + (Duration::from_secs(10).as_micros() / EVERY.as_micros()) as u32 - 1);
    }

    #[test]
    fn what_was_not_taken_is_there_later_up_to_the_burst() {
        let mut rate_limit_ = RateLimit::default();
        let (begin, later) = (Instant::ZERO, Instant::from_millis(100_000));
        let tick = Duration::from_nanos(1);
        assert_eq!(taken(&mut rate_limit_, begin, begin + tick * 1000, tick), BURST);
        assert_eq!(taken(&mut rate_limit_, later, later + tick * 1000, tick), BURST);
    }
}
