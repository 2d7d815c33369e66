//! The metrics of traffic with deadlines.

use crate::bounds::least_cost::Optimum;
use crate::record::rows::MessageRow;
use crate::scenario::Scenario;

/// Results of the objects whose deadline is within the run.
#[derive(Clone, Debug)]
pub struct Objects {
    /// Share whose last byte was not read by the deadline; not a number without objects.
    pub(super) missed_share: f64,
    /// The same of those that may not be dropped; `None` if all may or none.
    pub(super) undroppable_missed_share: Option<f64>,
    /// Share whose last byte the connection had not accepted by then.
    pub(super) unwritten_share: f64,
    /// Times from generation to the last byte read, ascending, in s.
    pub(super) took_s: Vec<f64>,
    /// Times from generation to the last byte accepted by the connection, ascending, in s.
    pub(super) write_s: Vec<f64>,
    /// The least cost of the run.
    pub(super) optimum: Option<Optimum>,
}

impl Objects {
    /// The results; `None` if the traffic has no deadlines.
    pub fn of(scenario: &Scenario, objects: &[MessageRow], optimum: Option<Optimum>) -> Option<Objects> {
        let rules = scenario.traffic.kind.deadlines()?;
        let end_ns = (scenario.duration_s * 1e9) as u64;
        let deadline_ns = (rules.deadline_s * 1e9) as u64;
        let due: Vec<&MessageRow> = objects.iter().filter(|object| object.sent_ns + deadline_ns <= end_ns).collect();
        let times_ns = |at: fn(&MessageRow) -> Option<u64>| -> Vec<Option<u64>> {
            due.iter().map(|object| Some(at(object)? - object.sent_ns)).collect()
        };
        let (took_ns, write_ns) = (times_ns(|object| object.received_ns), times_ns(|object| object.written_ns));
        let is_late = |took_ns: &Option<u64>| took_ns.is_none_or(|took_ns| took_ns > deadline_ns);
        let late_share = |times_ns: &[Option<u64>]| {
            times_ns.iter().filter(|took_ns| is_late(took_ns)).count() as f64 / due.len() as f64
        };
        let numbered = || due.iter().zip(&took_ns).filter(|(object, _)| !rules.is_droppable(object.number));
        let (undroppable, late) = (numbered().count(), numbered().filter(|(_, took_ns)| is_late(took_ns)).count());
        let is_mixed = undroppable > 0 && undroppable < due.len();
        Some(Objects {
            missed_share: late_share(&took_ns),
            undroppable_missed_share: is_mixed.then(|| late as f64 / undroppable as f64),
            unwritten_share: late_share(&write_ns),
            took_s: sorted_s(took_ns),
            write_s: sorted_s(write_ns),
            optimum,
        })
    }
}

fn sorted_s(times_ns: Vec<Option<u64>>) -> Vec<f64> {
    let mut times_s: Vec<f64> = times_ns.into_iter().flatten().map(|time_ns| time_ns as f64 / 1e9).collect();
    times_s.sort_by(f64::total_cmp);
    times_s
}
