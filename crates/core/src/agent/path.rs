//! One path of an agent: its assessors, what they believe, and what is wanted of it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Output;
use crate::actuator::Verdict;
use crate::allocate::{Latest, PathInput, PathSupply};
use crate::assess::{Assessor, Belief, Reason};
use crate::path::{PathId, PathSpec, PathState};

#[derive(Default)]
pub(super) struct Path {
    pub(super) name: String,
    pub(super) rank: u8,
    pub(super) radio: Option<u8>,
    pub(super) assessors: Vec<Box<dyn Assessor + Send>>,
    pub(super) belief: Belief,
    pub(super) reason: Reason,
    pub(super) state: PathState,
    /// The reason for its state, one sentence.
    pub(super) state_reason: String,
    pub(super) latest: Latest,
    pub(super) removed: bool,
}

/// The reason for a state: the belief about the path itself, or about the path that
/// changed.
pub(super) fn reason_for(paths: &[Path], place: usize, changed: usize) -> Reason {
    let cause = &paths[changed];
    let mut reason = cause.reason.clone();
    if place != changed {
        reason.text = format!("{} is {}: {}", cause.name, cause.belief.name(), reason.text);
    }
    reason
}

impl Path {
    pub(super) fn new(spec: &PathSpec, rank: u8, assessors: Vec<Box<dyn Assessor + Send>>) -> Path {
        Path { name: spec.name.clone(), rank, radio: spec.radio, assessors, ..Path::default() }
    }

    pub(super) fn decide(&mut self, path: PathId, state: PathState, reason: Reason, outputs: &mut VecDeque<Output>) {
        let was = core::mem::replace(&mut self.state, state);
        self.state_reason.clone_from(&reason.text);
        outputs.push_back(Output::Decision { path, state, was, reason });
    }

    pub(super) fn verdict(&self) -> Verdict<'_> {
        Verdict { belief: self.belief, reason: &self.state_reason }
    }

    pub(super) fn input(&self) -> PathInput {
        PathInput { belief: self.belief, was: self.state, rank: self.rank, radio: self.radio }
    }

    pub(super) fn supply(&self) -> PathSupply<'_> {
        let history = self.assessors.iter().find_map(|assessor| assessor.history());
        PathSupply { input: self.input(), history, latest: &self.latest }
    }
}
