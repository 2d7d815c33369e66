//! Beliefs in, wanted state of each path out.
//!
//! An allocator sees all paths and the user's demand, and no sample. What it
//! wants is carried out by an actuator that knows no strategy.

use crate::path::PathState;
use alloc::format;
use alloc::vec::Vec;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::assess::throughput::History;
use crate::assess::{Belief, Reason};
use crate::demand::{Admission, Demand};
use crate::time::Instant;

pub mod aggregate;
pub mod backup;
pub mod deadline;
pub mod mp_dpa;

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

/// What an allocator is told of a path.
#[derive(Clone, Copy, Debug)]
pub struct PathInput {
    /// What is believed of it.
    pub belief: Belief,
    /// What was wanted of it until now.
    pub was: PathState,
    /// Place in the user's order of preference, 0 first.
    pub rank: u8,
}

/// What a path can contribute to a demand.
#[derive(Clone, Copy, Debug)]
pub struct PathSupply<'a> {
    /// What every allocator is told of it.
    pub view: PathInput,
    /// What it has been seen to carry, if that is measured.
    pub history: Option<&'a History>,
}

/// Decides over all paths; the answer has one state for each view.
pub trait Allocator {
    /// The wanted states, in the order of `paths`.
    fn allocate(&mut self, paths: &[PathInput]) -> Vec<PathState>;

    /// Takes the demand and what each path can contribute; a reason if the
    /// states are to be [allocated](Self::allocate) anew.
    fn meet(&mut self, _now: Instant, _demand: &Demand, _paths: &[PathSupply]) -> Option<Reason> {
        None
    }

    /// The next judgement of an object that is new in the demand.
    fn poll_admission(&mut self) -> Option<Admission> {
        None
    }

    /// Most bytes that a sender may have written and not acknowledged; `None`:
    /// as many as its send buffer takes.
    fn backlog_bytes(&self) -> Option<u64> {
        None
    }
}

/// The paths marked in `on` carry as far as they are good; the other good ones
/// stand by; when no path that is on is good, the most preferred good one
/// carries.
fn chosen(paths: &[PathInput], on: &[bool]) -> Vec<PathState> {
    let good = |path: &PathInput| path.belief == Belief::Good;
    let Some(first) = paths.iter().filter(|path| good(path)).map(|path| path.rank).min() else {
        return last_resort(paths);
    };
    let is_on = |place: usize| on.get(place).copied().unwrap_or(false);
    let some = paths.iter().enumerate().any(|(place, path)| good(path) && is_on(place));
    let state = |(place, path): (usize, &PathInput)| match good(path) {
        true if is_on(place) || (!some && path.rank == first) => PathState::Active,
        true => PathState::Backup,
        false => keep_open(path),
    };
    paths.iter().enumerate().map(state).collect()
}

/// A parameter from `low` to `high`.
fn number<'de, D: Deserializer<'de>>(from: D, low: f64, high: f64) -> Result<f64, D::Error> {
    let number = f64::deserialize(from)?;
    if (low..=high).contains(&number) {
        return Ok(number);
    }
    Err(D::Error::custom(format!("{number} is outside {low} to {high}; choose a number inside")))
}

/// A time from 0 to an hour, in ms.
fn millis<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    number(from, 0.0, 3.6e6)
}

/// A part of a whole, 0 to 1.
fn share<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    number(from, 0.0, 1.0)
}

/// The best that can be had when no path is good: those that fade, else those
/// of which nothing is known, else all, since an attempt costs nothing then.
fn last_resort(paths: &[PathInput]) -> Vec<PathState> {
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
fn keep_open(path: &PathInput) -> PathState {
    match (path.belief, path.was) {
        (Belief::Stalled, _) | (Belief::Lost, PathState::Active) => PathState::Closed,
        (_, was) => was.min(PathState::Backup),
    }
}
