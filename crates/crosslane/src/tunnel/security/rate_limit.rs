//! Rate limit of public-key work: a token bucket, so that a flood of
//! handshakes cannot take the processor.

use std::time::Duration;

use crosslane_core::time::Instant;

/// Mean time between two handshakes. An unknown sender's initiation costs 0.1 ms, so that a flood of them takes 1 % of
/// a core; a gateway needs a twelfth of it for a thousand vehicles, each with a handshake every two minutes.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);
/// Maximum burst: initiations to a restarted gateway by its vehicles.
pub(super) const BURST: u32 = 100;

/// Tokens, stored as the time at which the bucket will be full.
#[derive(Debug, Default)]
pub(super) struct RateLimit {
    full_at: Instant,
}

impl RateLimit {
    /// Takes a token if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + INTERVAL;
        let is_available = full_at.since(now) <= INTERVAL * BURST;
        if is_available {
            self.full_at = full_at;
        }
        is_available
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(limit: &mut RateLimit, from: Instant, to: Instant, every: Duration) -> u32 {
        let mut now = from;
        let mut taken = 0;
        while now < to {
            taken += u32::from(limit.take(now));
            now = now + every;
        }
        taken
    }

    #[test]
    fn a_flood_gets_the_burst_and_then_the_mean_rate() {
        let mut limit = RateLimit::default();
        let (begin, end) = (Instant::from_millis(7), Instant::from_millis(10_007));
        let taken = taken(&mut limit, begin, end, Duration::from_micros(100));
        assert_eq!(taken, BURST + (Duration::from_secs(10).as_micros() / INTERVAL.as_micros()) as u32 - 1);
    }

    #[test]
    fn unused_tokens_accumulate_up_to_the_burst() {
        let mut limit = RateLimit::default();
        let (begin, later) = (Instant::ZERO, Instant::from_millis(100_000));
        let tick = Duration::from_nanos(1);
        assert_eq!(taken(&mut limit, begin, begin + tick * 1000, tick), BURST);
        assert_eq!(taken(&mut limit, later, later + tick * 1000, tick), BURST);
    }
}
