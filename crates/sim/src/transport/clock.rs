//! Granularity of the kernel's timers.
//!
//! Linux counts time for timers in jiffies, and no timer expires early: it rounds
//! up to the next jiffy, and for longer waits to the next multiple of 8, 64, …
//! jiffies (`kernel/time/timer.c`, `calc_index`). A retransmission timeout of
//! 208 ms becomes 212 to 216 ms.

use crosslane_core::time::{Duration, Instant};

/// Length of a jiffy with `CONFIG_HZ=250` (Debian's default), in ns.
const JIFFY_NS: u64 = 4_000_000;
/// Jiffies of the first level of the timer wheel; each further level has eight
/// times as many.
const FIRST_LEVEL: u64 = 63;
/// Levels of the timer wheel.
const LEVELS: u32 = 9;

/// The ticks of one kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    /// Offset of the jiffy counter from the time of the run, in ns.
    offset_ns: u64,
}

impl Ticks {
    /// Ticks of a kernel that was started before the run; `phase` (0 to 1)
    /// selects the offset.
    pub fn new(phase: f64) -> Ticks {
        // An offset above 64 jiffies would affect only timers of two seconds and more.
        Ticks { offset_ns: (phase * 64.0 * JIFFY_NS as f64) as u64 }
    }

    /// Expiry of a timer that is set at `now` for `wait`.
    pub fn after(self, now: Instant, wait: Duration) -> Instant {
        let jiffies = (now.as_nanos() + self.offset_ns) / JIFFY_NS;
        let wait = (wait.as_nanos() as u64).div_ceil(JIFFY_NS);
        let level = (0..LEVELS).find(|level| wait < FIRST_LEVEL << (3 * level)).unwrap_or(LEVELS - 1);
        let shift = 3 * level;
        let expires = (((jiffies + wait) >> shift) + 1) << shift;
        Instant::from_nanos((expires * JIFFY_NS).saturating_sub(self.offset_ns))
    }

    /// The same for a timer that is set for a point in time.
    pub fn at(self, now: Instant, at: Instant) -> Instant {
        self.after(now, at.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(now_us: u64, wait_us: u64) -> u64 {
        let now = Instant::from_nanos(now_us * 1000);
        Ticks::default().after(now, Duration::from_micros(wait_us)).as_nanos() / 1000
    }

    #[test]
    fn a_short_wait_ends_with_the_jiffy_after_it() {
        assert_eq!(after(3250, 18_040), 24_000);
        assert_eq!(after(4000, 20_000), 28_000);
    }

    #[test]
    fn a_longer_wait_ends_at_a_multiple_of_8_or_64_jiffies() {
        assert_eq!(after(0, 424_000), 448_000);
        assert_eq!(after(0, 2_100_000), 2_304_000);
    }

    proptest::proptest! {
        #[test]
        fn no_timer_is_early_or_late_by_more_than_an_eighth(
            now_us in 0u64..10_000_000, wait_us in 0u64..100_000_000, phase in 0.0f64..1.0,
        ) {
            let now = Instant::from_nanos(now_us * 1000);
            let end = Ticks::new(phase).after(now, Duration::from_micros(wait_us));
            let late_us = end.since(now).as_micros() as u64 - wait_us;
            proptest::prop_assert!(end.since(now) >= Duration::from_micros(wait_us));
            proptest::prop_assert!(late_us <= 8000 + wait_us / 7);
        }
    }
}
