//! Lines of the demand socket, and an agent's replies to them.

use crosslane::control::protocol;

/// Reads one stream, split into parts whose size is its first byte.
pub fn run(bytes: &[u8]) {
    let Some((part, stream)) = bytes.split_first() else { return };
    protocol::read_anything(stream, usize::from(*part) + 1);
}
