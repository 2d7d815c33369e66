//! `crosslane check`: validates a scenario or an agent's configuration.

use std::path::Path;
use std::process::ExitCode;

use crosslane_sim::bounds::feasibility::{prove, warnings};
use crosslane_sim::bounds::oracle::{Foresight, Params};
use crosslane_sim::scenario::{Engine, Scenario, TrafficKind};
use crosslane_sim::world::World;
use serde_json::json;

use crate::agent::config::{self, Config};
use crate::agent::machine;
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
        return check_configuration(file, json);
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

/// Says all that `agent` would refuse (exit code 2), and what it would find
/// missing on this machine, as it is now and for this user.
fn check_configuration(file: &Path, json: bool) -> Result<ExitCode> {
    let config = config::read(file)?;
    let mut refusals = machine::refusals(&config);
    let Some(last) = refusals.pop() else {
        let missing = [machine::lacks(&config), machine::waits(&config)].concat();
        print(file, json, "configuration", true, &[what_it_is(&config)], &missing)?;
        return Ok(ExitCode::SUCCESS);
    };
    if json {
        let faults: Vec<String> = refusals.iter().chain([&last]).map(ToString::to_string).collect();
        print(file, json, "configuration", false, &faults, &[])?;
    } else {
        refusals.iter().for_each(|refusal| eprintln!("crosslane: {refusal}"));
    }
    Err(last)
}

fn what_it_is(config: &Config) -> String {
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let paths = count(config.paths.len(), "path");
    let Some(tunnel) = config.tunnel.as_ref().map(|tunnel| tunnel.get_ref()) else {
        return format!("a vehicle with {paths}");
    };
    match (&tunnel.listen, &tunnel.gateway) {
        (Some(at), _) => {
            let vehicles = count(tunnel.vehicles.len(), "vehicle");
            format!("a gateway for {vehicles}, listening on {}", at.get_ref())
        }
        (None, Some(gateway)) => format!("a vehicle with {paths} and a tunnel to {}", gateway.get_ref()),
        (None, None) => format!("a vehicle with {paths}"),
    }
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
        line.starts_with("[[path]]")
            || line.starts_with("listen ")
            || line.starts_with("listen=")
            || line.starts_with("[[tunnel.vehicle]]")
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
