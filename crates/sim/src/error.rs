//! Errors in a scenario, or in a file that it names.

/// An error, with its location and remedy. Displays as one sentence:
/// `while reading drive.toml, line 7: …; …`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("while reading {file}{}: {what}; {remedy}", line.map_or(String::new(), |line| format!(", line {line}")))]
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
