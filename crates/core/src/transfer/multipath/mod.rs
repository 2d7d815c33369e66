//! Transfer of objects with deadlines over several TCP connections, one a path.
//!
//! An object is a row of pieces. A [sender](sender::Sender) gives each piece to the path that is to carry
//! it: the plan is that of strategy `deadline` (`allocate::deadline`), and a path has a small backlog, so
//! that a decision takes hold soon. A piece that is late on one path is sent over another too. A
//! [receiver](receiver::Receiver) takes the copy that arrives first, so no path waits for another. Of an
//! object that may have been sent before, it reports which pieces it has, and only the others are sent. Both
//! know only lengths; the driver has the bytes, reads files and computes digests. [`frame`] is the wire
//! format, shown in `docs/reference/transfer-wire.md`.

pub mod frame;
pub mod ranges;
pub mod receiver;
pub mod sender;

use crate::time::Duration;
use ranges::Ranges;

/// Length of a piece, except the last one of an object, in bytes: 16 ms at 8 Mbit/s.
pub const PIECE_BYTES: u64 = 16_384;
/// Interval at which a sender reads acknowledgements and statistics, of the program and of the simulator.
pub const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The same while it has nothing to send.
pub const IDLE_INTERVAL: Duration = Duration::from_millis(50);
/// An attempt to connect ends after this time.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two attempts.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of paths of a transfer.
pub const MAX_PATHS: usize = 8;
/// Maximum size of an object, in bytes: pieces are numbered by 32 bits.
pub const MAX_OBJECT_BYTES: u64 = PIECE_BYTES * (u32::MAX as u64);

/// A larger object is resumed: the receiver keeps a state of it. At most this much of a smaller one is lost.
const RESUMABLE_BYTES: u64 = 1 << 20;

/// Whether an object of this size, last modified at this time (in ns since 1970; 0: not known), can be resumed.
pub fn is_resumable(size_bytes: u64, modified_ns: u64) -> bool {
    size_bytes > RESUMABLE_BYTES && modified_ns > 0
}

/// Number of pieces of an object of this size; an empty object has one empty piece.
pub fn pieces(size_bytes: u64) -> u32 {
    u32::try_from(size_bytes.div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX).max(1)
}

/// Number of bytes of these pieces of an object of this size.
pub fn bytes(size_bytes: u64, pieces: &Ranges) -> u64 {
    let offset = |index| size_bytes.min(u64::from(index) * PIECE_BYTES);
    pieces.iter().map(|range| offset(range.end) - offset(range.start)).sum()
}

/// Offset and length of a piece in an object of this size.
pub fn extent(size_bytes: u64, piece: u32) -> (u64, u32) {
    let offset = u64::from(piece) * PIECE_BYTES;
    (offset, size_bytes.saturating_sub(offset).min(PIECE_BYTES) as u32)
}
