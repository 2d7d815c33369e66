//! `crosslane check`: validates a scenario or an agent's configuration.

use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

use crosslane_sim::bounds::feasibility::{prove, warnings};
use crosslane_sim::bounds::oracle::Foresight;
use crosslane_sim::input::renamed_keys::renew;
use crosslane_sim::scenario::{Engine, OracleParams, Scenario};
use crosslane_sim::world::World;
use serde_json::json;
use toml::de::DeTable;

use crate::agent::config::{self, Config};
use crate::agent::machine;
use crate::error::{Error, Result, with_short_numbers};
use crate::{controller, durable_file, output, scenario_file, text_file};

/// Seeds whose shadowing must show what the scenario expects.
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// What a file is.
#[derive(Clone, Copy)]
enum Kind {
    Scenario,
    Configuration,
    Controller,
}

impl Kind {
    /// A file with `listen` outside of sections is a controller's. One with a `path`, a `unit`, a `roadside`, or a
    /// gateway's `listen`, is an agent's configuration, and so is one with nothing that every scenario has. Of what is no
    /// TOML, the keys that can be read decide.
    fn of(text: &str) -> Kind {
        let (document, _) = DeTable::parse_recoverable(text);
        let table = document.get_ref();
        let has = |keys: &[&str]| keys.iter().any(|key| table.contains_key(*key));
        let tunnel = table.get("tunnel").and_then(|value| value.get_ref().as_table());
        let is_gateway = tunnel.is_some_and(|keys| keys.contains_key("listen") || keys.contains_key("vehicle"));
        let is_agent = is_gateway || has(&["path", "unit", "roadside"]);
        let may_be_scenario = table.is_empty() || has(&["name", "duration_s", "vehicle", "traffic"]);
        if has(&["listen"]) {
            Kind::Controller
        } else if is_agent || !may_be_scenario {
            Kind::Configuration
        } else {
            Kind::Scenario
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Scenario => "scenario",
            Kind::Configuration => "configuration",
            Kind::Controller => "controller",
        }
    }
}

/// What a check found.
#[derive(Default)]
struct Found {
    findings: Vec<String>,
    notes: Vec<String>,
    /// What keeps the file from its use.
    failure: Option<Error>,
}

