//! A packet scheduler as an actuator: which paths it uses, and in which order. The tunnel
//! has one; Linux has no hook for the one of MPTCP, the simulator has.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Actuator, Command, Event, Output, Verdict, Wanted};
use crate::path::PathState;
use crate::time::Instant;
use crate::wanted::Order;

/// The paths that a packet scheduler is to use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steering {
    /// The state of each path.
    pub states: Vec<PathState>,
    /// Their order.
    pub order: Order,
    /// The reason for each path's state, one sentence; empty until a decision.
    pub reasons: Vec<String>,
}

/// Steers one packet scheduler: a command whenever states or order change.
#[derive(Debug)]
pub struct PacketScheduler {
    steering: Steering,
    /// Whether a command is due.
    is_due: bool,
}

impl PacketScheduler {
    /// A scheduler over that many paths, all closed until the first decision.
    pub fn new(paths: usize) -> PacketScheduler {
        let states = alloc::vec![PathState::Closed; paths];
        PacketScheduler { is_due: paths > 0, steering: Steering { states, ..Steering::default() } }
    }
}

impl Actuator for PacketScheduler {
    fn apply(&mut self, wanted: &Wanted, verdicts: &[Verdict]) {
        self.is_due |= self.steering.states != wanted.states() || self.steering.order != *wanted.order();
        let reasons = verdicts.iter().map(|verdict| verdict.reason.text()).collect();
        let (states, order) = (wanted.states().to_vec(), wanted.order().clone());
        self.steering = Steering { states, order, reasons };
    }

    fn handle(&mut self, _now: Instant, event: &Event) {
        self.is_due |= matches!(event, Event::TunnelStarted) && !self.steering.states.is_empty();
    }

    fn poll(&mut self, _now: Instant) -> Option<Output> {
        let due = core::mem::replace(&mut self.is_due, false);
        due.then(|| Output::Command(Command::Steer(self.steering.clone())))
    }
}
