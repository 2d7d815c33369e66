//! Reads text files given by the user, which can have any size or type.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Size limit of a file, in bytes; the largest public recording has 2.2 MB.
pub const MAX_BYTES: u64 = 64 << 20;

/// Opens a regular file; a pipe without a writer would block the program.
///
/// # Errors
/// It cannot be opened, or is another kind of file.
pub fn open_regular(file: &Path) -> Result<File> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file)?;
    if opened.metadata()?.is_file() { Ok(opened) } else { Err(Error::other("it is no regular file")) }
}

/// The same as [`read`] of a regular file.
///
/// # Errors
/// As [`open_regular`] and [`read`].
pub fn read_regular(file: &Path) -> Result<String> {
    text_of(open_regular(file)?)
}

/// Reads a UTF-8 file of at most 64 MiB. The limit is applied while reading,
/// since devices and pipes have no size.
///
/// # Errors
/// It cannot be read, is too large, or is not UTF-8.
pub fn read(file: &Path) -> Result<String> {
    text_of(File::open(file)?)
}

/// The bytes of a regular file of at most 64 MiB.
///
/// # Errors
/// As [`open_regular`], or it cannot be read, or is too large.
pub fn bytes_of_regular(file: &Path) -> Result<Vec<u8>> {
    bytes_of(open_regular(file)?)
}

fn bytes_of(file: File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("it has more than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(bytes)
}

fn text_of(file: File) -> Result<String> {
    String::from_utf8(bytes_of(file)?).map_err(|fault| {
        let before = fault.as_bytes().iter().take(fault.utf8_error().valid_up_to());
        let line = 1 + before.filter(|&&byte| byte == b'\n').count();
        Error::new(ErrorKind::InvalidData, format!("it is not UTF-8 text, first in line {line}"))
    })
}

/// Reads the configuration of an agent or a controller.
///
/// # Errors
/// As [`read`], with the name of the file.
pub fn read_configuration(file: &Path) -> crate::error::Result<String> {
    read(file).map_err(|cause| {
        let attempt = format!("reading configuration {}", file.display());
        crate::error::Error::usage(attempt, cause, "name a file that exists and can be read")
    })
}
