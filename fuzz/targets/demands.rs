//! Lines of programs that say what is due by when, and what an agent says to them.

use crosslane::control::demand;

/// Reads one stream, cut as its first byte says.
pub fn run(bytes: &[u8]) {
    let Some((part, stream)) = bytes.split_first() else { return };
    demand::read_anything(stream, usize::from(*part) + 1);
}
