//! `crosslane drive`: the runs of a scenario, strategy by strategy and seed by
//! seed, each in a process of its own, and what came of them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use crosslane_sim::scenario::{BASES, Scenario};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::summary::Summary;
use crate::{output, scenario_file};

mod agent_process;
mod baseline;
mod hold;
mod jobs;
mod monitor;
mod obu;
mod run;
mod seeds;
mod stage;
mod tally;
mod versions;

pub use run::{probe, run_one};

/// What to drive, and how.
#[derive(Args)]
pub struct Options {
    /// Scenario (TOML).
    pub scenario: PathBuf,
    /// Strategies to compare, by name.
    #[arg(long, value_delimiter = ',', default_value = "kernel,kernel-tuned,threshold", value_name = "NAME,…")]
    pub strategy: Vec<String>,
    /// Seeds: 7, or 1,2,3, or 1..10.
    #[arg(long, default_value = "1", value_name = "SEEDS", value_parser = seeds::parse)]
    pub seed: seeds::Seeds,
    /// Runs side by side.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16), value_name = "N")]
    pub jobs: u8,
    /// Folder for the records; made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Folder of the data that the scenario names as `data:…`.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print the summary as JSON on standard output.
    #[arg(long)]
    pub json: bool,
    /// Fail (exit code 1) unless what the scenario expects comes out.
    #[arg(long)]
    pub expect: bool,
    /// Leave the namespaces and the emulated links up after the (single) run,
    /// until Ctrl-C.
    #[arg(long)]
    pub keep: bool,
}

/// One run, as `drive` hands it to the process that carries it out.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Plan {
    scenario: PathBuf,
    data: Option<PathBuf>,
    strategy: String,
    seed: u64,
    folder: PathBuf,
    keep: bool,
    /// The process of `drive`, with which the run ends.
    parent: i32,
}

/// Drives the scenario.
///
/// # Errors
/// What is wrong with the scenario or the machine, in one sentence.
pub fn run(options: &Options) -> Result<ExitCode> {
    let scenario = scenario_file::read(&options.scenario, options.data.as_deref())?;
    let plans = plan(options, &scenario)?;
    let out = folder(options, &scenario);
    jobs::check_machine()?;
    if options.keep {
        hold::leave_to_run()?;
    }
    scenario_file::prepare_folder(&out, &options.scenario)?;
    versions::write(&out)?;
    let parallel = if scenario.parallel { usize::from(options.jobs) } else { 1 };
    let runs = jobs::run_all(plans, parallel, scenario.duration_s)?;
    let summary = Summary::new(&scenario, "kernel", runs);
    summary.write(&out)?;
    let text = match options.json {
        true => summary.to_json()? + "\n",
        false => format!("{}\nRecords: {}\n", summary.table(), out.display()),
    };
    output::print("printing what came out", text)?;
    let met = !options.expect || summary.all_expectations_met();
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn folder(options: &Options, scenario: &Scenario) -> PathBuf {
    options.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(&scenario.name))
}

fn plan(options: &Options, scenario: &Scenario) -> Result<Vec<Plan>> {
    let attempt = "planning the runs";
    for name in &options.strategy {
        if scenario.strategy(name).is_none() {
            let defined = scenario.strategies.iter().map(|strategy| strategy.name.as_str());
            let known = BASES.into_iter().chain(defined).collect::<Vec<_>>().join(", ");
            return Err(Error::usage(
                attempt,
                format!("there is no strategy {name:?}"),
                format!("choose from {known}"),
            ));
        }
    }
    let out = folder(options, scenario);
    let seeds = &options.seed.0;
    let of_seed = |&seed: &u64| {
        let out = out.clone();
        options.strategy.iter().map(move |strategy| Plan {
            scenario: options.scenario.clone(),
            data: options.data.clone(),
            strategy: strategy.clone(),
            seed,
            folder: out.join("runs").join(format!("{strategy}-{seed}")),
            keep: options.keep,
            parent: std::process::id() as i32,
        })
    };
    let plans: Vec<Plan> = seeds.iter().flat_map(of_seed).collect();
    if options.keep && plans.len() != 1 {
        let cause = format!("--keep with {} runs", plans.len());
        return Err(Error::usage(attempt, cause, "name one strategy and one seed"));
    }
    Ok(plans)
}
