//! A drive along more roadside units than an agent has paths: they take turns in the slots of its
//! radio, on this machine's kernel as in simulated time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::program::{can_drive, crosslane};
use serde_json::Value;

const UNITS: usize = 18;
const SLOTS: usize = 4;
const DURATION_S: u32 = 24;

/// Units 60 m apart, which the vehicle passes at 200 km/h.
fn road() -> String {
    let mut text = format!(
        "name = \"road\"\nduration_s = {DURATION_S}\n\
         [vehicle]\nroute = {{ from_m = [0, 0], to_m = [1080, 0], speed_kmh = 200 }}\n\
         [traffic]\nkind = \"messages\"\nsize_bytes = 500\nevery_ms = 20\nstart_s = 1\nstop_s = 20\n\
         [[radio]]\nname = \"its-g5\"\nrat = \"80211p\"\npaths = \"units\"\nslots = {SLOTS}\nrate_mbit_s = 6\n\
         eirp_dbm = 0\npath_loss = \"cheng\"\nshadowing_db = 0\nfading = \"none\"\n"
    );
    for unit in 0..UNITS {
        let (x, station) = (unit * 60, 3000 + unit);
        text += &format!(
            "[[roadside_unit]]\nname = \"rsu{unit}\"\nradio = \"its-g5\"\nposition_m = [{x}, 10]\n\
             cam_period_ms = 50\nstation_id = {station}\n"
        );
    }
    text
}

/// What a run shows of the slots: the units that took one, in order, and the most at a time.
fn slots(run: &Path) -> (Vec<String>, usize) {
    let (mut taken, mut held, mut most) = (Vec::new(), BTreeMap::new(), 0);
    for line in fs::read_to_string(run.join("events.jsonl")).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        if event["event"] != "roadside" {
            continue;
        }
        let (unit, slot) = (event["unit"].as_str().unwrap().to_owned(), event["slot"].as_u64().unwrap());
        assert!(event["reason"].as_str().unwrap().contains(&unit), "{line}");
        if event["action"] == "open" {
            assert_eq!(held.insert(slot, unit.clone()), None, "{line}");
            taken.push(unit);
        } else {
            assert_eq!(held.remove(&slot), Some(unit), "{line}");
        }
        most = most.max(held.len());
    }
    (taken, most)
}

/// The metrics of the single run, and its slots.
fn run(workdir: &Path, command: &str, strategy: &str) -> (Value, (Vec<String>, usize)) {
    let arguments = [command, "s.toml", "--strategy", strategy, "--json", "--out", command];
    let output = crosslane(workdir, &arguments);
    assert_eq!(output.code, Some(0), "{output:?}");
    let summary: Value = serde_json::from_str(&output.stdout).unwrap();
    (summary["runs"][0]["metrics"].clone(), slots(&workdir.join(command).join(format!("runs/{strategy}-1"))))
}

#[test]
fn an_agent_adds_and_removes_paths_to_units_while_it_runs() {
    if !can_drive() {
        return;
    }
    let workdir = tempfile::TempDir::new().unwrap();
    fs::write(workdir.path().join("s.toml"), road()).unwrap();
    let all: BTreeSet<String> = (0..UNITS).map(|unit| format!("rsu{unit}")).collect();
    // A drive on a machine that others keep busy is late, but not dead.
    for (command, limit_ms) in [("drive", 5000.0), ("simulate", 500.0)] {
        let (metrics, (taken, most)) = run(workdir.path(), command, "threshold");
        assert_eq!((taken.iter().cloned().collect::<BTreeSet<_>>(), most), (all.clone(), SLOTS), "{command}");
        let shares = all.iter().map(|name| metrics[format!("path.{name}.share")].as_f64().unwrap_or(0.0));
        let used = shares.filter(|share| *share > 0.01).count();
        assert!(used >= 14, "{command}: {used} units carried data: {metrics}");
        let worst_ms = metrics["delivery_delay_ms.max"].as_f64().unwrap();
        eprintln!("{command}: {used} units carried data, worst delay {worst_ms:.0} ms");
        assert!(worst_ms < limit_ms, "{command}: {metrics}");
    }
}

#[test]
fn endpoints_of_the_kernel_s_path_manager_follow_the_slots() {
    if !can_drive() {
        return;
    }
    let workdir = tempfile::TempDir::new().unwrap();
    // Half of the way.
    let text = road().replace("stop_s = 20", "stop_s = 10").replace("duration_s = 24", "duration_s = 12");
    fs::write(workdir.path().join("s.toml"), text).unwrap();
    let (metrics, (taken, most)) = run(workdir.path(), "drive", "kernel");
    let used = taken.iter().filter(|name| metrics[format!("path.{name}.bytes")].as_f64().unwrap_or(0.0) > 5000.0);
    let (used, lost) = (used.collect::<BTreeSet<_>>().len(), metrics["messages.lost"].as_f64().unwrap());
    eprintln!("kernel: {} units had a slot, {used} of them carried data, {lost} messages lost", taken.len());
    assert!(taken.len() >= 9 && most == SLOTS && used >= 5 && lost < 225.0, "{metrics}");
}

#[test]
fn a_drive_of_the_kernel_s_path_manager_has_no_more_endpoints_than_it_takes() {
    let workdir = tempfile::TempDir::new().unwrap();
    fs::write(workdir.path().join("s.toml"), road().replace("slots = 4", "slots = 9")).unwrap();
    let output = crosslane(workdir.path(), &["drive", "s.toml", "--strategy", "kernel", "--out", "out"]);
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("needs 9 endpoints, and the kernel takes 8"), "{}", output.stderr);
}
