//! Mahimahi's traces: the parser, and the delivery opportunities of a trace.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use thiserror::Error;

use super::Bottleneck;
use crate::time::{Duration, Instant};

/// Bytes of IP packet that one opportunity carries (mahimahi's 1504 less the four bytes
/// that its TUN device prepends).
pub const CHANCE_BYTES: u32 = 1500;

/// Maximum number of lines of a trace: 2 hours at 1 Gbit/s and more.
pub const MAX_LINES: usize = 10_000_000;

/// An error in a trace, and its position.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}:{line}: {cause}")]
pub struct TraceError {
    /// Name of the file, as given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The error.
    pub cause: Cause,
}

/// The error in a line of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Cause {
    /// Not a whole number of milliseconds.
    #[error("\"{0}\" is not a whole number of milliseconds")]
    NotANumber(String),
    /// Earlier than the line before.
    #[error("{now} ms after {before} ms; times must not fall")]
    Falls {
        /// The line before.
        before: u64,
        /// This line.
        now: u64,
    },
    /// No line.
    #[error("the trace is empty; it needs at least one line")]
    Empty,
    /// The trace has no length, so it would repeat without end at one time.
    #[error("the trace ends at 0 ms; its last line is its length and must be above 0")]
    NoLength,
    /// More than [`MAX_LINES`].
    #[error("the trace has more than {MAX_LINES} lines; shorten it, it repeats anyway")]
    TooLong,
}

/// Reads a trace: one whole number of milliseconds a line, not decreasing; the last is
/// also the length after which it repeats.
///
/// # Errors
/// The first invalid line; `file` is only used in the message.
pub fn parse(file: &str, text: &str) -> Result<Vec<u64>, TraceError> {
    let fail = |line: usize, cause: Cause| Err(TraceError { file: file.to_string(), line, cause });
    let mut opportunities_ms: Vec<u64> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end();
        let Some(now) = number(line) else {
            let shown = line.chars().take(40).collect();
            return fail(index + 1, Cause::NotANumber(shown));
        };
        let before = opportunities_ms.last().copied().unwrap_or(0);
        if now < before {
            return fail(index + 1, Cause::Falls { before, now });
        }
        if index == MAX_LINES {
            return fail(index + 1, Cause::TooLong);
        }
        opportunities_ms.push(now);
    }
    match opportunities_ms.last() {
        None => fail(1, Cause::Empty),
        Some(0) => fail(opportunities_ms.len(), Cause::NoLength),
        Some(_) => Ok(opportunities_ms),
    }
}

/// Accepts digits only (`parse` would accept a sign), and no more than an [`Instant`]
/// can hold many times over.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value = text.parse().ok().filter(|ms| *ms <= u64::from(u32::MAX));
    value.filter(|_| digits)
}

/// The position of a bottleneck in its trace.
#[derive(Clone, Debug)]
pub(super) struct Opportunities {
    trace: Arc<Vec<u64>>,
    began: Instant,
    rounds: u64,
    index: usize,
}

impl Opportunities {
    /// The opportunities of a trace that begins at `now`; `None` for other bottlenecks.
    pub(super) fn of(bottleneck: &Bottleneck, now: Instant) -> Option<Opportunities> {
        match bottleneck {
            Bottleneck::Opportunities(trace) => {
                Some(Opportunities { trace: Arc::clone(trace), began: now, rounds: 0, index: 0 })
            }
            _ => None,
        }
    }

    /// True if these are the opportunities of the same trace.
    pub(super) fn is_of(&self, bottleneck: &Bottleneck) -> bool {
        matches!(bottleneck, Bottleneck::Opportunities(trace) if Arc::ptr_eq(trace, &self.trace))
    }

    /// Time of the next opportunity; `None` for a trace without length.
    pub(super) fn next(&self) -> Option<Instant> {
        let period_ms = self.period_ms()?;
        let ms = self.trace.get(self.index)?;
        let since_began_ms = self.rounds.saturating_mul(period_ms).saturating_add(*ms);
        Some(self.began + Duration::from_millis(since_began_ms))
    }

    /// Uses the next opportunity if it is due by `now`, and returns its time.
    pub(super) fn take(&mut self, now: Instant) -> Option<Instant> {
        let at = self.next().filter(|at| *at <= now)?;
        self.index += 1;
        if self.index == self.trace.len() {
            self.index = 0;
            self.rounds += 1;
        }
        Some(at)
    }

    /// Skips every opportunity up to and at `now`: nothing was queued for them.
    pub(super) fn skip_to(&mut self, now: Instant) {
        let Some(period_ms) = self.period_ms() else {
            return;
        };
        let elapsed_ms = now.since(self.began).as_nanos() as u64 / 1_000_000;
        let rounds = elapsed_ms / period_ms;
        let index = self.trace.partition_point(|ms| *ms <= elapsed_ms % period_ms);
        if (rounds, index) > (self.rounds, self.index) {
            (self.rounds, self.index) = (rounds, index);
        }
    }

    fn period_ms(&self) -> Option<u64> {
        self.trace.last().copied().filter(|ms| *ms > 0)
    }
}
