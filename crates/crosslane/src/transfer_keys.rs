//! The options by which `crosslane send` and `crosslane receive` choose keys, or none.

use crate::error::Error;

/// The value of `--encryption`: both ends must say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Clear {
    /// In the clear.
    None,
}

/// An option of the keys is missing.
pub fn missing(option: &str, what: &str) -> Error {
    let remedy =
        format!("add {option} ({what}, made by `crosslane keygen`), or --encryption none here and at the other end");
    Error::usage("reading the command line", format!("there is no {option}"), remedy)
}
