//! The metrics of traffic with deadlines.

use std::collections::BTreeMap;

use crosslane_core::path::PathId;

use super::{PacketSums, percentile};
use crate::bounds::least_cost::Optimum;
use crate::record::rows::MessageRow;
use crate::scenario::Scenario;

/// Missed deadlines, write and completion times, cost and optimal cost; empty if
/// the traffic has no deadlines. Objects whose deadline is after the end of the
/// run do not count.
pub fn of_deadlines(
    scenario: &Scenario,
    objects: &[MessageRow],
    sums: &PacketSums,
    optimum: Option<&Optimum>,
) -> BTreeMap<String, f64> {
    let Some(rules) = scenario.traffic.kind.deadlines() else { return BTreeMap::new() };
    let end_ns = (scenario.duration_s * 1e9) as u64;
    let deadline_ns = (rules.deadline_s * 1e9) as u64;
    let due = || objects.iter().filter(|object| object.sent_ns + deadline_ns <= end_ns);
    let took_ns = |object: &MessageRow| object.received_ns.map(|at_ns| at_ns - object.sent_ns);
    let write_ns = |object: &MessageRow| object.written_ns.map(|at_ns| at_ns - object.sent_ns);
    let late = |took_ns: Option<u64>| took_ns.is_none_or(|took| took > deadline_ns);
    let missed = due().filter(|object| late(took_ns(object))).count();
    let unwritten = due().filter(|object| late(write_ns(object))).count();
    let sorted_s = |took_ns: &dyn Fn(&MessageRow) -> Option<u64>| {
        let mut took_s: Vec<f64> = due().filter_map(took_ns).map(|took| took as f64 / 1e9).collect();
        took_s.sort_by(f64::total_cmp);
        took_s
    };
    let (took_s, write_s) = (sorted_s(&took_ns), sorted_s(&write_ns));
    let mut found = BTreeMap::new();
    let mut put = |name: String, value: Option<f64>| {
        found.extend(value.filter(|value| value.is_finite()).map(|value| (name, value)));
    };
    put("deadline.missed_share".into(), Some(missed as f64 / due().count() as f64));
    put("object.completion_s.p50".into(), percentile(&took_s, 0.5));
    put("object.completion_s.max".into(), took_s.last().copied());
    put("deadline.unwritten_share".into(), Some(unwritten as f64 / due().count() as f64));
    put("object.written_s.p50".into(), percentile(&write_s, 0.5));
    put("object.written_s.max".into(), write_s.last().copied());
    let unit_costs = scenario.unit_costs();
    let cost = sums.delivered_payload_bytes().iter().zip(&unit_costs).map(|(&bytes, cost)| bytes as f64 * cost).sum();
    let priced = !scenario.service.cost_per_gb.is_empty();
    put("cost".into(), Some(cost).filter(|_| priced));
    put("cost_optimum".into(), optimum.map(|optimum| optimum.cost).filter(|_| priced));
    for path in scenario.paths() {
        let share = |PathId(place)| optimum.and_then(|optimum| optimum.share(usize::from(place)));
        put(format!("path.{}.share_optimum", path.name), share(path.id));
    }
    found
}
