//! Retries after failures: pauses that grow, and a limit.

use crate::time::{Duration, Instant};

/// First pause after a refused command; it doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// A refused command is abandoned after this many attempts, until the wanted state
/// changes.
const MAX_ATTEMPTS: u32 = 8;

/// Consecutive failures of one command, and the time of the next attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    pub failures: u32,
    /// The earliest next attempt.
    pub not_before: Instant,
}

impl Backoff {
    /// Counts a refused command.
    pub fn refused(&mut self, now: Instant) {
        self.failed(now, FIRST_PAUSE, MAX_PAUSE);
    }

    /// Counts a failure: the next attempt is due after `first`, doubled for each
    /// earlier failure, and after `longest` at most.
    pub fn failed(&mut self, now: Instant, first: Duration, longest: Duration) {
        let pause = (first * (1 << self.failures.min(16))).min(longest);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + pause;
    }

    /// When a command may be retried; `None`: it is abandoned.
    pub fn retry_at(&self) -> Option<Instant> {
        (self.failures < MAX_ATTEMPTS).then_some(self.not_before)
    }

    /// Whether a command may be issued now.
    pub fn may(&self, now: Instant) -> bool {
        self.retry_at().is_some_and(|at| now >= at)
    }

    /// The wanted state changed: an abandoned command gets one more attempt.
    pub fn revive(&mut self) {
        self.failures = self.failures.min(MAX_ATTEMPTS - 1);
    }
}
