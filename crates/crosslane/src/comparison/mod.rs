//! Comparison of strategies over seeds: the options of `drive` and `simulate`,
//! and the output of their results.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard};

use clap::Args;
use crosslane_sim::scenario::{Engine, Scenario};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::summary::Summary;
use crate::{output, scenario_file};

pub mod seeds;

/// Options of a comparison.
#[derive(Args)]
pub struct Options {
    /// Scenario (TOML).
    pub scenario: PathBuf,
    /// Strategies to compare, by name.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "kernel,kernel-tuned,threshold,adaptive",
        value_name = "NAME,…"
    )]
    pub strategy: Vec<String>,
    /// Seeds: 7, or 1,2,3, or 1..10.
    #[arg(long, default_value = "1", value_name = "SEEDS", value_parser = seeds::parse)]
    pub seed: seeds::Seeds,
    /// Folder for the records; created if missing [default: runs/ and the scenario's name].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Folder of the data that the scenario refers to as `data:…`.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print the summary as JSON on standard output.
    #[arg(long)]
    pub json: bool,
    /// Fail (exit code 1) unless the scenario's expectations are met.
    #[arg(long)]
    pub expect: bool,
}

/// One run of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Name of the strategy.
    pub strategy: String,
    /// The seed.
    pub seed: u64,
}

impl Entry {
    /// Folder of the run's records, relative to the comparison's.
    pub fn folder(&self) -> String {
        format!("runs/{}-{}", self.strategy, self.seed)
    }
}

impl Options {
    /// Reads the scenario, and returns its text too; former names of keys are reported on standard error.
    ///
    /// # Errors
    /// One sentence with file, line and remedy.
    pub fn read_scenario(&self) -> Result<(Scenario, String)> {
        let text = scenario_file::text(&self.scenario)?;
        let scenario = scenario_file::parse(&text, &self.scenario, self.data.as_deref())?;
        let file = self.scenario.display();
        for renamed in &scenario.renamed {
            output::message(format_args!("{file}, {renamed}; `crosslane check --fix {file}` rewrites it"));
        }
        Ok((scenario, text))
    }

    /// All runs: seed by seed, the strategies in the order given.
    ///
    /// # Errors
    /// A strategy does not exist, is named twice, or the engine cannot run it.
    pub fn entries(&self, scenario: &Scenario, engine: Engine) -> Result<Vec<Entry>> {
        if let Some(name) = self.strategy.iter().find(|name| scenario.strategy(name).is_none()) {
            let known = scenario.strategy_names().join(", ");
            let cause = format!("there is no strategy {name:?}");
            return Err(Error::usage("planning the runs", cause, format!("choose from {known}")));
        }
        if let Some(name) =
            self.strategy.iter().enumerate().find_map(|(at, name)| self.strategy[..at].contains(name).then_some(name))
        {
            let cause = format!("strategy {name:?} is named twice, and its runs would share one folder");
            return Err(Error::usage("planning the runs", cause, "name it once"));
        }
        for strategy in self.strategy.iter().filter_map(|name| scenario.strategy(name)) {
            scenario.check_strategy(engine, &strategy)?;
        }
        let of_seed =
            |&seed: &u64| self.strategy.iter().map(move |strategy| Entry { strategy: strategy.clone(), seed });
        Ok(self.seed.0.iter().flat_map(of_seed).collect())
    }

    /// The folder for the records.
    pub fn folder(&self, scenario: &Scenario) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(&scenario.name))
    }

    /// Writes the summary into `folder` and prints it; the exit code shows whether
    /// the expectations were met. After a failure or an interrupt the summary
    /// contains the complete runs of those `planned`.
    ///
    /// # Errors
    /// The failure, or the summary cannot be written or printed.
    pub fn conclude(
        &self,
        mut summary: Summary,
        folder: &Path,
        planned: usize,
        failure: Option<Error>,
    ) -> Result<ExitCode> {
        summary.interrupted = failure.is_some();
        if let Some(failure) = failure {
            return Err(keep_complete(&summary, folder, planned, failure));
        }
        summary.write(folder)?;
        let text = match self.json {
            true => summary.to_json()? + "\n",
            false if summary.runs.iter().any(|run| run.folder.is_some()) => {
                format!("{}\nRecords: {}\n", summary.table(), folder.display())
            }
            false => format!("{}\nSummary: {}\n", summary.table(), folder.join("summary.json").display()),
        };
        output::print("printing the summary", text)?;
        let met = !self.expect || summary.all_expectations_met();
        Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Writes the complete runs, so that they stay usable; returns the failure.
fn keep_complete(summary: &Summary, folder: &Path, planned: usize, failure: Error) -> Error {
    let complete = summary.runs.len();
    if complete == 0 || summary.write(folder).is_err() {
        return failure;
    }
    let file = folder.join("summary.json");
    failure.with_remedy(format!("{} contains the {complete} complete runs of {planned}", file.display()))
}

/// Locks what the threads of a comparison share.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
