//! `crosslane check`: validates a scenario or an agent's configuration.

use std::path::Path;
use std::process::ExitCode;

use crosslane_sim::check::{prove, warnings};
use crosslane_sim::oracle::{Foresight, Params};
use crosslane_sim::scenario::{Engine, Scenario, TrafficKind};
use crosslane_sim::world::World;
use serde_json::json;

use crate::agent::config;
use crate::error::{Error, Result};
use crate::{output, scenario_file, text_file};

/// Seeds whose shadowing must show what the scenario expects.
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// Checks a file and says what it found; the exit code is 1 where a scenario
/// cannot show what it expects.
///
/// # Errors
/// What is wrong with the file, in one sentence.
pub fn run(file: &Path, data: Option<&Path>, json: bool) -> Result<ExitCode> {
    if is_configuration(file) {
        let config = config::read(file)?;
        let paths = Some(config.paths.len()).filter(|count| *count > 0);
        let tunnel = config.tunnel.as_ref().map(|tunnel| tunnel.get_ref().check_files()).transpose()?;
        let texts: Vec<String> =
            paths.map(|count| format!("configuration of {count} paths")).into_iter().chain(tunnel).collect();
        print(file, json, "configuration", true, &texts, &[])?;
        return Ok(ExitCode::SUCCESS);
    }
    let scenario = scenario_file::read(file, data)?;
    let proofs = prove(&scenario, &SEEDS)?;
    let ok = proofs.iter().all(|proof| proof.ok);
    let cannot =
        [("drive", Engine::Kernel), ("simulate", Engine::Simulator)].into_iter().filter_map(|(command, engine)| {
            let fault = scenario.check_engine(engine).err()?;
            let line = fault.line.map_or(String::new(), |line| format!("line {line}: "));
            Some(format!("`crosslane {command}` cannot run it: {line}{}", fault.what))
        });
    let told = proofs.iter().map(|proof| proof.text.clone());
    let texts: Vec<String> = told.chain(bounds(&scenario)?).chain(cannot).collect();
    print(file, json, "scenario", ok, &texts, &warnings(&scenario, &proofs))?;
    if ok {
        return Ok(ExitCode::SUCCESS);
    }
    let failed: Vec<&str> = proofs.iter().filter(|proof| !proof.ok).map(|proof| proof.text.as_str()).collect();
    let attempt = format!("proving what {} expects", file.display());
    Err(Error::failure(attempt, failed.join("; ")).with_remedy("change the scenario or what it expects"))
}

/// What each path could carry of uploads, which take all that they get.
fn bounds(scenario: &Scenario) -> Result<Vec<String>> {
    if !matches!(scenario.traffic.kind, TrafficKind::Uploads { .. }) {
        return Ok(Vec::new());
    }
    let foresight = Foresight::new(World::new(scenario, SEEDS[0])?, scenario, Params::default());
    let paths = scenario.paths().into_iter().zip(foresight.bytes());
    let text = |name: &str, bytes: f64| format!("{name} could carry {:.0} MB while the traffic runs", bytes / 1e6);
    Ok(paths.map(|(path, bytes)| text(path.name, bytes)).collect())
}

/// A file with a `[[path]]`, or a gateway's `listen`, is an agent's configuration. What cannot be read
/// is left to the reader of scenarios, which says why.
fn is_configuration(file: &Path) -> bool {
    let text = text_file::read(file).unwrap_or_default();
    let is_of_agents = |line: &str| {
        line.starts_with("[[path]]") || line.starts_with("listen ") || line.starts_with("[[tunnel.vehicle]]")
    };
    text.lines().any(|line| is_of_agents(line.trim_start()))
}

fn print(file: &Path, json: bool, kind: &str, ok: bool, findings: &[String], warnings: &[String]) -> Result<()> {
    let attempt = "printing what was checked";
    if json {
        let found = json!({ "file": file, "kind": kind, "ok": ok, "findings": findings, "warnings": warnings });
        return output::print(attempt, format!("{found:#}\n"));
    }
    let head = format!("{}: {kind}{}", file.display(), if ok { ", valid" } else { "" });
    let findings = findings.iter().map(|finding| format!("  {finding}"));
    let warnings = warnings.iter().map(|warning| format!("  note: {warning}"));
    let lines: Vec<String> = [head].into_iter().chain(findings).chain(warnings).collect();
    output::print(attempt, lines.join("\n") + "\n")
}
