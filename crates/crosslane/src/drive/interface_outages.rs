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

/// Sets the vehicle's interfaces of the wires down and up as the scenario
/// defines, until the run is stopped.
pub fn apply(scenario: &Scenario, testbed: &Testbed, clock: Clock, stop: &AtomicBool) -> Result<()> {
    for (at, path, up) in changes(scenario) {
        while clock.now() < at {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL.min(at.since(clock.now())));
        }
        testbed.set_up(path, up)?;
    }
    Ok(())
}

/// All changes in order of time: when the interface of which path goes up or down.
fn changes(scenario: &Scenario) -> Vec<(Instant, usize, bool)> {
    let mut changes = Vec::new();
    for (place, path) in scenario.paths().iter().enumerate() {
        let wire = scenario.access.iter().find(|link| link.name == path.name && link.wire.is_some());
        for &[from_s, to_s] in wire.iter().flat_map(|link| &link.outages_s) {
            changes.extend([(from_s, false), (to_s, true)].map(|(at_s, up)| (Instant::from_secs_f64(at_s), place, up)));
        }
    }
    changes.sort_by_key(|(at, ..)| *at);
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
        let found: Vec<_> = changes(&scenario).into_iter().map(|(at, path, up)| (at.as_secs_f64(), path, up)).collect();
        assert_eq!(found, [(21.0, 0, false), (41.0, 0, true), (61.0, 1, false), (81.0, 1, true)]);
    }
}
