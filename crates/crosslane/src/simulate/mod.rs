//! `crosslane simulate`: executes a scenario's runs in simulated time, in this
//! process, on as many threads as cores.

use std::process::ExitCode;
use std::thread::available_parallelism;

use clap::{Args, ValueEnum};
use crosslane_sim::scenario::{Engine, Scenario};
use crosslane_sim::simulation::{Detail, Simulation};
use serde_json::json;

use crate::comparison::{self, Entry};
use crate::error::Result;
use crate::summary::Summary;
use crate::{output, scenario_file, version};

mod fleet;
mod pool;
mod progress;
mod run;

use pool::Work;

/// Maximum number of runs that keep their records by default: a run of 40 s
/// writes 1 MB (50 messages a second) to 11 MB (bulk over two paths).
const MAX_RECORDED: usize = 20;

/// Options of the command.
#[derive(Args)]
pub struct Options {
    /// What to compare.
    #[command(flatten)]
    pub comparison: comparison::Options,
    /// Number of runs in parallel [default: one on each core].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N")]
    pub jobs: Option<u16>,
    /// Write the records of every run, or only the summary [default: all of up to
    /// 20 runs, none of more].
    #[arg(long, value_enum, value_name = "WHICH")]
    pub records: Option<Kept>,
}

/// Which runs leave records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kept {
    /// Every run.
    All,
    /// Of every run only its windows, messages and events.
    Windows,
    /// No run: only the summary is written.
    None,
}

impl Kept {
    fn detail(self) -> Option<Detail> {
        match self {
            Kept::All => Some(Detail::ALL),
            Kept::Windows => Some(Detail::WINDOWS),
            Kept::None => None,
        }
    }
}

/// Simulates the scenario.
///
/// # Errors
/// What is wrong with the scenario or the folder.
pub fn run(options: &Options) -> Result<ExitCode> {
    let comparison = &options.comparison;
    let (scenario, text) = comparison.read_scenario()?;
    scenario.check_engine(Engine::Simulator)?;
    let entries = comparison.entries(&scenario, Engine::Simulator)?;
    try_strategies(&scenario, &entries)?;
    let folder = comparison.folder(&scenario);
    let resolved = scenario.resolved(&comparison.strategy, &comparison.seed.0);
    let kept = options.records.unwrap_or(if entries.len() <= MAX_RECORDED { Kept::All } else { Kept::None });
    let recorded = entries.iter().filter(|_| kept != Kept::None).map(|entry| folder.join(entry.folder())).collect();
    let _lock = scenario_file::prepare_folder(&folder, &text, &resolved, &recorded)?;
    // Without facts of the machine, since the records do not depend on it.
    let versions = json!({ "crosslane": version::version(), "engine": "simulator" });
    output::write(&folder.join("versions.json"), format!("{versions:#}\n"))?;
    let threads = options.jobs.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from);
    let planned = entries.len();
    let work = Work { scenario: &scenario, folder: kept.detail().map(|detail| (folder.as_path(), detail)), threads };
    let parallel = if scenario.fleet.is_some() { 1 } else { threads };
    let (runs, failure) = pool::run_all(&work, entries, parallel)?;
    comparison.conclude(Summary::new(&scenario, "simulator", runs), &folder, planned, failure)
}

/// Rejects a strategy that cannot be simulated before anything is written.
fn try_strategies(scenario: &Scenario, entries: &[Entry]) -> Result<()> {
    let Some(first) = entries.first() else { return Ok(()) };
    for entry in entries.iter().take_while(|entry| entry.seed == first.seed) {
        if let Some(strategy) = scenario.strategy(&entry.strategy) {
            Simulation::new(scenario, &strategy, entry.seed, Detail::METRICS)?;
        }
    }
    Ok(())
}
