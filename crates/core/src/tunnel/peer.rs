//! What is known of the other endpoint.

use crate::time::{Duration, Instant};

/// Minimum time between two restarts of the peer. An earlier change of epoch is a delayed message or a
/// false report.
const MIN_RESTART_INTERVAL: Duration = Duration::from_millis(250);

/// The peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    epoch: Option<u32>,
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
        if self.epoch.replace(epoch).is_none() {
            return EpochChange::None;
        }
        self.restarted_at = Some(now);
        EpochChange::Restarted
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
}
