//! A policer: once a volume is used up, packets beyond a token bucket's rate are dropped, as on a SIM that is
//! throttled for the rest of the month.

use super::Direction;
use crate::time::Instant;

/// Parameters of a policer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicerParams {
    /// Bytes of IP, of both directions together, before it acts (≥ 0).
    pub volume_bytes: f64,
    /// Rate of each direction then, in bit/s of IP (> 0).
    pub bit_s: f64,
    /// Bytes that a direction may send at once after a pause (> 0): the depth of its token bucket.
    pub burst_bytes: f64,
}

/// A policer with its state.
#[derive(Clone, Debug)]
pub(super) struct Policer {
    params: PolicerParams,
    left_bytes: f64,
    /// Tokens of each direction, in bytes, and when they were counted.
    buckets: [(f64, Instant); 2],
}

impl Policer {
    pub(super) fn new(params: PolicerParams) -> Policer {
        Policer { params, left_bytes: params.volume_bytes, buckets: [(params.burst_bytes, Instant::ZERO); 2] }
    }

    /// Whether a packet that enters at `now` passes.
    pub(super) fn passes(&mut self, now: Instant, direction: Direction, ip_bytes: u32) -> bool {
        let bytes = f64::from(ip_bytes);
        if self.left_bytes > 0.0 {
            self.left_bytes -= bytes;
            return true;
        }
        let (tokens, counted) = &mut self.buckets[direction as usize];
        let earned = now.since(*counted).as_secs_f64() * self.params.bit_s / 8.0;
        (*tokens, *counted) = ((*tokens + earned).min(self.params.burst_bytes), now);
        let passes = *tokens >= bytes;
        if passes {
            *tokens -= bytes;
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that pass of packets of 1000 bytes, one per ms, in each of `seconds`.
    fn passed(params: PolicerParams, seconds: u64) -> alloc::vec::Vec<u32> {
        let mut policer = Policer::new(params);
        let mut in_second = |second: u64| {
            let times = (0..1000).map(|ms| Instant::from_millis(second * 1000 + ms));
            times.filter(|now| policer.passes(*now, Direction::Up, 1000)).count() as u32
        };
        (0..seconds).map(&mut in_second).collect()
    }

    #[test]
    fn the_volume_passes_unhindered_and_then_the_rate_after_one_burst() {
        let params = PolicerParams { volume_bytes: 1.5e6, bit_s: 80_000.0, burst_bytes: 5000.0 };
        // 1500 packets of the volume, 5 of the burst, then 10 a second.
        assert_eq!(passed(params, 4), [1000, 500 + 5 + 4, 10, 10]);
    }

    #[test]
    fn the_directions_share_the_volume_and_have_a_bucket_each() {
        let mut policer = Policer::new(PolicerParams { volume_bytes: 2000.0, bit_s: 8000.0, burst_bytes: 1000.0 });
        let now = Instant::from_millis(5);
        assert!(policer.passes(now, Direction::Up, 1000) && policer.passes(now, Direction::Down, 1000));
        assert!(policer.passes(now, Direction::Up, 1000) && policer.passes(now, Direction::Down, 1000));
        assert!(!policer.passes(now, Direction::Up, 1000) && !policer.passes(now, Direction::Down, 1000));
        assert!(policer.passes(Instant::from_millis(1005), Direction::Up, 1000));
    }
}
