//! The only code that reads a clock.

use chrono::{DateTime, Local, NaiveDate};
use crosslane_core::time::{Duration, Instant};
use nix::time::{ClockId, clock_gettime};

/// Time since the start of a run.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin_ns: u64,
}

impl Clock {
    /// A run that begins now.
    pub fn start() -> Clock {
        Clock { origin_ns: monotonic_ns() }
    }

    /// A run that began when [`monotonic_ns`] was `origin_ns`.
    pub fn since(origin_ns: u64) -> Clock {
        Clock { origin_ns }
    }

    /// Time since the run began.
    pub fn now(self) -> Instant {
        Instant::from_nanos(monotonic_ns().saturating_sub(self.origin_ns))
    }

    /// When the run began, on the clock of [`monotonic_ns`].
    pub fn origin_ns(self) -> u64 {
        self.origin_ns
    }
}

/// CLOCK_MONOTONIC in nanoseconds: one clock for all processes of the machine.
pub fn monotonic_ns() -> u64 {
    nanos(ClockId::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970.
pub fn unix_ns() -> u64 {
    nanos(ClockId::CLOCK_REALTIME)
}

/// Seconds since 1970.
pub fn unix_s() -> f64 {
    nanos(ClockId::CLOCK_REALTIME) as f64 / 1e9
}

/// The date, of local time where the system has a time zone, else of UTC.
pub fn local_date() -> NaiveDate {
    let now = DateTime::from_timestamp_nanos(unix_ns() as i64);
    now.with_timezone(&Local).date_naive()
}

/// Processor time of this thread.
pub fn processor_time() -> Duration {
    Duration::from_nanos(nanos(ClockId::CLOCK_THREAD_CPUTIME_ID))
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads clocks")]
fn nanos(clock: ClockId) -> u64 {
    // These clocks exist on every Linux; the call cannot fail.
    clock_gettime(clock).map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
