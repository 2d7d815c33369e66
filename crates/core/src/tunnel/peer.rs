//! What is known of the other endpoint.

use crate::time::{Duration, Instant};

/// Minimum time between two restarts of the peer. An earlier change of epoch is a delayed message or a
/// false report.
const MIN_RESTART_INTERVAL: Duration = Duration::from_millis(250);
/// A delayed message of a peer that restarted brings its former epoch back, and the next one the new epoch. More returns are
/// of two peers that run at the same time.
const MAX_RETURNS: u32 = 3;
/// Time after the last return until there is one peer again.
const MAX_RETURN_AGE: Duration = Duration::from_secs(60);

/// The peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    epoch: Option<u32>,
    /// The epoch before.
    former: Option<u32>,
    /// Number of times in a row that the former epoch came back.
    returns: u32,
    restarted_at: Option<Instant>,
    /// Whether it retransmits lost packets.
    pub retransmits: bool,
    /// Whether it reads feedback that packets carry.
    pub reads_feedback: bool,
}

/// What the epoch of a message shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpochChange {
    /// No restart, or the first message.
    None,
    /// The peer restarted and lost its state.
    Restarted,
    /// The message is delayed or false.
    TooSoon,
}

impl Peer {
    /// The peer's epoch; 0 if unknown.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch.unwrap_or(0)
    }

    /// Applies the epoch of a message.
    pub(super) fn on_epoch(&mut self, now: Instant, epoch: u32) -> EpochChange {
        if self.epoch == Some(epoch) {
            return EpochChange::None;
        }
        if self.restarted_at.is_some_and(|at| now.since(at) < MIN_RESTART_INTERVAL) {
            return EpochChange::TooSoon;
        }
        let returns = self.former == Some(epoch);
        self.former = self.epoch.replace(epoch);
        if self.former.is_none() {
            return EpochChange::None;
        }
        self.returns = if returns { self.returns.saturating_add(1) } else { 0 };
        self.restarted_at = Some(now);
        EpochChange::Restarted
    }

    /// Whether two endpoints speak as this peer.
    pub(super) fn is_doubled(&self, now: Instant) -> bool {
        self.returns > MAX_RETURNS && self.restarted_at.is_some_and(|at| now.since(at) < MAX_RETURN_AGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_limited_to_one_in_250_ms() {
        let mut peer = Peer::default();
        for (ms, epoch, change) in [
            (10, 70, EpochChange::None),
            (10, 70, EpochChange::None),
            (20, 71, EpochChange::Restarted),
            (20, 70, EpochChange::TooSoon),
            (269, 72, EpochChange::TooSoon),
            (270, 73, EpochChange::Restarted),
            (300, 71, EpochChange::TooSoon),
            (300, 73, EpochChange::None),
        ] {
            assert_eq!(peer.on_epoch(Instant::from_millis(ms), epoch), change, "epoch {epoch} at {ms} ms");
        }
        assert_eq!(peer.epoch(), 73);
    }

    #[test]
    fn epochs_that_return_again_and_again_are_of_two_peers() {
        let (mut peer, mut now) = (Peer::default(), Instant::ZERO);
        let mut doubled = |epochs: &[u32]| {
            for epoch in epochs {
                now = now + MIN_RESTART_INTERVAL;
                peer.on_epoch(now, *epoch);
            }
            peer.is_doubled(now)
        };
        assert!(!doubled(&[70, 71, 72, 73]), "restarts");
        assert!(!doubled(&[72, 73]), "a delayed message after a restart");
        assert!(doubled(&[72, 73, 72, 73]));
        assert!(!doubled(&[74]));
        assert!(doubled(&[73, 74, 73, 74]));
        assert!(!peer.is_doubled(now + MAX_RETURN_AGE));
    }
}
