//! Suspension of paths that delay the others.
//!
//! Data arrives in order: the peer waits for data on a path that carries almost
//! nothing, and once the sender reaches its limit of data in flight, the other paths
//! run idle. A path that costs the others more than it carries is suspended, longer
//! each time. If its queued data would still take long, its subflow is closed, which
//! makes the kernel send that data over the others (Linux
//! `__mptcp_retransmit_pending_data`), and opened again: the handshake shows whether
//! the path answers.

use alloc::vec::Vec;

use crate::assess::throughput::History;
use crate::time::{Duration, Instant};

/// Paths are evaluated after they have carried together for this long.
const SETTLED: Duration = Duration::from_millis(1500);
/// The first and the longest suspension of a path.
const FIRST_SUSPENSION: Duration = Duration::from_millis(2000);
const MAX_SUSPENSION: Duration = Duration::from_millis(16_000);
/// The subflow of a path whose queued data takes this long at its rate, in s, is closed
/// for [`CLOSED`].
const LONG_DRAIN_S: f64 = 1.0;
const CLOSED: Duration = Duration::from_millis(1000);

/// Suspension state of each path.
#[derive(Clone, Debug, Default)]
pub(super) struct Suspensions {
    paths: Vec<Suspension>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Suspension {
    until: Instant,
    closed_until: Instant,
    /// The last suspension; zero after the path carried enough.
    last: Duration,
    carries_since: Instant,
}

impl Suspensions {
    /// True while the path is suspended.
    pub(super) fn is_suspended(&self, now: Instant, place: usize) -> bool {
        self.paths.get(place).is_some_and(|suspension| now < suspension.until)
    }

    /// Whether the subflow of each path is to be closed.
    pub(super) fn closed(&self, now: Instant) -> Vec<bool> {
        self.paths.iter().map(|suspension| now < suspension.closed_until).collect()
    }

    /// Sets which paths carry from now on.
    pub(super) fn set_carrying(&mut self, now: Instant, carries: &[bool]) {
        self.paths.resize(carries.len(), Suspension::default());
        for (suspension, _) in self.paths.iter_mut().zip(carries).filter(|(_, carries)| !**carries) {
            suspension.carries_since = now;
        }
    }

    /// Suspends the first active path that delays the others; returns its index.
    pub(super) fn suspend_one(&mut self, now: Instant, carrying: &[(usize, &History)]) -> Option<usize> {
        let settled = |(place, _): &(usize, &History)| {
            self.paths.get(*place).is_some_and(|suspension| now.since(suspension.carries_since) >= SETTLED)
        };
        if !carrying.iter().all(settled) {
            return None;
        }
        for &(place, history) in carrying {
            let others = carrying.iter().filter(|(other, _)| *other != place);
            let lost: f64 = others.map(|(_, other)| other.mean_rate(0.0).unwrap_or(0.0) * other.idle_share()).sum();
            let suspension = self.paths.get_mut(place)?;
            if history.recent_rate() >= lost {
                suspension.last = Duration::ZERO;
                continue;
            }
            suspension.last = (suspension.last * 2).max(FIRST_SUSPENSION).min(MAX_SUSPENSION);
            suspension.until = now + suspension.last;
            if history.queued_bytes() as f64 > LONG_DRAIN_S * history.recent_rate() {
                suspension.closed_until = now + CLOSED;
            }
            return Some(place);
        }
        None
    }
}

#[cfg(test)]
mod tests;
