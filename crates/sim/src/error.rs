//! What is wrong with a scenario, or with a file it names.

use std::fmt;

/// One fault, with its place and what to do. Displays as one sentence:
/// `while reading drive.toml, line 7: …; …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// Name of the file, as the caller gave it.
    pub file: String,
    /// Line in it, from 1; none if the fault is of the whole file.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: String,
    /// What to do.
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
