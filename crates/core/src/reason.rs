//! Why something is believed, decided, or not as wanted.

use alloc::string::String;
use alloc::vec::Vec;

/// The reason for a belief or a decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reason {
    /// The rule that applied, e.g. `threshold.leave`.
    pub rule: &'static str,
    /// A sentence with the figures.
    pub text: String,
    /// The figures by name, with the unit as suffix.
    pub inputs: Vec<(&'static str, f64)>,
}

impl Reason {
    /// A reason without figures.
    pub fn plain(rule: &'static str, text: impl Into<String>) -> Reason {
        Reason { rule, text: text.into(), inputs: Vec::new() }
    }
}
