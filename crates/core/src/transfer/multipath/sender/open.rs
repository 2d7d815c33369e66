//! An open object of the sender.

use alloc::collections::{BTreeMap, BTreeSet};

use super::path::Flight;
use crate::time::Instant;
use crate::transfer::Abandoned;
use crate::transfer::multipath::{extent, pieces};

#[derive(Debug)]
pub(super) struct Open {
    pub number: u32,
    pub size: u64,
    pub start: Instant,
    pub deadline: Option<Instant>,
    /// The first piece that was never given out.
    pub next: u32,
    /// Pieces given out on connections that broke.
    pub lost: BTreeSet<u32>,
    /// Copies in flight of each piece that has not arrived.
    pub in_flight: BTreeMap<u32, u8>,
    pub acked: u64,
    /// The paths, as bits, on whose connection it is offered, and ended.
    pub offered: u16,
    pub ended: u16,
    pub abandoned: Option<Abandoned>,
}

impl Open {
    /// Whether each piece was given out.
    pub(super) fn is_given_out(&self) -> bool {
        self.abandoned.is_none() && self.next == pieces(self.size)
    }

    /// Whether each piece was given out and no connection lost it.
    pub(super) fn is_in_flight(&self) -> bool {
        self.is_given_out() && self.lost.is_empty()
    }

    pub(super) fn give_out(&mut self, index: u32) -> (u64, u32) {
        self.next = self.next.max(index + 1);
        self.lost.remove(&index);
        *self.in_flight.entry(index).or_default() += 1;
        extent(self.size, index)
    }

    /// True if this is the first copy of the piece.
    pub(super) fn receive(&mut self, flight: Flight) -> bool {
        let is_first = self.in_flight.remove(&flight.index).is_some() || self.lost.remove(&flight.index);
        if is_first {
            self.acked += u64::from(flight.length);
        }
        is_first
    }
}

/// Objects without a deadline come last.
pub(super) fn due(deadline: Option<Instant>) -> Instant {
    deadline.unwrap_or(Instant::from_nanos(u64::MAX))
}
