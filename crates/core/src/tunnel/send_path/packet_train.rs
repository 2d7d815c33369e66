//! The rate of a path before it carries traffic, estimated by a packet train: the spacing of its packets on
//! arrival shows the path's capacity (Dovrolis et al. 2001, *What do packet dispersion techniques
//! measure?*). The estimate serves to compare paths and to predict arrivals, not to set the window.

use super::feedback::Mark;
use crate::time::Duration;
use crate::tunnel::wire::gre_key::{NUMBER_BITS, unwrap};

/// Packets of a train.
pub(in super::super) const TRAIN_PACKETS: u32 = 24;

/// State of a path's packet train.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum PacketTrain {
    /// No train was sent.
    #[default]
    Unsent,
    /// Sequence numbers of its first and last packet; the peer's clock and count at the first report that
    /// covers one; whether a report had a gap, which late packets may fill.
    InFlight { first: u64, last: u64, first_mark: Option<Mark>, has_gaps: bool },
    /// Its bytes, the time in which they arrived, and whether they arrived with gaps.
    Done { bytes: u32, took: Duration, has_gaps: bool },
}

impl PacketTrain {
    /// Applies a report with its highest sequence number (modulo 2²⁴).
    pub(super) fn note(&mut self, highest: u32, at: Mark, has_gaps: bool) {
        let PacketTrain::InFlight { first, last, first_mark, has_gaps: had_gaps } = *self else { return };
        let highest = unwrap(last, highest, NUMBER_BITS);
        if highest < first {
            return;
        }
        let (begin, has_gaps) = (first_mark.unwrap_or(at), has_gaps || had_gaps);
        *self = if highest < last {
            PacketTrain::InFlight { first, last, first_mark: Some(begin), has_gaps }
        } else {
            PacketTrain::Done { bytes: at.bytes.wrapping_sub(begin.bytes), took: at.since(begin), has_gaps }
        };
    }

    /// Whether its packets are still in flight: a queue measured meanwhile is the train's own.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self, PacketTrain::InFlight { .. })
    }

    /// The rate, in bytes/s. Jitter that reorders spreads the packets on arrival, over about twice its mean.
    pub(super) fn bytes_s(&self, jitter: Duration) -> Option<f64> {
        let PacketTrain::Done { bytes, took, has_gaps } = *self else { return None };
        let spacing = if has_gaps { took.saturating_sub(jitter * 2).max(took / 8) } else { took };
        Some(Mark { us: spacing.as_micros() as u32, bytes }.bytes_s_since(Mark { us: 0, bytes: 0 }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::feedback::MAX_BYTES_S;
    use super::*;

    fn mark(us: u32, bytes: u32) -> Mark {
        Mark { us, bytes }
    }

    /// A train of 12 kB that takes 1 ms to arrive.
    fn train(has_gaps: bool) -> PacketTrain {
        let new = PacketTrain::InFlight { first: 10, last: 33, first_mark: None, has_gaps: false };
        let mut train = new;
        train.note(9, mark(4_294_967_000, 5_000), false);
        assert_eq!(train, new, "the report is older than the train");
        train.note(13, mark(4_294_967_290, 8_000), false);
        train.note(20, mark(300, 12_000), has_gaps);
        assert_eq!(train.bytes_s(Duration::ZERO), None);
        train.note(33, mark(994, 20_000), false);
        train
    }

    #[test]
    fn the_spacing_of_a_train_on_arrival_gives_the_rate() {
        assert_eq!(train(false).bytes_s(Duration::from_secs(1)), Some(12e6));
        assert_eq!(train(true).bytes_s(Duration::ZERO), Some(12e6));
    }

    #[test]
    fn jitter_that_reorders_spreads_a_train() {
        assert_eq!(train(true).bytes_s(Duration::from_micros(250)), Some(24e6), "a half of the spacing is jitter");
        assert_eq!(train(true).bytes_s(Duration::from_secs(1)), Some(96e6), "all of it");
    }

    #[test]
    fn a_train_reported_at_once_gives_the_maximum_rate() {
        let mut train = PacketTrain::InFlight { first: 0, last: 23, first_mark: None, has_gaps: false };
        train.note(24, mark(1_000, 20_000), false);
        assert_eq!(train.bytes_s(Duration::ZERO), Some(MAX_BYTES_S));
    }
}
