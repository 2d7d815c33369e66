//! Time as every engine sees it: nanoseconds since the run began.

use core::fmt;
use core::ops::{Add, Sub};
pub use core::time::Duration;

/// A moment, in nanoseconds since the run began. Engines are told the time,
/// they never ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The beginning of the run.
    pub const ZERO: Instant = Instant(0);

    /// The moment `nanos` nanoseconds after the run began.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// The moment `millis` milliseconds after the run began.
    pub const fn from_millis(millis: u64) -> Instant {
        Instant(millis.saturating_mul(1_000_000))
    }

    /// The moment `secs` seconds after the run began; negative and
    /// not-a-number count as zero.
    pub fn from_secs_f64(secs: f64) -> Instant {
        Instant((secs * 1e9) as u64)
    }

    /// Nanoseconds since the run began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the run began.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, wait: Duration) -> Instant {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, wait: Duration) -> Instant {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_sub(nanos))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_secs_f64())
    }
}
