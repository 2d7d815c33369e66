//! The peers of an endpoint. A gateway's come and go while both threads use them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::peer::Peer;

/// Peers by place. A place is never used again, so that what is on its way to a peer that has left reaches
/// no other.
pub(super) struct Peers {
    places: Box<[OnceLock<Box<Peer>>]>,
    used: AtomicUsize,
}

impl Peers {
    /// No peers yet.
    pub(super) fn new(places: usize) -> Peers {
        Peers { places: (0..places).map(|_| OnceLock::new()).collect(), used: AtomicUsize::new(0) }
    }

    /// Adds a peer, and returns its place; `None`: all are used. Not for two threads at once.
    pub(super) fn add(&self, peer: Peer) -> Option<usize> {
        let place = self.used();
        self.places.get(place)?.set(Box::new(peer)).ok()?;
        self.used.store(place + 1, Ordering::Release);
        Some(place)
    }

    /// Number of used places, also of peers that have left.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// Number of places for more peers.
    pub(super) fn free(&self) -> usize {
        self.places.len() - self.used()
    }

    /// The peer at a place, unless it has left.
    pub(super) fn get(&self, place: usize) -> Option<&Peer> {
        self.places.get(place)?.get().map(Box::as_ref).filter(|peer| !peer.has_left())
    }

    /// The only peer of a vehicle or of an unencrypted gateway.
    pub(super) fn first(&self) -> Option<&Peer> {
        self.get(0)
    }

    /// All peers that have not left, with their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Peer)> {
        (0..self.used()).filter_map(|place| Some((place, self.get(place)?)))
    }
}
