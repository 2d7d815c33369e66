//! How often what failed is tried again: pauses that grow, and an end.

use crate::time::{Duration, Instant};

/// First pause after a refused command; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A refused command is given up after so many tries, until something else is
/// wanted.
const MAX_TRIES: u32 = 8;

/// Failures of one thing in a row, and when it may be tried again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    not_before: Instant,
}

impl Backoff {
    /// No failure yet, and no try before `at`.
    pub fn starting(at: Instant) -> Backoff {
        Backoff { failures: 0, not_before: at }
    }

    /// Counts a refused command.
    pub fn refused(&mut self, now: Instant) {
        self.failed(now, FIRST_PAUSE, LONGEST_PAUSE);
    }

    /// Counts a failure: the next try is due after `first`, doubled with each
    /// failure before this one, and after `longest` at most.
    pub fn failed(&mut self, now: Instant, first: Duration, longest: Duration) {
        let pause = (first * (1 << self.failures.min(16))).min(longest);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + pause;
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// When a command may be tried again; `None`: it is given up.
    pub fn retry_at(&self) -> Option<Instant> {
        (self.failures < MAX_TRIES).then_some(self.not_before)
    }

    /// Whether a command may be tried now.
    pub fn may(&self, now: Instant) -> bool {
        self.retry_at().is_some_and(|at| now >= at)
    }

    /// The earliest next try, of what is never given up.
    pub fn not_before(&self) -> Instant {
        self.not_before
    }

    /// Something else is wanted: what was given up gets one more try.
    pub fn revive(&mut self) {
        self.failures = self.failures.min(MAX_TRIES - 1);
    }
}
