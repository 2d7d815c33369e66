//! An open object of the sender.

use alloc::collections::BTreeMap;

use super::path::Flight;
use crate::time::Instant;
use crate::transfer::Abandoned;
use crate::transfer::multipath::ranges::Ranges;
use crate::transfer::multipath::{bytes, extent, is_resumable, pieces};

/// Of an object that the receiver may have, this part of the pieces is given out before it answers, so that an
/// RTT costs nothing: at most so much is sent twice.
const UNANSWERED_SHARE: u32 = 100;

#[derive(Debug)]
pub(super) struct Open {
    pub number: u32,
    pub size: u64,
    pub start: Instant,
    pub deadline: Option<Instant>,
    pub is_droppable: bool,
    /// Pieces to be given out: never given out, or only on connections that broke.
    pub missing: Ranges,
    /// When its content was last modified, in ns since 1970; 0: not known.
    pub modified_ns: u64,
    /// Whether the receiver has said which pieces it has, or need not.
    pub is_answered: bool,
    /// Whether its digest can be computed: it needs those pieces too.
    pub has_digest: bool,
    /// Copies in flight of each piece that has not arrived.
    pub in_flight: BTreeMap<u32, u8>,
    pub acked: u64,
    /// The paths, as bits, on whose connection it is offered, and ended.
    pub offered: u16,
    pub ended: u16,
    pub abandoned: Option<Abandoned>,
}

impl Open {
    pub(super) fn new(number: u32, size: u64, modified_ns: u64, start: Instant, deadline: Option<Instant>) -> Open {
        Open {
            number,
            size,
            start,
            deadline,
            is_droppable: false,
            missing: Ranges::below(pieces(size)),
            modified_ns,
            is_answered: !is_resumable(size, modified_ns),
            has_digest: true,
            in_flight: BTreeMap::new(),
            acked: 0,
            offered: 0,
            ended: 0,
            abandoned: None,
        }
    }

    /// The receiver has nothing of it.
    pub(super) fn restart(&mut self) {
        *self = Open {
            abandoned: self.abandoned,
            is_droppable: self.is_droppable,
            ..Open::new(self.number, self.size, self.modified_ns, self.start, self.deadline)
        };
    }

    /// The receiver has these pieces. True if this is its first answer.
    pub(super) fn on_have(&mut self, have: &Ranges) -> bool {
        let missing = bytes(self.size, &self.missing);
        have.iter().for_each(|range| self.missing.remove(range));
        self.acked += missing - bytes(self.size, &self.missing);
        let is_first = !self.is_answered;
        if is_first {
            (self.is_answered, self.has_digest) = (true, have.is_empty());
        }
        is_first
    }

    /// Whether each piece is there or in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        self.abandoned.is_none() && self.missing.is_empty()
    }

    /// Whether a piece was given out, or is there.
    pub(super) fn is_begun(&self) -> bool {
        self.missing.count() < pieces(self.size)
    }

    /// The piece to be given out next.
    pub(super) fn next_piece(&self) -> Option<u32> {
        let all = pieces(self.size);
        let may = self.is_answered || (all - self.missing.count()) < all.div_ceil(UNANSWERED_SHARE);
        self.missing.first().filter(|_| may)
    }

    pub(super) fn give_out(&mut self, index: u32) -> (u64, u32) {
        self.missing.remove(index..index + 1);
        *self.in_flight.entry(index).or_default() += 1;
        extent(self.size, index)
    }

    /// True if this is the first copy of the piece.
    pub(super) fn receive(&mut self, flight: Flight) -> bool {
        let is_first = self.in_flight.remove(&flight.index).is_some();
        if is_first {
            self.acked += u64::from(flight.length);
        }
        is_first
    }
}
