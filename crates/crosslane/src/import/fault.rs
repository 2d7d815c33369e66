//! Faults of a recording: position, cause and remedy.

use crate::error::Error;

/// Remedy for a file that is no recording.
pub(super) const GIVE_A_RECORDING: &str = "give a file of this format (docs/guide/real-data.md)";
/// Remedy for a line that cannot be read.
pub(super) const CORRECT_THE_LINE: &str = "correct or remove the line, or fetch the file again";

/// What is wrong with a recording; the file's name is added by [`Fault::of`].
#[derive(Debug)]
pub(super) struct Fault {
    /// The faulty line, from 1; `None`: the whole file.
    line: Option<u64>,
    cause: String,
    remedy: String,
}

impl Fault {
    pub fn new(cause: impl Into<String>, remedy: impl Into<String>) -> Fault {
        Fault { line: None, cause: cause.into(), remedy: remedy.into() }
    }

    pub fn at(self, line: u64) -> Fault {
        Fault { line: Some(line), ..self }
    }

    pub fn binary() -> Fault {
        Fault::new("it is not a text file", "unpack it and give the CSV file")
    }

    pub fn no_samples(of: &str) -> Fault {
        Fault::new(format!("it contains no sample of {of}"), "choose another recording")
    }

    /// A sample is not later than the one before it.
    pub fn time_backwards(before_ms: i64, now_ms: i64) -> Fault {
        let (before_s, now_s) = (before_ms as f64 / 1000.0, now_ms as f64 / 1000.0);
        let cause = format!("time does not increase: {before_s} s before, {now_s} s here");
        Fault::new(cause, "sort the lines by time and keep one line for each time")
    }

    /// The error for the user, with the name of the recording.
    pub fn of(self, file: &str) -> Error {
        let line = self.line.map_or(String::new(), |line| format!(", line {line}"));
        Error::usage(format!("importing {file}{line}"), self.cause, self.remedy)
    }
}
