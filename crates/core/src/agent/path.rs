//! One path of an agent: its assessors, what they believe, and what is wanted of it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Output;
use super::changes::{Changed, Changes};
use crate::allocate::{Latest, PathInput, PathSupply};
use crate::assess::{Assessor, Belief};
use crate::path::{PathId, PathSpec, PathState, Rat};
use crate::reason::Reason;
use crate::time::Instant;
use crate::volume::Volume;

/// What the agent reports: its outputs, and the last changes.
#[derive(Default)]
pub(super) struct Reports {
    pub(super) outputs: VecDeque<Output>,
    pub(super) changes: Changes,
}

#[derive(Default)]
pub(super) struct Path {
    pub(super) name: Arc<str>,
    pub(super) rat: Rat,
    pub(super) rank: u8,
    pub(super) radio: Option<u8>,
    pub(super) unit_cost: Option<f64>,
    pub(super) assessors: Vec<Box<dyn Assessor + Send>>,
    /// The assessor that measures the throughput, if any.
    pub(super) measures: Option<usize>,
    pub(super) belief: Belief,
    pub(super) reason: Reason,
    /// When the belief changed.
    pub(super) believed: Instant,
    pub(super) state: PathState,
    pub(super) state_reason: Reason,
    /// When the state changed.
    pub(super) decided: Instant,
    pub(super) latest: Latest,
    pub(super) removed: bool,
    pub(super) volume: Volume,
    pub(super) volume_reason: Reason,
}

/// The reason for a state: the belief about the path itself, or about the path that
/// changed.
pub(super) fn reason_for(paths: &[Path], place: usize, changed: usize) -> Reason {
    let cause = &paths[changed];
    if place == changed { cause.reason.clone() } else { cause.reason.about(&cause.name, cause.belief.name()) }
}

/// Whether a path is over a radio that several can share, and none beyond it can carry.
pub(super) fn is_only_network(paths: &[Path], path: PathId) -> bool {
    let Some(radio) = paths.get(usize::from(path.0)).and_then(|path| path.radio) else { return false };
    let is_beyond = |other: &&Path| other.radio != Some(radio) && !other.is_barred();
    !paths.iter().filter(is_beyond).any(|other| !matches!(other.belief, Belief::Unknown | Belief::Lost))
}

impl Path {
    pub(super) fn new(spec: &PathSpec, rank: u8, assessors: Vec<Box<dyn Assessor + Send>>) -> Path {
        let measures = assessors.iter().position(|assessor| assessor.history().is_some());
        let name = spec.name.as_str().into();
        Path { name, rat: spec.rat, rank, radio: spec.radio, assessors, measures, ..Path::default() }
    }

    /// Takes over the belief of one of its assessors.
    pub(super) fn believe(&mut self, now: Instant, path: PathId, (belief, of): (Belief, usize), to: &mut Reports) {
        let reason = self.assessors[of].belief().1.clone();
        (self.belief, self.reason, self.believed) = (belief, reason.clone(), now);
        to.changes.push(now, path, Changed::Belief(belief), &reason);
        to.outputs.push_back(Output::Belief { path, belief, reason });
    }

    pub(super) fn decide(&mut self, now: Instant, path: PathId, state: PathState, reason: Reason, to: &mut Reports) {
        let was = core::mem::replace(&mut self.state, state);
        (self.state_reason, self.decided) = (reason.clone(), now);
        to.changes.push(now, path, Changed::State(state), &reason);
        to.outputs.push_back(Output::Decision { path, state, was, reason });
    }

    /// Whether it is closed whatever the allocator wants.
    pub(super) fn is_barred(&self) -> bool {
        self.removed || self.volume == Volume::Exhausted
    }

    /// The belief on which the allocator decides. A path of which little volume is left is like
    /// one that fades, for as long as it lasts.
    fn effective_belief(&self) -> Belief {
        match (self.volume, self.belief) {
            (Volume::Scarce, Belief::Good) => Belief::Fading,
            (Volume::Exhausted, _) => Belief::Lost,
            (_, belief) => belief,
        }
    }

    pub(super) fn input(&self) -> PathInput {
        PathInput { belief: self.effective_belief(), was: self.state, rank: self.rank, radio: self.radio }
    }

    pub(super) fn supply(&self) -> PathSupply<'_> {
        let history = self.measures.and_then(|place| self.assessors.get(place)?.history());
        PathSupply { input: self.input(), rat: self.rat, unit_cost: self.unit_cost, history, latest: &self.latest }
    }
}
