//! The lowest cost at which the objects of a run could have met their
//! deadlines, computed with hindsight: a continuous knapsack over time slots.
//!
//! A slot of a path can carry bytes of any object that has started and whose
//! deadline has not passed when the bytes arrive. The sets of slots that can be
//! filled together are the independent sets of a transversal matroid, so taking
//! the cheapest paths first is optimal: the k-th path carries what the first k
//! paths carry together, less what the first k − 1 carry. The maximum that a
//! set of paths carries is found by filling every slot with the object of the
//! earliest deadline.

use std::collections::VecDeque;

use crate::scenario::{Base, Scenario, ScenarioError, Strategy};
use crate::world::{TICK, World, WorldEvent};

/// An object with at most this remainder, in bytes, is complete.
const TOLERANCE_BYTES: f64 = 1e-6;

/// An object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Start time, in s.
    pub start_s: f64,
    /// Deadline of its last byte, in s.
    pub deadline_s: f64,
    /// Size, in bytes.
    pub bytes: f64,
}

/// A path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capacity {
    /// Price of a byte.
    pub unit_cost: f64,
    /// For each slot: its capacity, in bytes of payload, and the one-way delay,
    /// in s.
    pub slots: Vec<(f64, f64)>,
}

/// The optimal allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// Bytes over each path.
    pub bytes: Vec<f64>,
    /// Total cost.
    pub cost: f64,
}

impl Optimum {
    /// Share of the carried bytes that used this path (0 to 1).
    pub fn share(&self, place: usize) -> Option<f64> {
        let total: f64 = self.bytes.iter().sum();
        Some(self.bytes.get(place)? / total).filter(|share| share.is_finite())
    }
}

/// The lowest cost of carrying as much of `jobs` in time as possible, over paths
/// in slots of `slot_s`. `jobs` are in order of start and of deadline.
pub fn least_cost(paths: &[Capacity], jobs: &[Job], slot_s: f64) -> Optimum {
    let mut order: Vec<usize> = (0..paths.len()).collect();
    order.sort_by(|&a, &b| paths[a].unit_cost.total_cmp(&paths[b].unit_cost));
    let mut bytes = vec![0.0; paths.len()];
    let mut before = 0.0;
    for (count, &place) in order.iter().enumerate() {
        let together: Vec<&Capacity> = order.iter().take(count + 1).map(|&place| &paths[place]).collect();
        let carried = carried(&together, jobs, slot_s);
        bytes[place] = carried - before;
        before = carried;
    }
    let cost = paths.iter().zip(&bytes).map(|(path, bytes)| path.unit_cost * bytes).sum();
    Optimum { bytes, cost }
}

/// Maximum number of bytes that these paths carry in time.
fn carried(paths: &[&Capacity], jobs: &[Job], slot_s: f64) -> f64 {
    let slots = paths.iter().map(|path| path.slots.len()).max().unwrap_or(0);
    let mut waiting = jobs.iter().copied();
    let mut next = waiting.next();
    let mut open: VecDeque<Job> = VecDeque::new();
    let mut carried = 0.0;
    for slot in 0..slots {
        let (begin_s, end_s) = (slot as f64 * slot_s, (slot + 1) as f64 * slot_s);
        while let Some(job) = next.filter(|job| job.start_s < end_s) {
            open.push_back(job);
            next = waiting.next();
        }
        open.retain(|job| job.deadline_s > begin_s && job.bytes > TOLERANCE_BYTES);
        for (capacity, delay_s) in paths.iter().filter_map(|path| path.slots.get(slot)) {
            let mut used = 0.0;
            for job in &mut open {
                // An object that starts or is due within the slot can use part of it.
                let usable_s = end_s.min(job.deadline_s - delay_s) - begin_s.max(job.start_s);
                let usable = (capacity * (usable_s / slot_s).clamp(0.0, 1.0)).min(capacity - used);
                let taken = usable.min(job.bytes).max(0.0);
                job.bytes -= taken;
                used += taken;
            }
            carried += used;
        }
    }
    carried
}

/// Payload per IP byte of a full segment of 1500 bytes: plain TCP's, where the strategy has such connections, or
/// MPTCP's.
fn payload_share(base: Base) -> f64 {
    if base == Base::Deadline { 1448.0 / 1500.0 } else { 1424.0 / 1500.0 }
}

