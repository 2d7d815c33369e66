//! Beliefs in, wanted state of each path out.
//!
//! An allocator sees all paths and the user's demand, and no sample. What it
//! wants is carried out by an actuator that knows no strategy.

use alloc::vec::Vec;
use serde::Deserialize;

use crate::assess::Belief;

pub mod every_good;
pub mod standby;

/// What is wanted of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathState {
    /// No subflow over it.
    Closed,
    /// A subflow that carries nothing while an active one lives.
    Backup,
    /// A subflow that carries data.
    Active,
}

impl PathState {
    /// The name in records and logs.
    pub fn name(self) -> &'static str {
        match self {
            PathState::Closed => "closed",
            PathState::Backup => "backup",
            PathState::Active => "active",
        }
    }
}

/// How the paths are to be used together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Data over every good path at once.
    #[default]
    Aggregate,
    /// Data over the most preferred good path, the others held ready.
    Backup,
}

/// What becomes of the subflow on a path that fades.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weak {
    /// It becomes a backup.
    #[default]
    Demote,
    /// It is closed.
    Remove,
}

/// What an allocator is told of a path.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// What is believed of it.
    pub belief: Belief,
    /// What was wanted of it until now.
    pub was: PathState,
    /// Place in the user's order of preference, 0 first.
    pub rank: u8,
}

/// Decides over all paths; the answer has one state for each view.
pub trait Allocator {
    /// The wanted states, in the order of `paths`.
    fn allocate(&mut self, paths: &[View]) -> Vec<PathState>;
}

/// The best that can be had when no path is good: those that fade, else those
/// of which nothing is known, else all, since an attempt costs nothing then.
fn last_resort(paths: &[View]) -> Vec<PathState> {
    let best =
        [Belief::Fading, Belief::Unknown].into_iter().find(|wanted| paths.iter().any(|path| path.belief == *wanted));
    paths
        .iter()
        .map(|path| match best {
            Some(best) if path.belief != best => PathState::Closed.max(keep_open(path)),
            _ => PathState::Active,
        })
        .collect()
}

/// What a path that is not to carry keeps: its subflow as a backup, unless data
/// may be caught on it. Closing a subflow makes the kernel send again all that
/// is under way on the whole connection, so an idle one is better left.
fn keep_open(path: &View) -> PathState {
    match (path.belief, path.was) {
        (Belief::Stuck, _) | (Belief::Lost, PathState::Active) => PathState::Closed,
        (_, was) => was.min(PathState::Backup),
    }
}
