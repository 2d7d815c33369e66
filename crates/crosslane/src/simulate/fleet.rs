//! A run of many vehicles: the work of each step is distributed over threads.

use std::path::Path;

use crosslane_core::time::{Duration, Instant};
use crosslane_sim::fleet::{self, Fleet, Vehicle};
use crosslane_sim::scenario::{Scenario, Strategy};

use crate::error::Result;
use crate::summary::Outcome;
use crate::{output, run_folder};

/// Executes a run on `threads` threads and writes `vehicles.csv` into `folder`,
/// if there is one. `at_second` is called each simulated second and returns
/// whether to continue; `None` if it returned false.
pub fn execute(
    scenario: &Scenario,
    strategy: &Strategy,
    seed: u64,
    folder: Option<&Path>,
    threads: usize,
    mut at_second: impl FnMut() -> bool,
) -> Result<Option<Outcome>> {
    let mut fleet = Fleet::new(scenario, strategy, seed)?;
    let mut second = Instant::ZERO;
    while let Some(next) = fleet.next() {
        advance(fleet.vehicles(), next, threads);
        fleet.share_airtime();
        if next >= second + Duration::from_secs(1) {
            second = next;
            if !at_second() {
                return Ok(None);
            }
        }
    }
    let names: Vec<String> = scenario.paths().iter().map(|path| path.name.to_string()).collect();
    let outcomes = fleet.finish();
    if let Some(folder) = folder {
        run_folder::make(folder)?;
        output::write(&folder.join("vehicles.csv"), fleet::table(&outcomes, &names))?;
    }
    Ok(Some(Outcome { valid: true, reason: None, metrics: fleet::metrics(&outcomes, &names) }))
}

/// Advances all vehicles to `until`. They are independent of each other, so
/// their distribution over the threads does not matter.
fn advance(vehicles: &mut [Vehicle], until: Instant, threads: usize) {
    let size = vehicles.len().div_ceil(threads.max(1)).max(1);
    let run = |part: &mut [Vehicle]| part.iter_mut().for_each(|vehicle| vehicle.run_until(until));
    std::thread::scope(|scope| {
        let mut parts = vehicles.chunks_mut(size);
        let own = parts.next();
        for part in parts {
            scope.spawn(move || run(part));
        }
        own.into_iter().for_each(run);
    });
}
