//! Drives with one radio interface and a tunnel to each roadside unit: the agent discovers the
//! units, and builds and removes the tunnels, as on a vehicle.

use std::fs;

use crate::program::{can_drive, crosslane};
use serde_json::Value;
use tempfile::TempDir;

/// The first unit is off after 5 s, the second one until 2 s.
const SCENARIO: &str = r#"name = "tunnels"
duration_s = 9
[vehicle]
route = { from_m = [40, 4], to_m = [240, 4], speed_kmh = 90 }
[[radio]]
name = "its-g5"
rat = "80211p"
paths = "units"
tunnel = "KIND"
slots = SLOTS
rate_mbit_s = 6
path_loss = "highway-los"
shadowing_db = 0
[[roadside_unit]]
name = "rsu1"
radio = "its-g5"
position_m = [40, 0]
outages_s = [[5, 9]]
[[roadside_unit]]
name = "rsu2"
radio = "its-g5"
position_m = [240, 0]
outages_s = [[0, 2]]
[traffic]
kind = "messages"
size_bytes = 500
every_ms = 20
"#;

fn events(folder: &TempDir, run: &str, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.path().join("out/runs").join(run).join("events.jsonl")).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == name).collect()
}

/// Drives with a kind of tunnel and this number of slots; every message arrives, and both units
/// carry some.
fn drive(kind: &str, slots: u8, expected: &[&str]) -> TempDir {
    let folder = TempDir::new().unwrap();
    let scenario = SCENARIO.replace("KIND", kind).replace("SLOTS", &slots.to_string());
    fs::write(folder.path().join("s.toml"), scenario).unwrap();
    let output = crosslane(folder.path(), &["drive", "s.toml", "--strategy", "kernel,torrinhas", "--out", "out"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let summary = fs::read_to_string(folder.path().join("out/summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    for run in summary["runs"].as_array().unwrap() {
        let (strategy, metrics) = (&run["strategy"], &run["metrics"]);
        let value = |name: &str| metrics[name].as_f64().unwrap_or_else(|| panic!("{strategy} has no {name}"));
        assert_eq!(value("messages.lost"), 0.0, "{strategy}");
        for unit in ["rsu1", "rsu2"] {
            assert!(value(&format!("path.{unit}.share")) > 0.2, "{strategy} {unit}: {metrics}");
        }
    }
    let changes: Vec<String> = events(&folder, "torrinhas-1", "roadside")
        .iter()
        .map(|event| format!("{} {}", event["action"].as_str().unwrap(), event["unit"].as_str().unwrap()))
        .collect();
    assert_eq!(changes, expected);
    let went_down = |event: &&Value| event["reason"].as_str().unwrap_or_default().contains("interface");
    let beliefs = events(&folder, "torrinhas-1", "belief");
    assert_eq!(beliefs.iter().filter(went_down).collect::<Vec<_>>(), [] as [&Value; 0]);
    folder
}

#[test]
fn a_drive_reaches_the_units_of_one_radio_interface_through_vxlan() {
    if can_drive() {
        drive("vxlan", 2, &["open rsu1", "open rsu2", "close rsu1"]);
    }
}

#[test]
fn a_drive_reaches_the_units_of_one_radio_interface_through_encrypted_tunnels() {
    if can_drive() {
        let folder = drive("crosslane", 1, &["open rsu1", "close rsu1", "open rsu2"]);
        assert!(!folder.path().join("out/runs/torrinhas-1/keys").exists(), "the keys are removed");
    }
}
