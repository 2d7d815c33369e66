//! Faults of a recording: position, cause and remedy.

use std::fmt;

use thiserror::Error as ThisError;

use crate::error::Error;

/// A recording that cannot become a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportError {
    /// Name of the recording, as given by the caller.
    pub file: String,
    /// The faulty line, from 1; `None`: the whole file.
    pub line: Option<u64>,
    /// The fault.
    pub fault: Fault,
}

/// A fault of a recording.
#[derive(Debug, Clone, PartialEq, ThisError)]
pub enum Fault {
    /// The bytes are not text.
    #[error("it is not a text file")]
    Binary,
    /// The pointer that Git LFS leaves if large files were not fetched.
    #[error("it is a Git LFS pointer, not the recording")]
    LfsPointer,
    /// It has more than [`MAX_BYTES`](super::MAX_BYTES).
    #[error("it is larger than {} MiB", super::MAX_BYTES >> 20)]
    TooLarge,
    /// It has no header.
    #[error("it is empty")]
    Empty,
    /// The header lacks a column.
    #[error("it has no column `{column}`")]
    MissingColumn {
        /// Its name, or names of which one is needed.
        column: String,
    },
    /// A line has more or fewer cells than the header.
    #[error("{found} columns where the header has {expected}")]
    ColumnCount {
        /// Columns of the header.
        expected: u64,
        /// Columns of the line.
        found: u64,
    },
    /// A cell has an invalid value.
    #[error("`{cell}` in column `{column}` is not {wanted}")]
    Cell {
        /// The column.
        column: String,
        /// The cell's text (at most 40 characters).
        cell: String,
        /// The expected value.
        wanted: String,
    },
    /// A sample is not later than the one before it.
    #[error("time does not increase: {before_s} s before, {now_s} s here")]
    TimeBackwards {
        /// Unix time of the sample before, in s.
        before_s: f64,
        /// Unix time of this sample, in s.
        now_s: f64,
    },
    /// It is longer than a trace can be ([`MAX_S`](super::trace::MAX_S)).
    #[error("its last sample is {last_s} s after its beginning, but a trace lasts at most 1000000 s")]
    TooLong {
        /// Time of the last sample, in s.
        last_s: f64,
    },
    /// The access point sent nothing in this recording.
    #[error("it has no access point `{ap}`")]
    NoSuchAccessPoint {
        /// The access point asked for.
        ap: String,
        /// The access points of the recording, in order (at most 16).
        known: Vec<String>,
    },
    /// One access point served several clients at the same time.
    #[error("access point `{ap}` has sent to {} and to {}", .clients[0], .clients[1])]
    SeveralClients {
        /// The access point.
        ap: String,
        /// Two of the clients.
        clients: [String; 2],
    },
    /// It contains no measurement.
    #[error("it contains no sample of {of}")]
    NoSamples {
        /// The source of the samples.
        of: String,
    },
    /// The cut is outside the recording.
    #[error("it covers 0 to {end_s} s, not {from_s} to {to_s} s")]
    CutOutside {
        /// Begin of the cut, in s.
        from_s: f64,
        /// End of the cut, in s.
        to_s: f64,
        /// Time of the last sample, in s.
        end_s: f64,
    },
}

/// A name that refers to no part of a recording.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error(
    "`{given}` is not a part of a recording; write pam2025:att, pam2025:verizon or feup:AP (as feup:ap2), with @SECONDS to begin later"
)]
pub struct UnknownSource {
    /// The given name.
    pub given: String,
}

/// A fault with its line, without the file's name.
#[derive(Debug)]
pub(super) struct At {
    pub line: Option<u64>,
    pub fault: Fault,
}

impl Fault {
    pub(super) fn at(self, line: u64) -> At {
        At { line: Some(line), fault: self }
    }

    fn remedy(&self) -> String {
        match self {
            Fault::Binary => "unpack it and give the CSV file".into(),
            Fault::LfsPointer => "run `git lfs pull` in the data set's repository".into(),
            Fault::TooLarge | Fault::Empty | Fault::MissingColumn { .. } => {
                "give a file of the data set (docs/guide/real-data.md)".into()
            }
            Fault::ColumnCount { .. } | Fault::Cell { .. } => {
                "correct or remove the line, or fetch the file again".into()
            }
            Fault::TimeBackwards { .. } => "sort the lines by time and keep one line for each time".into(),
            Fault::TooLong { .. } => "correct the time of the lines at fault, or cut it with --to-s".into(),
            Fault::NoSuchAccessPoint { known, .. } => format!("choose one of {}", known.join(", ")),
            Fault::SeveralClients { .. } => "keep the lines of one client (column `receiverId`)".into(),
            Fault::NoSamples { .. } => "choose another recording".into(),
            Fault::CutOutside { .. } => "choose a beginning and a later end within it".into(),
        }
    }
}

impl From<Fault> for At {
    fn from(fault: Fault) -> At {
        At { line: None, fault }
    }
}

impl ImportError {
    fn attempt(&self) -> String {
        match self.line {
            Some(line) => format!("importing {}, line {line}", self.file),
            None => format!("importing {}", self.file),
        }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "while {}: {}; {}", self.attempt(), self.fault, self.fault.remedy())
    }
}

impl std::error::Error for ImportError {}

impl From<ImportError> for Error {
    fn from(error: ImportError) -> Error {
        Error::usage(error.attempt(), &error.fault, error.fault.remedy())
    }
}
