//! A recorded drive as a source of the agent: the same observations, and the same decisions as then.

use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::Agent;
use crate::program::links::two_links;
use crate::program::{SCENARIO, busy, can_drive, crosslane};
use arrow_array::RecordBatch;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::FileWriter;
use crosslane::observe::recorded::Recorded;
use crosslane::run_folder::events::agent_event;
use crosslane::run_folder::tables::{samples, write_table};
use crosslane_core::agent::{Agent as Engine, Input};
use crosslane_core::allocate::Mode;
use crosslane_core::engine::Engine as _;
use crosslane_core::path::{PathId, PathSpec, Position, Rat, Sample, SampleKind, Signal, VehicleState};
use crosslane_core::strategy::{Strategy, learned, threshold};
use crosslane_core::time;
use crosslane_sim::record::rows::SampleRow;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::world::{World, WorldSample};
use serde_json::Value;
use tempfile::TempDir;

const NAMES: [&str; 2] = ["its-g5", "lte"];
/// Longest time after the drive until the agent's file has its decisions.
const SOON: Duration = Duration::from_secs(20);

/// Simulates a drive. The folder of the run.
fn run_of(workdir: &Path, scenario: &str, strategy: &str) -> PathBuf {
    fs::write(workdir.join("s.toml"), scenario).unwrap();
    let arguments = ["simulate", "s.toml", "--strategy", strategy, "--seed", "1", "--records", "all", "--out", "out"];
    let output = crosslane(workdir, &arguments);
    assert_eq!(output.code, Some(0), "{output:?}");
    workdir.join(format!("out/runs/{strategy}-1"))
}

/// Simulates a car that leaves the coverage of a roadside unit: the path is entered and left twice. The folder of the run.
fn simulate(workdir: &Path) -> PathBuf {
    let route = "from_m = [100, 4], to_m = [1100, 4], speed_kmh = 300";
    let scenario = SCENARIO.replace("duration_s = 4", "duration_s = 6").replace("[0, 200]", "[0, 1200]");
    let scenario = scenario.replace("from_m = [40, 4], to_m = [100, 4], speed_kmh = 50", route);
    run_of(workdir, &scenario, "threshold")
}

/// The decisions in a file of events.
fn decisions(text: &str) -> Vec<Value> {
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(is_decision).collect()
}

fn is_decision(event: &Value) -> bool {
    event["event"] == "decision" || event["event"] == "order"
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// All of a recording.
fn inputs(run: &Path, names: &[&str]) -> Vec<(time::Instant, Input)> {
    Recorded::open(run, owned(names)).unwrap().map(Result::unwrap).collect()
}

/// Decisions of an engine that receives the recorded samples at their times, and nothing else but that the interfaces
/// are up.
fn replayed(run: &Path, paths: &[(&str, Rat)], strategy: Arc<dyn Strategy>) -> Vec<Value> {
    let names: Vec<&str> = paths.iter().map(|(name, _)| *name).collect();
    let spec = |&(name, rat): &(&str, Rat)| PathSpec { name: name.into(), rat, local: None, if_index: 0, radio: None };
    let specs: Vec<PathSpec> = paths.iter().map(spec).collect();
    let mut engine = Engine::new(&specs, &[0, 1], Mode::Aggregate, strategy, Vec::new());
    let mut found = Vec::new();
    let mut advance = |engine: &mut Engine, now| {
        while let Some(output) = engine.poll(now) {
            found.extend(Some(agent_event(now, &output, None, &owned(&names))).filter(is_decision));
        }
    };
    for path in [PathId(0), PathId(1)] {
        engine.handle(time::Instant::ZERO, Sample { path, kind: SampleKind::Link { up: true } }.into());
    }
    advance(&mut engine, time::Instant::ZERO);
    for (at, input) in inputs(run, &names) {
        while let Some(due) = engine.next_wakeup().filter(|due| *due < at) {
            advance(&mut engine, due);
        }
        engine.handle(at, input);
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
    let paths = [("its-g5", Rat::Ieee80211p), ("lte", Rat::Lte)];
    assert_eq!(replayed(&run, &paths, Arc::new(threshold::Params::default())), then);
}

/// Two modelled cells of two operators, and a tree that asks for their RSRQ and SINR.
const CELLS: &str = r#"name = "cells"
duration_s = 30
[vehicle]
route = { from_m = [-500, 0], to_m = [500, 0], speed_kmh = 120 }
[[cellular]]
name = "a"
rat = "lte"
delay_ms = 20
[cellular.model]
cells_m = [[-300, 40], [300, 200]]
[[cellular]]
name = "b"
rat = "lte"
delay_ms = 20
[cellular.model]
cells_m = [[0, 40]]
[traffic]
kind = "messages"
size_bytes = 200
every_ms = 100
[[strategy]]
name = "mine"
base = "learned"
tree = "tree.json"
trials = 0
"#;
const BY_QUALITY: &str = r#"{"format": "crosslane-tree", "version": 1, "strategy": "learned", "trained": {}, "nodes": [
    {"feature": "a-b.rsrq_db", "at_most": 0.0, "yes": 1, "no": 2},
    {"a_first": 0.1},
    {"feature": "a-b.sinr_db", "at_most": 1.0, "yes": 3, "no": 4}, {"a_first": 0.2}, {"a_first": 0.9}]}"#;

