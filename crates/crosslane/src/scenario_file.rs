//! Scenario files and the files that they name.

use crosslane_sim::record::metrics::METRICS;
use crosslane_sim::scenario::{FileRef, Resolved, Scenario, ScenarioError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::import;
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
    let attempt = format!("reading scenario {}", file.display());
    let text = read_text(file, attempt, "name a scenario that exists, as those in scenarios/")?;
    let mut scenario = Scenario::parse(&text, &file.display().to_string())?;
    scenario.check_metrics(METRICS.iter().map(|metric| metric.name))?;
    let mut contents = BTreeMap::new();
    for reference in scenario.files() {
        let place = locate(file, &reference, data)?;
        let attempt = naming(&place.display().to_string(), file, &reference);
        let text = match import::import_named(&place) {
            Some(trace) => trace?,
            None => read_text(&place, attempt, "correct the name, or put the file there")?,
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

/// Makes the folder of a drive and puts the scenario into it, as it is and
/// `resolved`.
///
/// # Errors
/// Names the folder and the cause.
pub fn prepare_folder(folder: &Path, scenario: &Path, resolved: &Resolved) -> Result<()> {
    let attempt = || format!("making {}", folder.display());
    let remedy = "name a folder that can be written with --out";
    if folder.join("summary.json").exists() {
        eprintln!("crosslane: {} has the records of an earlier comparison; they are replaced", folder.display());
    }
    std::fs::create_dir_all(folder).map_err(|cause| Error::usage(attempt(), cause, remedy))?;
    std::fs::copy(scenario, folder.join("scenario.toml")).map_err(|cause| Error::usage(attempt(), cause, remedy))?;
    let json = serde_json::to_string_pretty(resolved).map_err(|cause| Error::failure(attempt(), cause))?;
    std::fs::write(folder.join("scenario.json"), json + "\n").map_err(|cause| Error::usage(attempt(), cause, remedy))
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

fn read_text(file: &Path, attempt: String, remedy: &str) -> Result<String> {
    text_file::read(file).map_err(|cause| Error::usage(attempt, cause, remedy))
}
