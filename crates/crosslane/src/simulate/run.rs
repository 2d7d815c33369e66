//! One run in simulated time, and its folder.

use std::path::Path;

use crosslane_core::time::Instant;
use crosslane_sim::record::metrics::throughput;
use crosslane_sim::record::rows::{AgentRows, RunRecords};
use crosslane_sim::scenario::{Scenario, Strategy};
use crosslane_sim::simulation::{Detail, Recording, Simulation};

use crate::error::Result;
use crate::run_folder::events::RunEvent;
use crate::run_folder::{self, Records};
use crate::summary::Outcome;

/// Executes a run and writes its records into a folder with this detail, if there is one.
/// `at_second` is called each simulated second and returns whether to continue;
/// `None` if it returned false.
pub fn execute(
    scenario: &Scenario,
    strategy: &Strategy,
    seed: u64,
    folder: Option<(&Path, Detail)>,
    mut at_second: impl FnMut() -> bool,
) -> Result<Option<Outcome>> {
    let detail = folder.map_or(Detail::METRICS, |(_, detail)| detail);
    let mut simulation = Simulation::new(scenario, strategy, seed, detail)?;
    for second in 1..=scenario.duration_s.ceil() as u32 {
        simulation.run_until(Instant::from_secs_f64(f64::from(second).min(scenario.duration_s)));
        if !at_second() {
            return Ok(None);
        }
    }
    let recording = simulation.finish();
    let names: Vec<String> = scenario.paths().iter().map(|path| path.name.to_string()).collect();
    let mut agent = AgentRows::default();
    recording.agent_outputs.iter().for_each(|(at, output)| agent.note(*at, output));
    let AgentRows { decisions, alarms } = &agent;
    let Recording { messages, results, sums, skipped, .. } = &recording;
    let (duplicates, reads) = (recording.duplicates, results.reads);
    let (echo_bytes, copied_bytes) = (recording.echo_bytes, recording.copied_bytes);
    let evaluated = RunRecords { messages, decisions, alarms, duplicates, reads, echo_bytes, copied_bytes };
    let metrics = run_folder::measure(scenario, (strategy, seed), &names, &evaluated, sums, *skipped)?;
    if let Some((folder, _)) = folder {
        write(folder, &names, recording)?;
    }
    Ok(Some(Outcome { valid: true, reason: None, metrics }))
}

/// Writes the records; an incomplete folder is removed.
fn write(folder: &Path, names: &[String], recording: Recording) -> Result<()> {
    run_folder::make(folder)?;
    let Recording { packets, samples, messages, links, tcp_info, windows, .. } = recording;
    let Recording { agent_outputs, slot_changes, kernel_events, .. } = recording;
    let slot_changes = slot_changes.into_iter().map(|(at, change)| (at, RunEvent::Slot(change)));
    let agent_events = agent_outputs.into_iter().map(|(at, output)| (at, RunEvent::Agent(output)));
    let kernel_events = kernel_events.into_iter().map(|(at, side, event)| (at, RunEvent::Kernel(side, event)));
    let events = slot_changes.chain(agent_events).chain(kernel_events).collect();
    let throughput = throughput(&packets);
    let records = Records { packets, throughput, samples, messages, links, tcp_info, windows, events };
    run_folder::write(folder, names, records).inspect_err(|_| drop(std::fs::remove_dir_all(folder)))
}
