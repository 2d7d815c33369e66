//! Outages of wires. Packets of a wire pass only the kernel, so the interface
//! itself is set down and up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::time::Instant;
use crosslane_sim::scenario::Scenario;

use crate::clock::Clock;
use crate::error::Result;
use crate::testbed::Testbed;

/// Longest time until an order to stop is obeyed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// At a time, the interface of a path goes up or down.
#[derive(Clone, Copy, Debug, PartialEq)]
struct StateChange {
    at: Instant,
    path: usize,
    up: bool,
}

/// Sets the vehicle's interfaces of the wires down and up as the scenario
/// defines, until the run is stopped.
pub fn apply(scenario: &Scenario, testbed: &Testbed, clock: Clock, stop: &AtomicBool) -> Result<()> {
    for change in changes(scenario) {
        while clock.now() < change.at {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL.min(change.at.since(clock.now())));
        }
        testbed.set_up(change.path, change.up)?;
    }
    Ok(())
}

/// All changes in order of time.
fn changes(scenario: &Scenario) -> Vec<StateChange> {
    let mut changes = Vec::new();
    for (place, path) in scenario.paths().iter().enumerate() {
        let wire = scenario.access.iter().find(|link| link.name == path.name && link.wire.is_some());
        for &[from_s, to_s] in wire.iter().flat_map(|link| &link.outages_s) {
            let change = |at_s, up| StateChange { at: Instant::from_secs_f64(at_s), path: place, up };
            changes.extend([change(from_s, false), change(to_s, true)]);
        }
    }
    changes.sort_by_key(|change| change.at);
    changes
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario_file;

    #[test]
    fn the_interfaces_of_the_redundancy_measurement_go_down_and_up_in_turn() {
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/szilagyi/redundancy.toml"));
        let scenario = scenario_file::read(file, None).unwrap();
        let found: Vec<_> =
            changes(&scenario).iter().map(|change| (change.at.as_secs_f64(), change.path, change.up)).collect();
        assert_eq!(found, [(21.0, 0, false), (41.0, 0, true), (61.0, 1, false), (81.0, 1, true)]);
    }
}
