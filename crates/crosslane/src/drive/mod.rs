//! `crosslane drive`: executes a scenario's runs, one for each strategy and
//! seed, each in a separate process, and summarizes the results.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use crosslane_sim::scenario::{Congestion, Engine, Scenario};
use serde::{Deserialize, Serialize};

use crate::comparison::{self, Entry};
use crate::congestion_control;
use crate::error::{Error, Result};
use crate::interrupt::{self, Interrupt};
use crate::scenario_file;
use crate::summary::Summary;

mod agent_process;
mod agents;
mod interface_outages;
mod jobs;
mod keep;
mod kernel_path_manager;
mod monitor;
mod onboard_unit;
mod peer_tunnels;
mod results;
mod roadside_tunnels;
mod run;
mod traffic;
mod tunnel;
mod unit_endpoints;
mod versions;
mod wire_monitor;
mod world;

pub use run::{probe, run_one};

/// Options of the command.
#[derive(Args)]
pub struct Options {
    /// What to compare.
    #[command(flatten)]
    pub comparison: comparison::Options,
    /// Number of runs in parallel [default: as many as the processors carry
    /// without invalid runs].
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=16), value_name = "N")]
    pub jobs: Option<u8>,
    /// Keep the namespaces and the emulated links up after the (single) run,
    /// until Ctrl-C.
    #[arg(long)]
    pub keep: bool,
}

/// One run, as `drive` passes it to the process that executes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Plan {
    /// The scenario, as the user named it: other files lie relative to it.
    scenario: PathBuf,
    /// Its text.
    copy: PathBuf,
    data: Option<PathBuf>,
    entry: Entry,
    folder: PathBuf,
    keep: bool,
    /// Process id of `drive`; the run ends with it.
    parent: i32,
}

/// Drives the scenario.
///
/// # Errors
/// What is wrong with the scenario or the machine.
pub fn run(options: &Options) -> Result<ExitCode> {
    let comparison = &options.comparison;
    let (scenario, text) = comparison.read_scenario()?;
    scenario.check_engine(Engine::Kernel)?;
    let plans = plan(options, &scenario)?;
    let folder = comparison.folder(&scenario);
    let bases = bases(&scenario, &plans);
    jobs::check_machine(&bases)?;
    if scenario.congestion == Congestion::Lia {
        congestion_control::require("preparing a drive with coupled congestion control")?;
    }
    let interrupt = if options.keep {
        keep::ignore_interrupt()?;
        Interrupt::default()
    } else {
        interrupt::listen()?
    };
    let resolved = scenario.resolved(&comparison.strategy, &comparison.seed.0);
    let recorded = plans.iter().map(|plan| plan.folder.clone()).collect();
    let _lock = scenario_file::prepare_folder(&folder, &text, &resolved, &recorded)?;
    versions::write(&folder, &bases)?;
    let jobs = if scenario.parallel { options.jobs.map(usize::from) } else { Some(1) };
    let planned = plans.len();
    let (runs, failure) = jobs::run_all(plans, jobs, scenario.duration_s, &interrupt)?;
    comparison.conclude(Summary::new(&scenario, "kernel", runs), &folder, planned, failure)
}

fn bases(scenario: &Scenario, plans: &[Plan]) -> BTreeSet<String> {
    plans.iter().filter_map(|plan| Some(scenario.strategy(&plan.entry.strategy)?.base.to_string())).collect()
}

fn plan(options: &Options, scenario: &Scenario) -> Result<Vec<Plan>> {
    let comparison = &options.comparison;
    let folder = comparison.folder(scenario);
    let plan = |entry: Entry| Plan {
        scenario: comparison.scenario.clone(),
        copy: folder.join(scenario_file::COPY),
        data: comparison.data.clone(),
        folder: folder.join(entry.folder()),
        entry,
        keep: options.keep,
        parent: std::process::id() as i32,
    };
    let plans: Vec<Plan> = comparison.entries(scenario, Engine::Kernel)?.into_iter().map(plan).collect();
    if options.keep && plans.len() != 1 {
        let cause = format!("--keep with {} runs", plans.len());
        return Err(Error::usage("planning the runs", cause, "name one strategy and one seed"));
    }
    Ok(plans)
}
