//! Why a tree does not say which path is to be first.

use alloc::format;

use super::features::Feature;
use super::name;
use super::tree::Fallback;
use crate::path::PathId;
use crate::reason::Reason;

/// Why the tree does not say which path is to be first.
pub(super) enum Undecided {
    /// Fewer than two paths are good: there is nothing to decide.
    NoChoice,
    /// The paths are not those that the tree is for.
    OtherPaths,
    Unknown(Feature, [PathId; 2]),
    Unsure(f64),
}

impl Undecided {
    /// The same in words, with what applies instead.
    pub(super) fn reason(&self, fallback: Fallback) -> Reason {
        let why = match self {
            Undecided::NoChoice => "fewer than two paths are good".into(),
            Undecided::OtherPaths => "the tree is for one Wi-Fi and one cellular path".into(),
            Undecided::Unknown(feature, [a, b]) => {
                format!(
                    "{} is unknown, stale or impossible, with a = path {} and b = path {}",
                    feature.name(),
                    a.0,
                    b.0
                )
            }
            Undecided::Unsure(lead) => format!("only {:.0} % of the training windows of its leaf agree", lead * 100.0),
        };
        let rule = match fallback {
            Fallback::UsersOrder => "the rule of `threshold`",
            Fallback::NoOrder => name(fallback),
        };
        Reason::plain("learned.rule", format!("{rule} applies, since {why}"))
    }
}
