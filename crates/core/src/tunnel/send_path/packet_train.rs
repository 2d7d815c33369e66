//! The rate of a path before it carries traffic, estimated by a packet train: the spacing of its packets on
//! arrival shows the path's capacity (Dovrolis et al. 2001, *What do packet dispersion techniques
//! measure?*). The estimate serves to compare paths and to predict arrivals, not to set the window.

use super::feedback::Mark;
use crate::tunnel::wire::gre_key::unwrap;

/// Packets of a train.
pub(in super::super) const TRAIN_PACKETS: u32 = 24;

/// State of a path's packet train.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum PacketTrain {
    /// No train was sent.
    #[default]
    Unsent,
    /// Sequence numbers of its first and last packet; the peer's clock and count at the first report that
    /// covers one.
    InFlight { first: u64, last: u64, first_mark: Option<Mark> },
    /// The rate, in bytes/s.
    Done(f64),
}

impl PacketTrain {
    /// Applies a report with its highest sequence number (modulo 2³²).
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

    /// Whether its packets are still in flight: a queue measured meanwhile is the train's own.
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
    fn the_spacing_of_a_train_on_arrival_gives_the_rate() {
        let mut train = PacketTrain::InFlight { first: 10, last: 33, first_mark: None };
        train.note(9, mark(4_294_967_000, 5_000));
        assert_eq!(
            train,
            PacketTrain::InFlight { first: 10, last: 33, first_mark: None },
            "the report is older than the train"
        );
        train.note(13, mark(4_294_967_290, 8_000));
        train.note(20, mark(300, 12_000));
        assert_eq!(train.bytes_s(), None);
        train.note(33, mark(994, 20_000));
        assert_eq!(train.bytes_s(), Some(12e6));
    }

    #[test]
    fn a_train_reported_at_once_gives_the_maximum_rate() {
        let mut train = PacketTrain::InFlight { first: 0, last: 23, first_mark: None };
        train.note(24, mark(1_000, 20_000));
        assert_eq!(train.bytes_s(), Some(MAX_BYTES_S));
    }
}