/// Capacity of each path in a run of the scenario with this strategy's headers, slot by slot.
///
/// # Errors
/// The world cannot be created.
pub fn capacities(scenario: &Scenario, base: Base, seed: u64) -> Result<Vec<Capacity>, ScenarioError> {
    let mut world = World::new(scenario, seed)?;
    let path = |unit_cost| Capacity { unit_cost, slots: Vec::new() };
    let mut paths: Vec<Capacity> = scenario.unit_costs().into_iter().map(path).collect();
    while let Some(now) = world.next_wakeup() {
        while let Some(event) = world.poll(now) {
            let WorldEvent::Truth(truth) = event else { continue };
            let Some(path) = paths.get_mut(usize::from(truth.path.0)) else { continue };
            let mbit_s = if scenario.traffic.down { truth.down_mbit_s } else { truth.up_mbit_s };
            let bytes = mbit_s * (1.0 - truth.loss) * 1e6 / 8.0 * TICK.as_secs_f64() * payload_share(base);
            path.slots.push((bytes, truth.delay_ms / 1e3));
        }
    }
    Ok(paths)
}

/// The optimum of a run whose objects started at these times (in ns); none if
/// the traffic has no deadlines, or its objects have no given size.
///
/// # Errors
/// The world cannot be created.
pub fn of_run(
    scenario: &Scenario,
    strategy: &Strategy,
    seed: u64,
    starts_ns: &[u64],
) -> Result<Option<Optimum>, ScenarioError> {
    let rules = scenario.traffic.kind.deadlines().filter(|rules| rules.min_object_bytes.is_none());
    let Some(rules) = rules else { return Ok(None) };
    let job = |&start_ns: &u64| {
        let start_s = start_ns as f64 / 1e9;
        Job { start_s, deadline_s: start_s + rules.deadline_s, bytes: rules.object_bytes as f64 }
    };
    let jobs: Vec<Job> = starts_ns.iter().map(job).collect();
    Ok(Some(least_cost(&capacities(scenario, strategy.base, seed)?, &jobs, TICK.as_secs_f64())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT_S: f64 = 0.01;

    fn paths(mbit_s: [f64; 2]) -> Vec<Capacity> {
        let path = |(rate, unit_cost): (f64, f64)| {
            let bytes = rate * 1e6 / 8.0 * SLOT_S * 0.95;
            Capacity { unit_cost, slots: vec![(bytes, 0.0); 7000] }
        };
        [(mbit_s[0], 1.0), (mbit_s[1], 5.0)].map(path).to_vec()
    }

    fn jobs(bytes: f64, deadline_s: f64) -> Vec<Job> {
        let job = |number: u32| {
            let start_s = 1.0 + 10.0 * f64::from(number);
            Job { start_s, deadline_s: start_s + deadline_s, bytes }
        };
        (0..6).map(job).collect()
    }

    #[test]
    fn the_optimal_share_at_constant_rates_matches_the_closed_formula() {
        for (rates, bytes) in [([8.0, 8.0], 10e6), ([4.0, 12.0], 10e6), ([3.8, 3.0], 5e6)] {
            for deadline_s in [10.0, 9.0, 8.0, 7.5] {
                let optimum = least_cost(&paths(rates), &jobs(bytes, deadline_s), SLOT_S);
                let preferred = rates[0] * 1e6 / 8.0 * 0.95 * deadline_s;
                let formula = (bytes - preferred).max(0.0) / bytes;
                let share = optimum.share(1).unwrap_or(f64::NAN);
                assert!((share - formula).abs() < 1e-4, "{rates:?} in {deadline_s} s: {share}, not {formula}");
                assert!((optimum.bytes.iter().sum::<f64>() - 6.0 * bytes).abs() < 1.0);
            }
        }
    }

    #[test]
    fn bytes_beyond_capacity_are_late_and_the_rest_fills_both_paths() {
        let optimum = least_cost(&paths([8.0, 8.0]), &jobs(10e6, 4.0), SLOT_S);
        assert!(optimum.bytes.iter().all(|bytes| (bytes - 6.0 * 3.8e6).abs() < 10.0), "{optimum:?}");
    }

    #[test]
    fn overlapping_objects_share_the_cheap_path() {
        let jobs = [(0.0, 1e6), (0.0, 1e6), (5.0, 1e6)].map(|(start_s, bytes)| Job {
            start_s,
            deadline_s: start_s + 10.0,
            bytes,
        });
        let optimum = least_cost(&paths([1.6, 8.0]), &jobs, SLOT_S);
        assert!((optimum.bytes[0] - 0.19e6 * 15.0).abs() < 10.0, "{optimum:?}");
    }

    #[test]
    fn bytes_in_flight_at_the_deadline_are_late() {
        let mut paths = paths([8.0, 0.0]);
        paths[0].slots.iter_mut().for_each(|slot| slot.1 = 0.5);
        let optimum = least_cost(&paths, &jobs(10e6, 2.0), SLOT_S);
        assert!((optimum.bytes[0] - 6.0 * 0.95e6 * 1.5).abs() < 10.0, "{optimum:?}");
    }
}
