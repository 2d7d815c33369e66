//! Paths that hold up the others rest.
//!
//! Data arrives in order: what is given to a path that carries next to nothing
//! is waited for at the peer, and when so much is under way that the sender may
//! write no more, the other paths run idle. A path that costs the others more
//! than it carries itself is left alone for a while, longer each time. If what
//! it holds would take long even so, its subflow is closed, which makes the
//! kernel send that over the others (Linux `__mptcp_retransmit_pending_data`),
//! and opened again: whether the path answers is known from the handshake.

use alloc::vec::Vec;

use crate::assess::throughput::History;
use crate::time::{Duration, Instant};

/// Time for which paths must have carried together before they are judged.
const SETTLED: Duration = Duration::from_millis(1500);
/// How long a path rests, for the first time and at most.
const FIRST_REST: Duration = Duration::from_millis(2000);
const LONGEST_REST: Duration = Duration::from_millis(16_000);
/// The subflow of a path that holds so much, in s at its rate, is closed for so
/// long.
const LONG_DRAIN_S: f64 = 1.0;
const CLOSED: Duration = Duration::from_millis(1000);

/// How each path stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Suspensions {
    paths: Vec<Rest>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    until: Instant,
    closed_until: Instant,
    /// How long it rested last; zero after it has done well.
    last: Duration,
    carries_since: Instant,
}

impl Suspensions {
    /// True while the path rests.
    pub(super) fn is_resting(&self, now: Instant, place: usize) -> bool {
        self.paths.get(place).is_some_and(|rest| now < rest.until)
    }

    /// Whether the subflow of each path is to be closed.
    pub(super) fn closed(&self, now: Instant) -> Vec<bool> {
        self.paths.iter().map(|rest| now < rest.closed_until).collect()
    }

    /// Notes which paths carry from now on.
    pub(super) fn note(&mut self, now: Instant, carries: &[bool]) {
        self.paths.resize(carries.len(), Rest::default());
        for (rest, _) in self.paths.iter_mut().zip(carries).filter(|(_, carries)| !**carries) {
            rest.carries_since = now;
        }
    }

    /// The first of the paths that carry (by place) that is to rest now.
    pub(super) fn judge(&mut self, now: Instant, carrying: &[(usize, &History)]) -> Option<usize> {
        let settled = |(place, _): &(usize, &History)| {
            self.paths.get(*place).is_some_and(|rest| now.since(rest.carries_since) >= SETTLED)
        };
        if !carrying.iter().all(settled) {
            return None;
        }
        for &(place, history) in carrying {
            let others = carrying.iter().filter(|(other, _)| *other != place);
            let lost: f64 = others.map(|(_, other)| other.level(0.0).unwrap_or(0.0) * other.idle_share()).sum();
            let rest = self.paths.get_mut(place)?;
            if history.lately() >= lost {
                rest.last = Duration::ZERO;
                continue;
            }
            rest.last = (rest.last * 2).max(FIRST_REST).min(LONGEST_REST);
            rest.until = now + rest.last;
            if history.queued_bytes() as f64 > LONG_DRAIN_S * history.lately() {
                rest.closed_until = now + CLOSED;
            }
            return Some(place);
        }
        None
    }
}

#[cfg(test)]
mod tests;
