//! Metrics of the changes of the active paths.

use std::collections::BTreeMap;

use crosslane_core::path::{PathId, PathState};

use super::{Run, messages};
use crate::record::rows::{DecisionRow, MessageRow};

/// Decisions within this time belong to one change.
const ONE_CHANGE_NS: u64 = 1_000_000;
/// Messages within this time before or after a handover belong to it.
const NEAR_HANDOVER_NS: u64 = 1_000_000_000;

/// Times after `start_ns` at which the set of active paths changed.
pub(super) fn times_ns(decisions: &[DecisionRow], start_ns: u64) -> Vec<u64> {
    let mut active: BTreeMap<PathId, bool> = BTreeMap::new();
    let mut changes: Vec<u64> = Vec::new();
    for decision in decisions {
        let now = decision.state == PathState::Active;
        let was = active.insert(decision.path, now).unwrap_or(false);
        let apart = changes.last().is_none_or(|&last| decision.t_ns >= last + ONE_CHANGE_NS);
        if was != now && apart && decision.t_ns > start_ns {
            changes.push(decision.t_ns);
        }
    }
    changes
}

/// Worst delay of the messages near a handover. Without an agent the time of the
/// kernel's path change is unknown; it is after the crossing.
pub(super) fn delay_ms(run: &Run) -> Option<f64> {
    let near = |at_ns: u64, sent_ns: u64| sent_ns.abs_diff(at_ns) < NEAR_HANDOVER_NS;
    let counts = |message: &&MessageRow| match (&*run.handovers_ns, run.context.crossing_ns) {
        ([], crossing) => crossing.is_some_and(|at_ns| message.sent_ns + NEAR_HANDOVER_NS >= at_ns),
        (handovers_ns, _) => handovers_ns.iter().any(|&at_ns| near(at_ns, message.sent_ns)),
    };
    let delays = run.awaited.iter().filter(counts).map(|message| messages::delay_ms(message, run.context.end_ns));
    delays.max_by(f64::total_cmp)
}
