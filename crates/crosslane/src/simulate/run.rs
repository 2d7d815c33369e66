//! One run in simulated time, and its folder.

use std::net::IpAddr;
use std::path::Path;

use crosslane_core::time::Instant;
use crosslane_sim::addresses::vehicle_address;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Recording, Simulation};
use serde_json::Value;

use crate::comparison::Entry;
use crate::error::{Error, Result};
use crate::run_folder::{self, Carried, Records, events};
use crate::summary::Outcome;

/// Executes a run and writes its records into `folder`, if there is one.
/// `at_second` is called each simulated second and returns whether to continue;
/// `None` if it returned false.
///
/// # Errors
/// The scenario cannot be simulated, or a record cannot be written.
pub fn execute(
    scenario: &Scenario,
    entry: &Entry,
    folder: Option<&Path>,
    mut at_second: impl FnMut() -> bool,
) -> Result<Option<Outcome>> {
    let Some(strategy) = scenario.strategy(&entry.strategy) else {
        return Err(Error::failure("simulating", format!("there is no strategy {:?}", entry.strategy)));
    };
    let detail = if folder.is_some() { Detail::ALL } else { Detail::METRICS };
    let mut simulation = Simulation::new(scenario, &strategy, entry.seed, detail)?;
    for second in 1..=scenario.duration_s.ceil() as u32 {
        simulation.run_until(Instant::from_secs_f64(f64::from(second).min(scenario.duration_s)));
        if !at_second() {
            return Ok(None);
        }
    }
    let recording = simulation.finish();
    let names: Vec<String> = scenario.paths().iter().map(|path| path.name.to_string()).collect();
    let agent_events: Vec<Value> =
        recording.agent_outputs.iter().map(|(at, output)| events::agent_event(*at, output, None, &names)).collect();
    let (messages, skipped) = (&recording.messages, recording.skipped);
    let carried = Carried { messages, skipped, duplicates: recording.duplicates, sums: &recording.sums };
    let metrics = run_folder::measure(scenario, entry.seed, &names, &agent_events, &carried)?;
    if let Some(folder) = folder {
        write(folder, &names, recording, agent_events)?;
    }
    Ok(Some(Outcome { valid: true, reason: None, metrics }))
}

/// Writes the records; an incomplete folder is removed.
fn write(folder: &Path, names: &[String], recording: Recording, mut events: Vec<Value>) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|cause| Error::failure(format!("making {}", folder.display()), cause))?;
    let addresses: Vec<IpAddr> = (0..names.len()).map(|place| vehicle_address(place).into()).collect();
    let kernel_events = recording.kernel_events.iter();
    events.extend(kernel_events.map(|(at, side, event)| events::kernel_event(*at, *side, event, names, &addresses)));
    let Recording { packets, samples, messages, links, tcp_info, .. } = recording;
    let written = run_folder::write(folder, names, Records { packets, samples, messages, links, tcp_info, events });
    written.map_err(|cause| {
        drop(std::fs::remove_dir_all(folder));
        cause.into()
    })
}
