//! Text that a user names: it may be of any size, or no file at all.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Largest file that is read, in bytes; the largest public recording has 2.2 MB.
const MAX_BYTES: u64 = 64 << 20;

/// Reads a file of at most 64 MiB of UTF-8. Its size is not asked for
/// beforehand, since devices and pipes tell none.
///
/// # Errors
/// It cannot be read, is too large, or is no text.
pub fn read(file: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    File::open(file)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("it has more than {} MiB", MAX_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "it is no text in UTF-8"))
}
