//! What can be wrong with a recording: where, what, and what to do about it.

use std::fmt;

use thiserror::Error as ThisError;

use crate::error::Error;

/// A recording that cannot become a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportError {
    /// The recording, as the caller named it.
    pub file: String,
    /// The line at fault, from 1; none where it is the whole file.
    pub line: Option<u64>,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a recording.
#[derive(Debug, Clone, PartialEq, ThisError)]
pub enum Fault {
    /// Bytes that are no text.
    #[error("it is not a text file")]
    Binary,
    /// The stand-in that Git leaves where large files were not fetched.
    #[error("it is a Git LFS pointer, not the recording")]
    LfsPointer,
    /// More than [`MAX_BYTES`](super::MAX_BYTES).
    #[error("it is larger than {} MiB", super::MAX_BYTES >> 20)]
    TooLarge,
    /// No header.
    #[error("it is empty")]
    Empty,
    /// The header lacks a column.
    #[error("it has no column `{column}`")]
    MissingColumn {
        /// Its name, or names of which one is needed.
        column: String,
    },
    /// A line with more or fewer cells than the header.
    #[error("{found} columns where the header has {expected}")]
    ColumnCount {
        /// Columns of the header.
        expected: u64,
        /// Columns of the line.
        found: u64,
    },
    /// A cell that does not hold what its column should.
    #[error("`{cell}` in column `{column}` is not {wanted}")]
    Cell {
        /// The column.
        column: String,
        /// What stands there (at most 40 characters).
        cell: String,
        /// What should.
        wanted: String,
    },
    /// A sample no later than the one before it.
    #[error("time stands still or runs backwards, {before_s} s before and {now_s} s here")]
    TimeBackwards {
        /// Unix time of the sample before, in s.
        before_s: f64,
        /// Unix time of this sample, in s.
        now_s: f64,
    },
    /// Longer than a trace can be ([`LONGEST_S`](super::trace::LONGEST_S)).
    #[error("its last sample is {last_s} s after its beginning, and a trace lasts 1000000 s at most")]
    TooLong {
        /// Time of the last sample, in s.
        last_s: f64,
    },
    /// The named access point sent nothing in this recording.
    #[error("it has no access point `{ap}`")]
    NoSuchAccessPoint {
        /// The access point asked for.
        ap: String,
        /// Those there are, in order (at most 16).
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
    /// Nothing was measured.
    #[error("it holds no sample of {of}")]
    NoSamples {
        /// Of whom.
        of: String,
    },
    /// A cut outside the recording.
    #[error("it lasts from 0 to {end_s} s, which does not contain {from_s} to {to_s} s")]
    CutOutside {
        /// Begin of the cut, in s.
        from_s: f64,
        /// End of the cut, in s.
        to_s: f64,
        /// Time of the last sample, in s.
        end_s: f64,
    },
}

/// What names no part of a recording.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error(
    "`{given}` names no part of a recording; write pam2025:att, pam2025:verizon or feup:AP (as feup:ap2), with @SECONDS to begin later"
)]
pub struct UnknownSource {
    /// What was given.
    pub given: String,
}

/// A fault and its line, before the file's name is known.
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
                "give a file of the data set, as docs/real-data.md tells".into()
            }
            Fault::ColumnCount { .. } | Fault::Cell { .. } => {
                "correct or remove the line, or fetch the file again".into()
            }
            Fault::TimeBackwards { .. } => "sort the lines by time and keep one for each".into(),
            Fault::TooLong { .. } => "correct the time of the lines that are far off, or cut it with --to-s".into(),
            Fault::NoSuchAccessPoint { known, .. } => format!("choose one of {}", known.join(", ")),
            Fault::SeveralClients { .. } => "keep the lines of one client (column `receiverId`)".into(),
            Fault::NoSamples { .. } => "choose another recording".into(),
            Fault::CutOutside { .. } => "choose a beginning before the end, both within it".into(),
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
