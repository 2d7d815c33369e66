//! Objects with deadlines.

use crate::time::Instant;

/// Maximum number of objects of a demand that are considered; later ones wait until
/// earlier ones are complete.
pub const MAX_OBJECTS: usize = 64;

/// An object with a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its identifier, constant while it is open.
    pub number: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes acknowledged by the peer.
    pub acked_bytes: u64,
    /// When the sender submitted it.
    pub start: Instant,
    /// When its last byte must have arrived at the peer.
    pub deadline: Instant,
}

impl Object {
    /// Bytes not acknowledged.
    pub fn remaining_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.acked_bytes)
    }
}

/// The prediction whether an object meets its deadline. It is issued when the object
/// first appears and, if no path was known then, again once a prediction is possible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Admission {
    /// The object.
    pub number: u64,
    /// Its deadline.
    pub deadline: Instant,
    /// Predicted completion, with the wanted confidence, if every path carries it from
    /// now on; `None` while too little is known of the paths.
    pub best: Option<Instant>,
    /// Expected completion: at the rates observed, if the expensive paths carry only what the cheapest one cannot; `None` with
    /// `best`.
    pub expected: Option<Instant>,
}

impl Admission {
    /// Whether the deadline can be met; `None` while too little is known.
    pub fn can_be_met(&self) -> Option<bool> {
        self.best.map(|best| best <= self.deadline)
    }
}
