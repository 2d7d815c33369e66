//! Scenario files and the files that they name.

use crosslane_sim::record::metrics::METRICS;
use crosslane_sim::scenario::{FileRef, Resolved, Scenario, ScenarioError};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::import;
use crate::output;
use crate::text_file;

impl From<ScenarioError> for Error {
    fn from(fault: ScenarioError) -> Error {
        Error::message(fault.to_string(), 2)
    }
}

/// Reads a scenario and what it names; `data` is the folder for `data:…`.
///
/// # Errors
/// One sentence with file, line and remedy (exit code 2).
pub fn read(file: &Path, data: Option<&Path>) -> Result<Scenario> {
    parse(&text(file)?, file, data)
}

/// The text of a scenario. It is read once, since the file may be a pipe, or change during a drive of an hour.
///
/// # Errors
/// One sentence with file and remedy (exit code 2).
pub fn text(file: &Path) -> Result<String> {
    let attempt = format!("reading scenario {}", file.display());
    let remedy = "name a scenario that exists, as those in scenarios/";
    text_file::read(file).map_err(|cause| Error::usage(attempt, cause, remedy))
}

/// The same as [`read`] from the text of the file.
///
/// # Errors
/// One sentence with file, line and remedy (exit code 2).
pub fn parse(text: &str, file: &Path, data: Option<&Path>) -> Result<Scenario> {
    let mut scenario = Scenario::parse(text, &file.display().to_string())?;
    scenario.check_metrics(METRICS.iter().map(|metric| metric.name))?;
    let mut contents = BTreeMap::new();
    for reference in scenario.files() {
        let place = locate(file, &reference, data)?;
        let attempt = naming(&place.display().to_string(), file, &reference);
        let text = match import::import_named(&place) {
            Some(trace) => trace?,
            None => text_file::read_regular(&place)
                .map_err(|cause| Error::usage(attempt, cause, "correct the name, or put the file there"))?,
        };
        contents.insert(reference.name.clone(), text);
    }
    scenario.resolve(&contents)?;
    Ok(scenario)
}

/// Names the trees of the strategies absolutely, for the agents of a drive, which run in other folders.
///
/// # Errors
/// A tree is not where the scenario says.
pub fn name_trees_absolutely(scenario: &mut Scenario, file: &Path, data: Option<&Path>) -> Result<()> {
    let references = scenario.files();
    for strategy in &mut scenario.strategies {
        let Some(name) = strategy.tree_file() else { continue };
        let Some(reference) = references.iter().find(|reference| reference.name == name) else { continue };
        let place = locate(file, reference, data)?;
        let attempt = || naming(&place.display().to_string(), file, reference);
        let absolute = place.canonicalize().map_err(|cause| Error::failure(attempt(), cause))?;
        strategy.parameters.insert("tree".into(), absolute.display().to_string().into());
    }
    Ok(())
}

/// Name of the scenario's text in the folder of a comparison.
pub const COPY: &str = "scenario.toml";

/// Makes the folder of a comparison and puts the scenario into it, its `text` and `resolved`. The folder belongs to
/// this process as long as the lock exists. `recorded` are the folders of its runs that leave
/// records.
///
/// # Errors
/// Names the folder and the cause.
pub fn prepare_folder(
    folder: &Path,
    text: &str,
    resolved: &Resolved,
    recorded: &BTreeSet<PathBuf>,
) -> Result<Flock<File>> {
    let attempt = || format!("making {}", folder.display());
    let failed = |cause: io::Error| Error::usage(attempt(), cause, "name a folder that can be written with --out");
    fs::create_dir_all(folder).map_err(failed)?;
    let opened = File::open(folder).map_err(failed)?;
    let lock = Flock::lock(opened, FlockArg::LockExclusiveNonblock).map_err(|(_, cause)| match cause {
        Errno::EWOULDBLOCK => {
            let cause = "another `crosslane` writes into it";
            Error::usage(attempt(), cause, "wait for its end, or name another folder with --out")
        }
        cause => failed(cause.into()),
    })?;
    refuse_if_not_ours(folder, text)?;
    // Without it, a comparison that is killed leaves no results of another scenario.
    let summary = folder.join("summary.json");
    if summary.exists() {
        output::message(format_args!(
            "{} has the records of an earlier comparison; those of the same runs are replaced",
            folder.display()
        ));
        fs::remove_file(summary).map_err(failed)?;
    }
    warn_of_other_runs(folder, recorded);
    let json = serde_json::to_string_pretty(resolved).map_err(|cause| Error::failure(attempt(), cause))?;
    fs::write(folder.join("scenario.json"), json + "\n").map_err(failed)?;
    fs::write(folder.join(COPY), text).map_err(failed)?;
    Ok(lock)
}

/// Without records of an earlier comparison, another scenario in the folder is the user's own.
fn refuse_if_not_ours(folder: &Path, text: &str) -> Result<()> {
    let own = folder.join(COPY);
    let is_other = own.is_file() && fs::read(&own).is_ok_and(|present| present != text.as_bytes());
    if !is_other || ["summary.json", "scenario.json"].iter().any(|name| folder.join(name).exists()) {
        return Ok(());
    }
    let cause = "it is another scenario, which would be lost";
    Err(Error::usage(format!("writing {}", own.display()), cause, "name another folder with --out"))
}

/// Records of other runs stay: they may be all that is left of long drives.
fn warn_of_other_runs(folder: &Path, recorded: &BTreeSet<PathBuf>) {
    let present = fs::read_dir(folder.join("runs")).into_iter().flatten().flatten().map(|entry| entry.path());
    let others: BTreeSet<PathBuf> = present.filter(|run| run.is_dir() && !recorded.contains(run)).collect();
    let Some(first) = others.first().map(|first| first.display()) else { return };
    let which = match others.len() {
        1 => format!("{first} is the folder of a run"),
        count => format!("{first} and {} more are folders of runs", count - 1),
    };
    output::message(format_args!("{which} that this comparison does not record; remove what you do not need"));
}

fn locate(scenario: &Path, reference: &FileRef, data: Option<&Path>) -> Result<PathBuf> {
    if !reference.in_data {
        return Ok(scenario.parent().unwrap_or(Path::new("")).join(&reference.path));
    }
    data.map(|folder| folder.join(&reference.path)).ok_or_else(|| {
        let cause = "this is public data, which is not part of Crosslane";
        let remedy = "say where the data lies with --data DIR (docs/guide/real-data.md tells where to get it)";
        Error::usage(naming(&reference.name, scenario, reference), cause, remedy)
    })
}

fn naming(place: &str, scenario: &Path, reference: &FileRef) -> String {
    let line = reference.line.map_or(String::new(), |line| format!(" in line {line}"));
    format!("reading {place}, which {} names{line}", scenario.display())
}
