//! A rate limit of commands, whatever their cause.
//!
//! A token bucket. It must let a handover of 200 connections pass at once (400
//! commands) and let each new connection open its subflows at once, for any number of
//! connections; and it must stop an unforeseen loop. So a bucket of [`BURST`] is
//! refilled with [`PER_SECOND`], and a new connection, which only the peer and the
//! application can create, adds [`PER_CONNECTION`]. More than [`BASE_CONNECTIONS`]
//! connections enlarge both in proportion. For up to 300 connections that is 500
//! commands in any second and 50 a second on average, in addition to those for new
//! connections.

use crate::time::{Duration, Instant};

/// Maximum number of commands at once.
const BURST: u64 = 450;
/// Commands a second on average.
const PER_SECOND: u64 = 50;
/// Commands that a new connection adds.
const PER_CONNECTION: u64 = 2;
/// Number of connections up to which [`BURST`] and [`PER_SECOND`] hold.
const BASE_CONNECTIONS: u64 = 300;
/// Parts of a command: one accrues each nanosecond at one command a second.
const PARTS: u64 = 1_000_000_000;

/// The bucket.
#[derive(Debug)]
pub(super) struct Budget {
    parts: u64,
    at: Instant,
    connections: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { parts: BURST * PARTS, at: Instant::ZERO, connections: 0 }
    }
}

impl Budget {
    /// Sets the number of connections; each new one adds its commands.
    pub fn set_connections(&mut self, now: Instant, connections: usize) {
        self.refill(now);
        let connections = connections as u64;
        let new = connections.saturating_sub(self.connections);
        self.connections = connections;
        self.parts = self.parts.saturating_add(new * PER_CONNECTION * PARTS).min(self.capacity());
    }

    /// Takes one command; false if none is left.
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let Some(rest) = self.parts.checked_sub(PARTS) else { return false };
        self.parts = rest;
        true
    }

    /// When the next command is available.
    pub fn ready_at(&self) -> Instant {
        let missing = PARTS.saturating_sub(self.parts);
        self.at + Duration::from_nanos(missing.div_ceil(self.per_second()))
    }

    fn refill(&mut self, now: Instant) {
        let passed = u64::try_from(now.since(self.at).as_nanos()).unwrap_or(u64::MAX);
        self.at = self.at.max(now);
        self.parts = self.parts.saturating_add(passed.saturating_mul(self.per_second())).min(self.capacity());
    }

    fn capacity(&self) -> u64 {
        self.scaled(BURST) * PARTS
    }

    fn per_second(&self) -> u64 {
        self.scaled(PER_SECOND)
    }

    fn scaled(&self, of: u64) -> u64 {
        of * self.connections.max(BASE_CONNECTIONS) / BASE_CONNECTIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of commands taken from `from` to `to` ms if there are always more.
    fn taken(budget: &mut Budget, from: u64, to: u64) -> u64 {
        (from..to).map(|ms| (0..1000).filter(|_| budget.take(Instant::from_millis(ms))).count() as u64).sum()
    }

    #[test]
    fn up_to_300_connections_make_500_commands_in_a_second_and_50_on_average() {
        let mut budget = Budget::default();
        budget.set_connections(Instant::ZERO, 300);
        let first = taken(&mut budget, 0, 1000);
        assert!((400..=500).contains(&first), "{first}: enough for a handover of 200 connections");
        let later = taken(&mut budget, 1000, 11_000);
        assert!((490..=510).contains(&later), "{later}");
    }

    #[test]
    fn a_thousand_connections_in_five_seconds_open_their_subflows_as_they_come() {
        let mut budget = Budget::default();
        for number in 0..1000 {
            let now = Instant::from_millis(number * 5);
            budget.set_connections(now, number as usize + 1);
            assert!(budget.take(now) && budget.take(now), "connection {number}");
        }
    }

    #[test]
    fn the_next_command_is_available_at_the_announced_time() {
        let mut budget = Budget::default();
        taken(&mut budget, 0, 1);
        let ready = budget.ready_at();
        assert!(!budget.take(Instant::from_nanos(ready.as_nanos() - 1)));
        assert!(budget.take(ready));
    }
}
