//! Standard output, tables on it, messages on standard error, and files.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Write, stderr, stdout};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd;

use crate::error::{Error, Result};

/// Longest wait for the reader of a full pipe.
const READER_WAIT_MS: u16 = 10;

/// Prints `text`; `attempt` names it in an error. A closed pipe (`| head`) is
/// not an error.
pub fn print(attempt: &str, text: impl AsRef<[u8]>) -> Result<()> {
    print_more(attempt, text).map(drop)
}

/// The same; false if the reader is gone.
pub fn print_more(attempt: &str, text: impl AsRef<[u8]>) -> Result<bool> {
    let mut stdout = stdout().lock();
    match stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()) {
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(cause) => Err(Error::failure(attempt, cause)),
        Ok(()) => Ok(true),
    }
}

/// Prints a sentence for the user on standard error. What cannot be written (a full disk, a pipe that
/// is closed or not read) is lost.
pub fn message(sentence: impl Display) {
    drop(write_promptly(stderr(), format!("crosslane: {sentence}\n").as_bytes()));
}

/// Writes without waiting for a reader that does not read. The descriptor may be other programs' too, so it is not made
/// non-blocking.
///
/// # Errors
/// `WouldBlock`: nothing is written. Others: perhaps a part.
pub fn write_promptly(to: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    write_within(READER_WAIT_MS, to, bytes)
}

/// Prints a line as [`print`], but waits for a reader that does not read for this time at most; false: nothing is printed.
pub fn print_within(wait_ms: u16, attempt: &str, line: &str) -> Result<bool> {
    match write_within(wait_ms, stdout().lock(), line.as_bytes()) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => Ok(true),
        Err(cause) if cause.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(cause) => Err(Error::failure(attempt, cause)),
    }
}

fn write_within(wait_ms: u16, to: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        // A pipe that is ready has space for so much.
        let piece = &rest[..rest.len().min(libc::PIPE_BUF)];
        let ready = poll(&mut [PollFd::new(to.as_fd(), PollFlags::POLLOUT)], PollTimeout::from(wait_ms));
        let written = ready.and_then(|ready| if ready == 0 { Ok(0) } else { unistd::write(&to, piece) });
        match written {
            Ok(0) => {
                let kind = if rest.len() == bytes.len() { ErrorKind::WouldBlock } else { ErrorKind::TimedOut };
                return Err(io::Error::new(kind, "its reader does not read"));
            }
            Ok(written) => rest = &rest[written..],
            Err(Errno::EINTR) => {}
            Err(cause) => return Err(cause.into()),
        }
    }
    Ok(())
}

/// Waits this long; true, at once, if nothing reads our output any more (`| head`).
///
/// # Errors
/// The kernel rejects the wait; `attempt` names it.
pub fn is_reader_gone(attempt: &str, wait_ms: u16) -> Result<bool> {
    let stdout = stdout();
    let gone = poll(&mut [PollFd::new(stdout.as_fd(), PollFlags::empty())], PollTimeout::from(wait_ms));
    gone.map(|ready| ready > 0).map_err(|cause| Error::failure(attempt, cause))
}

/// Writes a file, or none if the disk is full: a part must not be taken for the whole.
///
/// # Errors
/// The file and the cause.
pub fn write(file: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    let failed = |remedy| move |cause| Error::failure(format!("writing {}", file.display()), cause).with_remedy(remedy);
    let mut created = File::create(file).map_err(failed("name a place that can be written with --out"))?;
    created.write_all(contents.as_ref()).map_err(|cause| {
        if file.is_file() {
            drop(std::fs::remove_file(file));
        }
        failed("free some space there or name another place with --out")(cause)
    })
}

/// Lines with aligned columns: those of `figures` to the right, the others to the left. All rows have as many cells
/// as the first.
pub fn table<T: AsRef<[String]>>(rows: &[T], figures: Range<usize>) -> String {
    let columns = rows.first().map_or(0, |row| row.as_ref().len());
    let width = |column: usize| rows.iter().map(|row| row.as_ref()[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &T| {
        let cells = row.as_ref().iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if figures.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
