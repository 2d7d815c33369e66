//! Failure as the user meets it: one sentence that names the attempt, the
//! cause and the remedy.

use std::fmt;

/// A failure to be told once, at the edge.
#[derive(Debug)]
pub struct Error {
    attempt: String,
    cause: String,
    remedy: Option<String>,
    exit_code: u8,
}

/// The result of what may fail in front of the user.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the user gave cannot be used (exit code 2).
    pub fn usage(attempt: impl Into<String>, cause: impl ToString, remedy: impl Into<String>) -> Error {
        Error { attempt: attempt.into(), cause: cause.to_string(), remedy: Some(remedy.into()), exit_code: 2 }
    }

    /// Something did not work (exit code 1).
    pub fn failure(attempt: impl Into<String>, cause: impl ToString) -> Error {
        Error { attempt: attempt.into(), cause: cause.to_string(), remedy: None, exit_code: 1 }
    }

    /// The same, with what the user can do about it.
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Error {
        self.remedy = Some(remedy.into());
        self
    }

    /// The same, with another exit code.
    pub fn with_exit_code(mut self, exit_code: u8) -> Error {
        self.exit_code = exit_code;
        self
    }

    /// A sentence that another process of ours has already formed.
    pub fn told(sentence: impl Into<String>, exit_code: u8) -> Error {
        Error { attempt: String::new(), cause: sentence.into(), remedy: None, exit_code }
    }

    /// The exit code: 2 for what the user can mend in the call or a file, 128 plus
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
