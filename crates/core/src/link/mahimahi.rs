//! Mahimahi's traces: text to numbers, and the chances they give.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use thiserror::Error;

use super::Bottleneck;
use crate::time::{Duration, Instant};

/// Bytes of IP packet that one chance carries (mahimahi's 1504 less the four
/// bytes that its TUN device puts in front).
pub const CHANCE_BYTES: u32 = 1500;

/// Lines that a trace may have: 2 hours at 1 Gbit/s and more.
pub const MAX_LINES: usize = 10_000_000;

/// What is wrong with a trace, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}:{line}: {cause}")]
pub struct TraceError {
    /// Name of the file, as given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub cause: Cause,
}

/// What is wrong with a line of a trace.
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
    /// No line at all.
    #[error("the trace is empty; it needs one line at least")]
    Empty,
    /// The trace would repeat without end in no time.
    #[error("the trace ends at 0 ms; its last line is its length and must be above 0")]
    NoLength,
    /// More than [`MAX_LINES`].
    #[error("the trace has more than {MAX_LINES} lines; shorten it, it repeats anyway")]
    TooLong,
}

/// Reads a trace: one whole number of milliseconds a line, not falling; the
/// last is also the length after which it repeats.
///
/// # Errors
/// The first broken line; `file` is only quoted.
pub fn parse(file: &str, text: &str) -> Result<Vec<u64>, TraceError> {
    let fail = |line: usize, cause: Cause| Err(TraceError { file: file.to_string(), line, cause });
    let mut chances_ms: Vec<u64> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end();
        let Some(now) = number(line) else {
            let shown = line.chars().take(40).collect();
            return fail(index + 1, Cause::NotANumber(shown));
        };
        let before = chances_ms.last().copied().unwrap_or(0);
        if now < before {
            return fail(index + 1, Cause::Falls { before, now });
        }
        if index == MAX_LINES {
            return fail(index + 1, Cause::TooLong);
        }
        chances_ms.push(now);
    }
    match chances_ms.last() {
        None => fail(1, Cause::Empty),
        Some(0) => fail(chances_ms.len(), Cause::NoLength),
        Some(_) => Ok(chances_ms),
    }
}

/// Digits only (`parse` would take a sign), and no more than an [`Instant`]
/// can hold many times over.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value = text.parse().ok().filter(|ms| *ms <= u64::from(u32::MAX));
    value.filter(|_| digits)
}

/// Where in its trace a bottleneck stands.
#[derive(Clone, Debug)]
pub(super) struct Opportunities {
    trace: Arc<Vec<u64>>,
    began: Instant,
    rounds: u64,
    index: usize,
}

impl Opportunities {
    /// The chances of a trace that begins at `now`; `None` for other
    /// bottlenecks.
    pub(super) fn of(bottleneck: &Bottleneck, now: Instant) -> Option<Opportunities> {
        match bottleneck {
            Bottleneck::Opportunities(trace) => {
                Some(Opportunities { trace: Arc::clone(trace), began: now, rounds: 0, index: 0 })
            }
            _ => None,
        }
    }

    /// True if these are the chances of that very trace.
    pub(super) fn is_of(&self, bottleneck: &Bottleneck) -> bool {
        matches!(bottleneck, Bottleneck::Opportunities(trace) if Arc::ptr_eq(trace, &self.trace))
    }

    /// When the next chance comes; `None` for a trace without length.
    pub(super) fn next(&self) -> Option<Instant> {
        let period_ms = self.period_ms()?;
        let ms = self.trace.get(self.index)?;
        let since_began_ms = self.rounds.saturating_mul(period_ms).saturating_add(*ms);
        Some(self.began + Duration::from_millis(since_began_ms))
    }

    /// Uses the next chance if it comes by `now`, and says when it came.
    pub(super) fn take(&mut self, now: Instant) -> Option<Instant> {
        let at = self.next().filter(|at| *at <= now)?;
        self.index += 1;
        if self.index == self.trace.len() {
            self.index = 0;
            self.rounds += 1;
        }
        Some(at)
    }

    /// Passes over every chance up to and at `now`, which found nothing to carry.
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
