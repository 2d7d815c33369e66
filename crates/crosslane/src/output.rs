//! Standard output.

use std::io::{ErrorKind, Write, stdout};

use crate::error::{Error, Result};

/// Prints what came out; `attempt` says what is being printed. A reader that
/// has seen enough (`| head`) is no failure.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(attempt: &str, text: impl AsRef<[u8]>) -> Result<()> {
    let mut stdout = stdout().lock();
    match stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()) {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => Err(Error::failure(attempt, cause)),
        _ => Ok(()),
    }
}
