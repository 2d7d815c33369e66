//! A recorded drive as a source of the agent: the same decisions as then.

#![allow(clippy::unwrap_used)]

mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crosslane::observe::recorded::Recorded;
use crosslane::run_folder::events::agent_event;
use crosslane_core::agent::Agent as Engine;
use crosslane_core::allocate::Mode;
use crosslane_core::engine::Engine as _;
use crosslane_core::path::{PathId, PathSpec, Rat, Sample, SampleKind};
use crosslane_core::strategy::threshold;
use crosslane_core::time;
use program::agent::Agent;
use program::links::two_links;
use program::{SCENARIO, busy, can_drive, crosslane};
use serde_json::Value;
use tempfile::TempDir;

const NAMES: [&str; 2] = ["its-g5", "lte"];
/// Longest time after the drive until the agent's file has its decisions.
const SOON: Duration = Duration::from_secs(20);

/// Simulates a car that leaves the coverage of a roadside unit: the path is entered and left twice. The folder of the run.
fn simulate(workdir: &Path) -> PathBuf {
    let route = "from_m = [100, 4], to_m = [1100, 4], speed_kmh = 300";
    let scenario = SCENARIO.replace("duration_s = 4", "duration_s = 6").replace("[0, 200]", "[0, 1200]");
    let scenario = scenario.replace("from_m = [40, 4], to_m = [100, 4], speed_kmh = 50", route);
    fs::write(workdir.join("s.toml"), scenario).unwrap();
    let arguments =
        ["simulate", "s.toml", "--strategy", "threshold", "--seed", "1", "--records", "all", "--out", "out"];
    let output = crosslane(workdir, &arguments);
    assert_eq!(output.code, Some(0), "{output:?}");
    workdir.join("out/runs/threshold-1")
}

/// The decisions in a file of events.
fn decisions(text: &str) -> Vec<Value> {
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == "decision").collect()
}

fn names() -> Vec<String> {
    NAMES.map(String::from).to_vec()
}

/// Decisions of an engine that receives the recorded signals at their times, and nothing else but that the interfaces
/// are up.
fn replayed(run: &Path) -> Vec<Value> {
    let spec = |(name, rat): (&str, Rat)| PathSpec { name: name.into(), rat, local: None, if_index: 0, radio: None };
    let specs: Vec<PathSpec> = NAMES.into_iter().zip([Rat::Ieee80211p, Rat::Lte]).map(spec).collect();
    let strategy = Arc::new(threshold::Params::default());
    let mut engine = Engine::new(&specs, &[0, 1], Mode::Aggregate, strategy, Vec::new());
    let mut found = Vec::new();
    let mut advance = |engine: &mut Engine, now| {
        while let Some(output) = engine.poll(now) {
            found.extend(Some(agent_event(now, &output, None, &names())).filter(|event| event["event"] == "decision"));
        }
    };
    for path in [PathId(0), PathId(1)] {
        engine.handle(time::Instant::ZERO, Sample { path, kind: SampleKind::Link { up: true } }.into());
    }
    advance(&mut engine, time::Instant::ZERO);
    for sample in Recorded::open(run, names()).unwrap() {
        let (at, sample) = sample.unwrap();
        while let Some(due) = engine.next_wakeup().filter(|due| *due < at) {
            advance(&mut engine, due);
        }
        engine.handle(at, sample.into());
        advance(&mut engine, at);
    }
    found
}

#[test]
fn an_engine_that_receives_the_recorded_signals_decides_as_then() {
    let workdir = TempDir::new().unwrap();
    let run = simulate(workdir.path());
    let then = decisions(&fs::read_to_string(run.join("events.jsonl")).unwrap());
    assert!(then.len() >= 5, "{then:#?}");
    assert_eq!(replayed(&run), then);
}

#[test]
fn a_table_that_is_none_of_samples_is_named() {
    let workdir = TempDir::new().unwrap();
    let run = simulate(workdir.path());
    let fault = |run: &Path| Recorded::open(run, names()).err().unwrap().to_string();
    assert!(fault(&run.join("links.arrow")).contains("it has no column `kind`; name a folder that"));
    assert!(fault(workdir.path()).contains("samples.arrow: No such file or directory"));
    fs::write(run.join("samples.arrow"), "no table").unwrap();
    assert!(fault(&run).contains("samples.arrow: "));
}

/// Path, state and rule of each decision.
fn course(decisions: &[Value]) -> Vec<[String; 3]> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    decisions.iter().map(|event| ["path", "state", "rule"].map(|key| text(event, key))).collect()
}

#[test]
fn an_installed_agent_that_replays_a_drive_decides_as_then() {
    if !can_drive() {
        return;
    }
    let workdir = TempDir::new().unwrap();
    let run = simulate(workdir.path());
    let then = course(&decisions(&fs::read_to_string(run.join("events.jsonl")).unwrap()));
    let (testbed, _emulator) = two_links(NAMES, 10.0, 5);
    let configuration = format!(
        "[[path]]\nname = \"its-g5\"\nrat = \"80211p\"\n[[path]]\nname = \"lte\"\nrat = \"lte\"\n\
         [strategy]\nname = \"threshold\"\n[observe]\nreplay = {run:?}\n[log]\nevents = \"EVENTS\"\n"
    );
    busy::decide(|| {
        let agent = Agent::start(&testbed.vehicle, &configuration);
        let began = Instant::now();
        while !agent.read("stderr").contains("has ended after") {
            assert!(began.elapsed() < SOON, "{}", agent.read("stderr"));
            sleep(Duration::from_millis(100));
        }
        let now = course(&decisions(&agent.end().0));
        if now == then { Ok(()) } else { Err(format!("{now:#?} instead of {then:#?}")) }
    });
}
