//! How fast a path is, before anything was carried: a few packets in a row
//! arrive as far apart as the path allows (Dovrolis et al. 2001, *What do packet
//! dispersion techniques measure?*). A guess, to tell
//! paths apart by and when what is under way on them arrives, not how much may be.

use super::super::label::unwrap;

/// Packets of a train.
pub(in super::super) const TRAIN_PACKETS: u32 = 24;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Train {
    /// None was sent.
    #[default]
    Unsent,
    /// Numbers of its first and last packet; time (µs) and count of bytes at the
    /// other end when it first told of any of them.
    Under { first: u64, last: u64, began: Option<(u32, u32)> },
    /// What it said, in bytes a second; none: it arrived as if at once.
    Done(Option<f64>),
}

impl Train {
    /// A report of the other end: newest number (modulo 2³²), time and bytes.
    pub(super) fn note(&mut self, highest: u32, at: (u32, u32)) {
        let Train::Under { first, last, began } = *self else { return };
        let highest = unwrap(last, highest, 32);
        if highest < first {
            return;
        }
        let (begin_us, begin_bytes) = began.unwrap_or(at);
        if highest < last {
            *self = Train::Under { first, last, began: Some((begin_us, begin_bytes)) };
            return;
        }
        let (took_us, bytes) = (at.0.wrapping_sub(begin_us), at.1.wrapping_sub(begin_bytes));
        *self = Train::Done((took_us > 0).then(|| f64::from(bytes) / (f64::from(took_us) / 1e6)));
    }

    /// Whether it is still coming in: what is measured meanwhile is its own queue.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self, Train::Under { .. })
    }

    pub(super) fn bytes_s(&self) -> Option<f64> {
        match self {
            Train::Done(said) => Some(said.unwrap_or(f64::INFINITY)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_tells_how_fast_a_path_is_by_how_far_apart_it_arrives() {
        let mut train = Train::Under { first: 10, last: 33, began: None };
        train.note(9, (4_294_967_000, 5_000));
        assert_eq!(train, Train::Under { first: 10, last: 33, began: None }, "that was before it");
        train.note(13, (4_294_967_290, 8_000));
        train.note(20, (300, 12_000));
        assert_eq!(train.bytes_s(), None);
        train.note(33, (994, 20_000));
        assert_eq!(train.bytes_s(), Some(12e6));
    }

    #[test]
    fn a_train_told_of_at_once_was_too_fast_to_be_measured() {
        let mut train = Train::Under { first: 0, last: 23, began: None };
        train.note(24, (1_000, 20_000));
        assert_eq!(train.bytes_s(), Some(f64::INFINITY));
    }
}
