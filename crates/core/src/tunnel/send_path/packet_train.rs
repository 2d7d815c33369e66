//! How fast a path is, before anything was carried: a few packets in a row
//! arrive as far apart as the path allows (Dovrolis et al. 2001, *What do packet
//! dispersion techniques measure?*). A guess, to tell
//! paths apart by and when what is under way on them arrives, not how much may be.

use super::feedback::Mark;
use crate::tunnel::wire::gre_key::unwrap;

/// Packets of a train.
pub(in super::super) const TRAIN_PACKETS: u32 = 24;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum PacketTrain {
    /// None was sent.
    #[default]
    Unsent,
    /// Numbers of its first and last packet; clock and count of the other end when it
    /// first told of any of them.
    InFlight { first: u64, last: u64, first_mark: Option<Mark> },
    /// What it said, in bytes a second.
    Done(f64),
}

impl PacketTrain {
    /// A report of the other end, and its newest number (modulo 2³²).
    pub(super) fn note(&mut self, highest: u32, at: Mark) {
        let PacketTrain::InFlight { first, last, first_mark } = *self else { return };
        let highest = unwrap(last, highest, 32);
        if highest < first {
            return;
        }
        let begin = first_mark.unwrap_or(at);
        *self = if highest < last {
            PacketTrain::InFlight { first, last, first_mark: Some(begin) }
        } else {
            PacketTrain::Done(at.bytes_s_since(begin))
        };
    }

    /// Whether it is still coming in: what is measured meanwhile is its own queue.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self, PacketTrain::InFlight { .. })
    }

    pub(super) fn bytes_s(&self) -> Option<f64> {
        match self {
            PacketTrain::Done(bytes_s) => Some(*bytes_s),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::feedback::MAX_BYTES_S;
    use super::*;

    fn mark(us: u32, bytes: u32) -> Mark {
        Mark { us, bytes }
    }

    #[test]
    fn a_train_tells_how_fast_a_path_is_by_how_far_apart_it_arrives() {
        let mut train = PacketTrain::InFlight { first: 10, last: 33, first_mark: None };
        train.note(9, mark(4_294_967_000, 5_000));
        assert_eq!(train, PacketTrain::InFlight { first: 10, last: 33, first_mark: None }, "that was before it");
        train.note(13, mark(4_294_967_290, 8_000));
        train.note(20, mark(300, 12_000));
        assert_eq!(train.bytes_s(), None);
        train.note(33, mark(994, 20_000));
        assert_eq!(train.bytes_s(), Some(12e6));
    }

    #[test]
    fn a_train_told_of_at_once_was_too_fast_to_be_measured() {
        let mut train = PacketTrain::InFlight { first: 0, last: 23, first_mark: None };
        train.note(24, mark(1_000, 20_000));
        assert_eq!(train.bytes_s(), Some(MAX_BYTES_S));
    }
}