/// Checks a file and says what it found; the exit code is 1 where a scenario
/// cannot show what it expects.
///
/// # Errors
/// What is wrong with the file, in one sentence.
pub fn run(file: &Path, data: Option<&Path>, fix: bool, json: bool) -> Result<ExitCode> {
    if fix {
        rewrite(file)?;
    }
    let text = text_file::read(file).map_err(|cause| {
        Error::usage(format!("reading {}", file.display()), cause, "name a scenario or a configuration that exists")
    })?;
    let kind = Kind::of(&text);
    let checked = match kind {
        Kind::Scenario => check_scenario(file, &text, data),
        Kind::Configuration => check_configuration(file, &text),
        Kind::Controller => check_controller(file, &text),
    };
    let found = checked.unwrap_or_else(|fault| Found { failure: Some(fault), ..Found::default() });
    if json || found.failure.is_none() || !found.findings.is_empty() {
        print(file, json, kind.name(), &found)?;
    }
    found.failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn check_scenario(file: &Path, text: &str, data: Option<&Path>) -> Result<Found> {
    let scenario = scenario_file::parse(text, file, data)?;
    for strategy in &scenario.strategies {
        // A strategy that no command runs is a fault of the file.
        if scenario.check_strategy(Engine::Kernel, strategy).is_err() {
            scenario.check_strategy(Engine::Simulator, strategy)?;
        }
    }
    let proofs = prove(&scenario, &SEEDS)?;
    let cannot =
        [("drive", Engine::Kernel), ("simulate", Engine::Simulator)].into_iter().filter_map(|(command, engine)| {
            let fault = scenario.check_engine(engine).err()?;
            let line = fault.line.map_or(String::new(), |line| format!("line {line}: "));
            Some(format!("`crosslane {command}` cannot run it: {line}{}", fault.what))
        });
    let proved = proofs.iter().map(|proof| proof.text.clone());
    let findings = proved.chain(bounds(&scenario)?).chain(cannot).collect();
    let warnings = warnings(&scenario, &proofs).into_iter().map(|note| with_short_numbers(&note));
    let notes = former_names(&scenario.renamed).chain(warnings).collect();
    let failed: Vec<&str> = proofs.iter().filter(|proof| !proof.ok).map(|proof| proof.text.as_str()).collect();
    let failure = (!failed.is_empty()).then(|| {
        let attempt = format!("proving what {} expects", file.display());
        Error::failure(attempt, failed.join("; ")).with_remedy("change the scenario or what it expects")
    });
    Ok(Found { findings, notes, failure })
}

/// Says all that `agent` would refuse (exit code 2), and what it would find
/// missing on this machine, as it is now and for this user.
fn check_configuration(file: &Path, text: &str) -> Result<Found> {
    let config = config::parse_file(text, file)?;
    if let Some(fault) = machine::refusal(&config) {
        return Err(fault);
    }
    let notes = [former_names(&config.renamed).collect(), machine::lacks(&config), machine::waits(&config)].concat();
    Ok(Found { findings: vec![what_it_is(&config)], notes, failure: None })
}

/// Says all that `controller` would refuse.
fn check_controller(file: &Path, text: &str) -> Result<Found> {
    let config = controller::config::parse_file(text, file)?;
    controller::config::private_key(&config)?;
    let (units, vehicles) = (config.units.len(), config.vehicles.len());
    let finding = format!("a controller for {units} units and {vehicles} vehicles, listening on {}", config.listen);
    Ok(Found { findings: vec![finding], ..Found::default() })
}

fn what_it_is(config: &Config) -> String {
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    if let Some(unit) = config.unit.as_ref().map(|unit| unit.get_ref()) {
        let controller = unit.controller.as_ref().map_or("none".into(), |name| name.get_ref().clone());
        return format!("the roadside unit {}, whose controller is {controller}", unit.station);
    }
    let mut paths = count(config.paths.len(), "path");
    if let Some(roadside) = &config.roadside {
        let units = count(roadside.get_ref().units.len(), "roadside unit");
        paths = format!("{paths} and tunnels to {units}");
    }
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
    if !scenario.traffic.kind.reports_bounds() {
        return Ok(Vec::new());
    }
    let foresight = Foresight::new(World::new(scenario, SEEDS[0])?, scenario, OracleParams::default());
    let paths = scenario.paths().into_iter().zip(foresight.bytes());
    let text = |name: &str, bytes: f64| format!("{name} could carry {:.0} MB while the traffic runs", bytes / 1e6);
    Ok(paths.map(|(path, bytes)| text(path.name, bytes)).collect())
}

/// Replaces former names of keys in the file, or in that to which a symbolic link leads.
fn rewrite(file: &Path) -> Result<()> {
    let attempt = format!("rewriting {}", file.display());
    let fault = |cause: io::Error| Error::usage(&attempt, cause, "name a file that can be read and written");
    let text = text_file::read(file).map_err(fault)?;
    let (renewed, replaced) = renew(&text);
    if !replaced.is_empty() {
        let file = fs::canonicalize(file).map_err(fault)?;
        durable_file::rewrite(&file, renewed.as_bytes()).map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => {
                let cause = format!("{}.new exists, perhaps of a rewrite that was killed", file.display());
                Error::usage(&attempt, cause, "look at that file, and remove it")
            }
            _ => fault(cause),
        })?;
    }
    replaced.iter().for_each(|sentence| output::message(format_args!("{}, {sentence}", file.display())));
    Ok(())
}

fn former_names(renamed: &[String]) -> impl Iterator<Item = String> {
    renamed.iter().map(|sentence| format!("{sentence}; `crosslane check --fix` rewrites it"))
}

fn print(file: &Path, json: bool, kind: &str, found: &Found) -> Result<()> {
    let attempt = "printing what was checked";
    let Found { findings, notes, failure } = found;
    let ok = failure.is_none();
    if json {
        let fault = failure.iter().filter(|_| findings.is_empty()).map(Error::to_string);
        let findings: Vec<String> = findings.iter().cloned().chain(fault).collect();
        let found =
            json!({ "file": file.to_string_lossy(), "kind": kind, "ok": ok, "findings": findings, "warnings": notes });
        return output::print(attempt, format!("{found:#}\n"));
    }
    let head = format!("{}: {kind}{}", file.display(), if ok { ", valid" } else { "" });
    let findings = findings.iter().map(|finding| format!("  {finding}"));
    let notes = notes.iter().map(|note| format!("  note: {note}"));
    let lines: Vec<String> = [head].into_iter().chain(findings).chain(notes).collect();
    output::print(attempt, lines.join("\n") + "\n")
}
