//! A failure as reported to the user: one sentence with the attempt, the cause
//! and the remedy.

use std::fmt;

/// Maximum length of a number that is written out: a file's size in bytes fits.
const MAX_DIGITS: usize = 24;

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

    /// Adds a remedy for the user, after the one that there is.
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Error {
        let remedy = remedy.into();
        self.remedy = Some(self.remedy.map_or(remedy.clone(), |first| format!("{first}; {remedy}")));
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
        f.write_str(&with_short_numbers(&self.cause))?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// The text with its very long numbers, as of a value 1e300, in scientific notation.
pub fn with_short_numbers(text: &str) -> String {
    let (mut short, mut rest) = (String::new(), text);
    while let Some((before, from)) = rest.find(|c: char| c.is_ascii_digit()).map(|at| rest.split_at(at)) {
        let end = from.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(from.len());
        let (number, after) = from.split_at(end);
        let is_word = before.ends_with(char::is_alphanumeric) || after.starts_with(char::is_alphanumeric);
        let value = number.parse::<f64>().ok().filter(|_| number.len() > MAX_DIGITS && !is_word);
        short.push_str(before);
        short.push_str(&value.map_or_else(|| number.to_owned(), |value| format!("{value:e}")));
        rest = after;
    }
    short + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_very_long_numbers_are_in_scientific_notation() {
        let (large, small) = (format!("-{} s", 1e300), format!("[{}]", 2.5e-300));
        assert_eq!([large, small].map(|text| with_short_numbers(&text)), ["-1e300 s", "[2.5e-300]"]);
        let digest = "f0000000000000000000000000001 00000000000000000000000001f";
        for text in ["18446744073709551615", "10.0.0.1:80, 0.1 and 7.", digest, ""] {
            assert_eq!(with_short_numbers(text), text);
        }
    }
}