#[test]
fn a_tree_that_asks_for_rsrq_and_sinr_decides_as_then() {
    let workdir = TempDir::new().unwrap();
    fs::write(workdir.path().join("tree.json"), BY_QUALITY).unwrap();
    let run = run_of(workdir.path(), CELLS, "mine");
    let orders = |events: Vec<Value>| events.into_iter().filter(|event| event["event"] == "order").collect();
    let then: Vec<Value> = orders(decisions(&fs::read_to_string(run.join("events.jsonl")).unwrap()));
    assert!(then.len() >= 3, "{then:#?}");
    let tree = serde_json::from_str(BY_QUALITY).unwrap();
    let strategy = learned::Params { trials: 0.0, ..learned::Params::default() }.with_tree(tree).unwrap();
    let now: Vec<Value> = orders(replayed(&run, &[("a", Rat::Lte), ("b", Rat::Lte)], strategy));
    assert_eq!(now, then);
}

/// A roadside unit, a modem that announces handovers and reports RSRQ and SINR, and Wi-Fi with a PHY rate.
fn everything() -> String {
    let far = SCENARIO.replace("duration_s = 4", "duration_s = 60").replace("[0, 200]", "[0, 1900]");
    let far = far.replace(
        "from_m = [40, 4], to_m = [100, 4], speed_kmh = 50",
        "from_m = [40, 4], to_m = [1840, 4], speed_kmh = 108",
    );
    let modem = "delay_ms = 25\nhandovers = \"nsa-low\"\n[cellular.model]\ncells_m = [[300, 8]]\n";
    let wifi = "[[wifi]]\nname = \"wlan\"\ndelay_ms = 3\n[wifi.model]\nposition_m = [500, 0]\nband = \"5\"\n";
    far.replace("delay_ms = 25\nrate_mbit_s = 20\n", &format!("{modem}{wifi}"))
}

#[test]
fn a_recording_has_all_that_the_vehicle_observed() {
    let workdir = TempDir::new().unwrap();
    let run = run_of(workdir.path(), &everything(), "threshold");
    let scenario = Scenario::parse(&everything(), "s.toml").unwrap();
    let names: Vec<&str> = scenario.paths().iter().map(|path| path.name).collect();
    let mut world = World::new(&scenario, 1).unwrap();
    let (_, mut observed) = (world.links(&scenario, 1), Vec::new());
    while let Some(at) = world.next_wakeup() {
        while let Some(event) = world.poll(at) {
            let found = event.sample().into_iter().flat_map(|sample| sample.inputs());
            observed.extend(found.map(|input| (at, input)));
        }
    }
    let recorded = inputs(&run, &names);
    let differs = recorded.iter().zip(&observed).find(|(recorded, observed)| recorded != observed);
    assert_eq!((differs, recorded.len()), (None, observed.len()));
    let has = |what: fn(&Input) -> bool| recorded.iter().any(|(_, input)| what(input));
    let kind = |what: fn(&SampleKind) -> bool| {
        recorded.iter().any(|(_, input)| matches!(input, Input::Sample(sample) if what(&sample.kind)))
    };
    assert!(has(|input| matches!(input, Input::Vehicle(state) if state.position.is_some())));
    assert!(kind(|kind| matches!(kind, SampleKind::Handover { is_announced: true })));
    assert!(kind(|kind| matches!(kind, SampleKind::Handover { is_announced: false })));
    assert!(kind(|kind| matches!(kind, SampleKind::Radio(link) if link.tx_bit_s.is_some())));
    assert!(kind(|kind| matches!(kind, SampleKind::Signal(signal) if signal.sender.is_some())));
    let both = |signal: &Signal| signal.rsrq_db.is_some() && signal.sinr_db.is_some();
    assert!(recorded.iter().any(|(_, input)| match input {
        Input::Sample(Sample { kind: SampleKind::Signal(signal), .. }) => both(signal),
        _ => false,
    }));
}

