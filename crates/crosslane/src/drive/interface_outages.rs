//! Times at which the interface of a wire is down: what passes a wire passes
//! the kernel alone, so the interface itself is set down and up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::time::Instant;
use crosslane_sim::scenario::Scenario;

use crate::clock::Clock;
use crate::error::Result;
use crate::testbed::Testbed;

/// How long a run that is stopped waits for this at most.
const LOOK: Duration = Duration::from_millis(50);

/// The interface of a path goes up or down at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Turn {
    at: Instant,
    place: usize,
    up: bool,
}

/// Sets the vehicle's interfaces of the wires down and up as the scenario has
/// it, until the run is stopped.
///
/// # Errors
/// The kernel refuses.
pub fn follow(scenario: &Scenario, testbed: &Testbed, clock: Clock, stop: &AtomicBool) -> Result<()> {
    for turn in turns(scenario) {
        while clock.now() < turn.at {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(LOOK.min(turn.at.since(clock.now())));
        }
        testbed.set_up(turn.place, turn.up)?;
    }
    Ok(())
}

/// In order of time.
fn turns(scenario: &Scenario) -> Vec<Turn> {
    let mut turns = Vec::new();
    for (place, path) in scenario.paths().iter().enumerate() {
        let wire = scenario.access.iter().find(|link| link.name == path.name && link.wire.is_some());
        for &[from_s, to_s] in wire.iter().flat_map(|link| &link.outages_s) {
            let turn = |at_s, up| Turn { at: Instant::from_secs_f64(at_s), place, up };
            turns.extend([turn(from_s, false), turn(to_s, true)]);
        }
    }
    turns.sort_by_key(|turn| turn.at);
    turns
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
        let found: Vec<_> = turns(&scenario).iter().map(|turn| (turn.at.as_secs_f64(), turn.place, turn.up)).collect();
        assert_eq!(found, [(21.0, 0, false), (41.0, 0, true), (61.0, 1, false), (81.0, 1, true)]);
    }
}
