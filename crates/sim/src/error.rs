//! Errors in a scenario, or in a file that it names.

use std::fmt;

/// An error, with its location and remedy. Displays as one sentence:
/// `while reading drive.toml, line 7: …; …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// Name of the file, as the caller gave it.
    pub file: String,
    /// Line in the file, from 1; none if the error concerns the whole file.
    pub line: Option<usize>,
    /// The error.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

impl std::error::Error for ScenarioError {}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "while reading {}", self.file)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}; {}", self.what, self.remedy)
    }
}
