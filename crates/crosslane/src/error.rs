//! A failure as reported to the user: one sentence with the attempt, the cause
//! and the remedy.

use std::fmt;

/// A failure that the program prints once, when it exits.
#[derive(Debug)]
pub struct Error {
    attempt: String,
    cause: String,
    remedy: Option<String>,
    exit_code: u8,
}

/// The result of an operation whose failure is reported to the user.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The user's input cannot be used (exit code 2).
    pub fn usage(attempt: impl Into<String>, cause: impl ToString, remedy: impl Into<String>) -> Error {
        Error { attempt: attempt.into(), cause: cause.to_string(), remedy: Some(remedy.into()), exit_code: 2 }
    }

    /// An operation failed (exit code 1).
    pub fn failure(attempt: impl Into<String>, cause: impl ToString) -> Error {
        Error { attempt: attempt.into(), cause: cause.to_string(), remedy: None, exit_code: 1 }
    }

    /// Adds a remedy for the user.
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Error {
        self.remedy = Some(remedy.into());
        self
    }

    /// Sets another exit code.
    pub fn with_exit_code(mut self, exit_code: u8) -> Error {
        self.exit_code = exit_code;
        self
    }

    /// A complete error message, as from another process or crate.
    pub fn message(sentence: impl Into<String>, exit_code: u8) -> Error {
        Error { attempt: String::new(), cause: sentence.into(), remedy: None, exit_code }
    }

    /// A failure whose text is a complete error message (exit code 1).
    pub fn reported(cause: impl ToString) -> Error {
        Error::message(cause.to_string(), 1)
    }

    /// The exit code: 2 for what the user can correct in the call or a file, 128 plus
    /// the signal's number after an interrupt, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.attempt.is_empty() {
            write!(f, "while {}: ", self.attempt)?;
        }
        f.write_str(&self.cause)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
