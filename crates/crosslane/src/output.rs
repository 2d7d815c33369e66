//! Standard output.

use std::io::{ErrorKind, Write, stdout};

use crate::error::{Error, Result};

/// Prints `text`; `attempt` names it in an error. A closed pipe (`| head`) is
/// not an error.
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
