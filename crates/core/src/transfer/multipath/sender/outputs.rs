//! What the sender reports to its driver.

use crate::path::PathState;
use crate::reason::Reason;
use crate::transfer::Abandoned;

/// What to write to the connection of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// The offer of an object, before its first piece on this connection.
    Offer {
        /// The object.
        number: u32,
    },
    /// A piece.
    Piece {
        /// The object.
        number: u32,
        /// Its place in the object, from 0 on.
        index: u32,
        /// Offset of its bytes in the object.
        offset: u64,
        /// Number of bytes, up to [`PIECE_BYTES`](crate::transfer::multipath::PIECE_BYTES).
        length: u32,
    },
    /// The digest of an object whose pieces are all there or in flight.
    End {
        /// The object.
        number: u32,
    },
    /// The object's abandonment.
    Abandon {
        /// The object.
        number: u32,
        /// The reason.
        why: Abandoned,
    },
}

/// What a path has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes of pieces that the receiver has read from it.
    pub bytes: u64,
    /// Of these, bytes that it had already.
    pub duplicate_bytes: u64,
}

/// Another state of a path, by the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The path's place in the preference.
    pub path: usize,
    /// The new state: it carries if active.
    pub state: PathState,
    /// The previous state.
    pub was: PathState,
    /// The reason.
    pub reason: Reason,
}
