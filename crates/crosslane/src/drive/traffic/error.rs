//! Why the traffic of a drive failed.

use std::io;

use crate::error::Error;

/// The error.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The plan is invalid.
    #[error("while planning the traffic: {0}")]
    Plan(String),
    /// A system call failed.
    #[error("while {attempt}: {cause}; {remedy}")]
    System {
        /// The attempt.
        attempt: String,
        /// The system's error.
        cause: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// A datagram differs from the one sent.
    #[error("while checking received data: datagram of {length} bytes: {what}; report this, since UDP has checksums")]
    Damaged {
        /// Bytes received.
        length: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The stream differs from the one sent.
    #[error(
        "while checking received data: {what} at byte {offset} of the stream; report this, since TCP must prevent it"
    )]
    Corrupt {
        /// Offset in the stream.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
}

impl From<TrafficError> for Error {
    fn from(cause: TrafficError) -> Error {
        Error::message(cause.to_string(), 1)
    }
}

/// Turns an error of the system into a [`TrafficError`].
pub fn system(attempt: impl Into<String>, remedy: &'static str) -> impl FnOnce(io::Error) -> TrafficError {
    let attempt = attempt.into();
    move |cause| TrafficError::System { attempt, cause, remedy }
}