/// Writes the first `count` columns of a recording as another one.
fn former(run: &Path, to: &Path, count: usize) {
    let reader = FileReader::try_new(File::open(run.join("samples.arrow")).unwrap(), None).unwrap();
    let columns: Vec<usize> = (0..count).collect();
    let schema = reader.schema().project(&columns).unwrap();
    let mut writer = FileWriter::try_new(File::create(to).unwrap(), &schema).unwrap();
    let batches: Vec<RecordBatch> = reader.map(|batch| batch.unwrap().project(&columns).unwrap()).collect();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
}

#[test]
fn a_recording_of_a_former_version_still_has_its_signals() {
    let workdir = TempDir::new().unwrap();
    let (run, file) = (simulate(workdir.path()), workdir.path().join("former.arrow"));
    former(&run, &file, 5);
    let mut recorded = Recorded::open(&file, owned(&NAMES)).unwrap();
    let notes = recorded.take_notes();
    assert!(notes[0].contains("former.arrow, without RSRQ, SINR, PHY rates, positions and announced"), "{notes:?}");
    let signal = |input: &Input| match input {
        Input::Sample(Sample { path, kind: SampleKind::Signal(signal) }) => {
            Some((*path, signal.rssi_dbm, signal.station))
        }
        _ => None,
    };
    let then: Vec<_> = inputs(&run, &NAMES).iter().filter_map(|(at, input)| Some((*at, signal(input)?))).collect();
    let kinds = recorded.map(Result::unwrap).filter_map(|(at, input)| Some((at, signal(&input)?)));
    assert!(then.len() > 50);
    assert_eq!(kinds.collect::<Vec<_>>(), then);
    former(&run, &file, 9);
    let fault = Recorded::open(&file, owned(&NAMES)).err().unwrap().to_string();
    assert!(fault.contains("it has no column `longitude_deg`; name a folder that"), "{fault}");
}

#[test]
fn rows_that_make_no_sense_are_left_out_and_the_first_is_named() {
    let workdir = TempDir::new().unwrap();
    let file = workdir.path().join("samples.arrow");
    let at = |latitude_deg| Some(Position { latitude_deg, longitude_deg: -8.0 });
    let signal = |rssi_dbm| WorldSample::Radio(PathId(1), Signal { rssi_dbm, ..Signal::default() }, None);
    let vehicle = |position| WorldSample::Vehicle(VehicleState { position, ..VehicleState::default() });
    let found = [signal(-90.0), vehicle(at(500.0)), signal(f32::NAN), signal(3.0), vehicle(at(41.0)), vehicle(None)];
    let rows = found.map(|sample| SampleRow { t_ns: 5, sample });
    write_table(&file, &owned(&NAMES), &rows, samples).unwrap();
    let mut recorded = Recorded::open(&file, owned(&NAMES)).unwrap();
    let kept: Vec<Input> = recorded.by_ref().map(|input| input.unwrap().1).collect();
    let sensible = [found[0], found[4], found[5]];
    assert_eq!(kept, sensible.iter().flat_map(WorldSample::inputs).collect::<Vec<_>>());
    let notes = recorded.take_notes();
    let expected = "row 2 and others like it are left out: `latitude_deg` is 500 and must be from -90 to 90";
    assert!(notes.len() == 1 && notes[0].ends_with(expected), "{notes:?}");
}

#[test]
fn a_table_that_is_none_of_samples_is_named() {
    let workdir = TempDir::new().unwrap();
    let run = simulate(workdir.path());
    let fault = |run: &Path| Recorded::open(run, owned(&NAMES)).err().unwrap().to_string();
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
