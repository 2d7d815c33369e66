//! The tunnel as an actuator: it carries its packets over the wanted paths.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Actuator, Command, Event, Output, Verdict, Wanted, sentences};
use crate::path::{PathId, PathState};
use crate::time::Instant;

/// The wanted states of a tunnel's paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steering {
    /// The state of each path.
    pub states: Vec<PathState>,
    /// The paths, the most preferred first; empty: the user's preference applies.
    pub order: Vec<PathId>,
    /// The reason for each path's state, one sentence; empty until a decision.
    pub reasons: Vec<String>,
}

/// Steers one tunnel: a command whenever states or order change.
#[derive(Debug)]
pub struct TunnelPaths {
    steering: Steering,
    /// Whether the tunnel has not been steered so yet.
    is_due: bool,
}

impl TunnelPaths {
    /// Steers a tunnel over that many paths, all closed until the first decision.
    pub fn new(paths: usize) -> TunnelPaths {
        let states = alloc::vec![PathState::Closed; paths];
        TunnelPaths { is_due: paths > 0, steering: Steering { states, ..Steering::default() } }
    }
}

impl Actuator for TunnelPaths {
    fn apply(&mut self, _now: Instant, wanted: &Wanted, verdicts: &[Verdict]) {
        self.is_due |= self.steering.states != wanted.states() || self.steering.order != wanted.order();
        let (states, order) = (wanted.states().to_vec(), wanted.order().to_vec());
        self.steering = Steering { states, order, reasons: sentences(verdicts) };
    }

    fn handle(&mut self, _now: Instant, event: &Event) {
        self.is_due |= matches!(event, Event::TunnelStarted) && !self.steering.states.is_empty();
    }

    fn poll(&mut self, _now: Instant) -> Option<Output> {
        let due = core::mem::replace(&mut self.is_due, false);
        due.then(|| Output::Command(Command::Tunnel(self.steering.clone())))
    }
}
