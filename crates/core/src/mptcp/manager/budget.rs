//! A circuit breaker: commands in a second, whatever asks for them.
//!
//! A token bucket. It must let a handover of 200 connections pass at once (400
//! commands) and each new connection open its subflows at once, however many
//! there are; and it must end a loop that nobody thought of. So a bucket of
//! [`BURST`] is refilled with [`PER_SECOND`], and a new connection, which the
//! peer and the application make and no loop of ours can, brings
//! [`PER_CONNECTION`] of its own. More than [`FEW`] connections enlarge both in
//! proportion. For up to 300 connections that is 500 commands in any second and
//! 50 a second in the mean, beyond what new connections bring.

use crate::time::{Duration, Instant};

/// Commands at once.
const BURST: u64 = 450;
/// Commands a second in the mean.
const PER_SECOND: u64 = 50;
/// Commands that a new connection brings.
const PER_CONNECTION: u64 = 2;
/// Connections up to which [`BURST`] and [`PER_SECOND`] hold.
const FEW: u64 = 300;
/// Commands are counted in parts, one a nanosecond at one command a second.
const PARTS: u64 = 1_000_000_000;

/// The bucket.
#[derive(Debug)]
pub(super) struct Budget {
    parts: u64,
    at: Instant,
    connections: u64,
}

impl Budget {
    pub fn new() -> Budget {
        Budget { parts: BURST * PARTS, at: Instant::ZERO, connections: 0 }
    }

    /// Takes the number of connections; each new one brings its own.
    pub fn set_connections(&mut self, now: Instant, connections: usize) {
        self.refill(now);
        let connections = connections as u64;
        let new = connections.saturating_sub(self.connections);
        self.connections = connections;
        self.parts = self.parts.saturating_add(new * PER_CONNECTION * PARTS).min(self.capacity());
    }

    /// Takes one command out; false if there is none left.
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let Some(rest) = self.parts.checked_sub(PARTS) else { return false };
        self.parts = rest;
        true
    }

    /// When the next command can be had.
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
        of * self.connections.max(FEW) / FEW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands had of those that are asked for without end, from `from` to `to` ms.
    fn had(budget: &mut Budget, from: u64, to: u64) -> u64 {
        (from..to).map(|ms| (0..1000).filter(|_| budget.take(Instant::from_millis(ms))).count() as u64).sum()
    }

    #[test]
    fn up_to_300_connections_make_500_commands_in_a_second_and_50_in_the_mean() {
        let mut budget = Budget::new();
        budget.set_connections(Instant::ZERO, 300);
        let first = had(&mut budget, 0, 1000);
        assert!((400..=500).contains(&first), "{first}: enough for a handover of 200 connections");
        let later = had(&mut budget, 1000, 11_000);
        assert!((490..=510).contains(&later), "{later}");
    }

    #[test]
    fn a_thousand_connections_in_five_seconds_open_their_subflows_as_they_come() {
        let mut budget = Budget::new();
        for number in 0..1000 {
            let now = Instant::from_millis(number * 5);
            budget.set_connections(now, number as usize + 1);
            assert!(budget.take(now) && budget.take(now), "connection {number}");
        }
    }

    #[test]
    fn what_must_wait_knows_until_when() {
        let mut budget = Budget::new();
        had(&mut budget, 0, 1);
        let ready = budget.ready_at();
        assert!(!budget.take(Instant::from_nanos(ready.as_nanos() - 1)));
        assert!(budget.take(ready));
    }
}
