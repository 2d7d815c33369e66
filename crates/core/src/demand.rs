//! What is to be carried by when, and what each path costs.

use alloc::vec::Vec;

use crate::time::Instant;

/// Most objects of a demand that are looked at; later ones wait until earlier
/// ones are done.
pub const MAX_OBJECTS: usize = 64;

/// All that is open now. Whoever sends tells it anew as acknowledgements come
/// in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Objects with bytes not yet acknowledged, the earliest deadline first.
    pub objects: Vec<Object>,
    /// Price of a byte over each path, in any unit, in the order of the paths;
    /// a path that has none counts by its place in the user's preference.
    pub unit_costs: Vec<f64>,
}

/// An object that is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its number; an object keeps it.
    pub number: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes of it acknowledged by the peer's end of the connection.
    pub acked_bytes: u64,
    /// When it was handed over.
    pub start: Instant,
    /// When its last byte must have reached the peer.
    pub deadline: Instant,
}

impl Object {
    /// Bytes not acknowledged.
    pub fn rest_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.acked_bytes)
    }
}

/// Whether an object can be had in time, told when it is first seen and, if
/// nothing could be said then, once something can.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Admission {
    /// The object.
    pub number: u64,
    /// Its deadline.
    pub deadline: Instant,
    /// When it is there at the latest, with the wanted confidence, if every path
    /// carries it from now on; `None` while too little is known of the paths.
    pub best: Option<Instant>,
}

impl Admission {
    /// Can the deadline be met? `None` while too little is known.
    pub fn can_be_met(&self) -> Option<bool> {
        self.best.map(|best| best <= self.deadline)
    }
}
