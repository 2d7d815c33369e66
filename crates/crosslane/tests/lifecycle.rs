//! Start, end and interruption of a drive: the files in its output folder, and no
//! process or namespace left.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::time::Duration;

use crate::program::drive::Drive;
use crate::program::{METRICS, RECORDS, SCENARIO, can_drive, not_run};
use arrow_ipc::reader::FileReader;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Metrics that only an emulated drive has.
const EMULATOR_METRICS: [&str; 3] = ["lateness_us.p99", "stall_us.max", "agent.rss_mb"];

/// A drive of the short scenario with strategy `threshold`.
fn start() -> Drive {
    Drive::start(SCENARIO, "threshold", |_, _| {})
}

/// Waits until traffic can flow: the agent runs and both namespaces exist.
fn await_ready(drive: &mut Drive) {
    drive.until(|drive| !agents(drive).is_empty() && drive.namespaces().len() >= 2);
}

fn agents(drive: &Drive) -> Vec<Pid> {
    drive.programs(1, "agent")
}

#[test]
fn a_drive_leaves_exactly_the_files_of_the_formats() {
    if !can_drive() {
        return;
    }
    let (workdir, output) = start().end();
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    let out = workdir.path().join("out");
    let summary: Value = serde_json::from_str(&output.stdout).unwrap();
    let written: Value = serde_json::from_str(&fs::read_to_string(out.join("summary.json")).unwrap()).unwrap();
    assert_eq!(summary, written);
    assert_eq!(fs::read_to_string(out.join("scenario.toml")).unwrap(), SCENARIO);
    assert!(fs::read_to_string(out.join("versions.json")).unwrap().contains("\"kernel\""));
    check_summary(&summary);
    let run = out.join("runs/threshold-1");
    for (record, columns) in RECORDS {
        let reader = FileReader::try_new(File::open(run.join(format!("{record}.arrow"))).unwrap(), None).unwrap();
        let names: Vec<String> = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names.join(" "), columns, "{record}");
        let rows: usize = reader.map(|batch| batch.unwrap().num_rows()).sum();
        assert!(rows > 10, "{record}: {rows} rows");
    }
    check_events(&fs::read_to_string(run.join("events.jsonl")).unwrap());
    assert_eq!(fs::read_to_string(run.join("agent.log")).unwrap(), "");
    assert!(run.join("agent.toml").exists());
    let names = fs::read_dir(&run).unwrap().count();
    assert_eq!(names, RECORDS.len() + 3, "{run:?} has files that the formats do not list");
}

fn check_summary(summary: &Value) {
    assert_eq!(
        (&summary["schema"], &summary["scenario"], &summary["engine"]),
        (&1.into(), &"short".into(), &"kernel".into())
    );
    assert_eq!((&summary["seeds"][0], &summary["strategies"][0]), (&1.into(), &"threshold".into()));
    assert_eq!((summary["duration_s"].as_f64(), summary["expect"].as_array().map(Vec::len)), (Some(4.0), Some(0)));
    let run = &summary["runs"][0];
    assert_eq!(
        (&run["strategy"], &run["seed"], &run["folder"]),
        (&"threshold".into(), &1.into(), &"runs/threshold-1".into())
    );
    assert!(run["valid"].is_boolean() && run["attempts"].as_u64().is_some_and(|attempts| attempts <= 3), "{run}");
    for metric in METRICS.iter().chain(&EMULATOR_METRICS) {
        assert!(run["metrics"][*metric].is_number(), "{metric} in {:#}", run["metrics"]);
    }
    let metric = |name: &str| run["metrics"][name].as_f64().unwrap();
    assert_eq!((metric("messages.sent"), metric("messages.lost")), (100.0, 0.0), "from 1 s to 3 s");
    // Eight tenths of it are pages of the program's file.
    assert!((1.0..=12.0).contains(&metric("agent.rss_mb")), "{} MB", metric("agent.rss_mb"));
}

fn check_events(text: &str) {
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in &events {
        assert!(event["t_s"].is_number() && event["source"].is_string() && event["event"].is_string(), "{event}");
    }
    let decision = events.iter().find(|event| event["event"] == "decision").expect("a decision");
    for key in ["path", "state", "was", "rule", "reason"] {
        assert!(decision[key].is_string(), "{key} in {decision}");
    }
    assert!(events.iter().any(|event| event["event"] == "subflow_established" && event["path"].is_string()));
    let late = events.iter().filter(|event| event["event"] == "alarm" && event["t_s"].as_f64() >= Some(4.0));
    assert_eq!(late.count(), 0, "alarms after the end");
}

#[test]
fn two_drives_at_the_same_time_do_not_interfere() {
    if !can_drive() {
        return;
    }
    for drive in [start(), start()] {
        let (_workdir, output) = drive.end();
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    }
}

#[test]
fn no_signal_leaves_a_process_or_namespace_of_a_drive() {
    if !can_drive() {
        return;
    }
    let mut signals = vec![Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGKILL];
    // Under nohup all processes ignore SIGHUP.
    signals.retain(|signal| !is_ignored(*signal));
    let mut drives: Vec<Drive> = signals.iter().map(|_| start()).collect();
    drives.iter_mut().for_each(await_ready);
    // All signals at once: no drive may end before its signal.
    drives.iter().zip(&signals).for_each(|(drive, signal)| drive.signal(*signal));
    for (drive, signal) in drives.into_iter().zip(signals) {
        let (_workdir, output) = drive.end();
        assert_ne!(output.code, Some(0), "{signal}");
    }
}

/// A vehicle, ten roadside units, the gateway and the server.
#[test]
fn sigkill_leaves_no_namespace_of_thirteen_parties() {
    if !can_drive() {
        return;
    }
    let unit = |number: u32| {
        let x_m = number * 10;
        format!("[[roadside_unit]]\nname = \"rsu{number}\"\nradio = \"its-g5\"\nposition_m = [{x_m}, 0]\n")
    };
    let units: String = (2..=10).map(unit).collect();
    let scenario = SCENARIO.replacen("rate_mbit_s", "paths = \"units\"\nrate_mbit_s", 1);
    let scenario = scenario.replacen("[[cellular]]", &(units + "[[cellular]]"), 1);
    let mut drive = Drive::start(&scenario, "threshold", |_, _| {});
    drive.until(|drive| !agents(drive).is_empty() && drive.namespaces().len() == 13);
    drive.signal(Signal::SIGKILL);
    drop(drive.end());
}

/// The signal arrives during the third run.
#[test]
fn an_interrupted_drive_leaves_the_summary_of_its_complete_runs() {
    if !can_drive() {
        return;
    }
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let scenario = SCENARIO.replace("duration_s = 4", "duration_s = 2.5");
        let mut drive = Drive::start(&scenario, "single", |command, _| {
            command.args(["--seed", "1..30"]);
        });
        let out = drive.folder().join("out");
        drive.until_within(Duration::from_secs(60), |_| out.join("runs/single-3").exists());
        drive.signal(signal);
        let (_workdir, output) = drive.end();
        assert_eq!(output.code, Some(code), "{output:?}");
        let message = output.sentence();
        assert!(
            message.starts_with("crosslane: while driving: it was interrupted; out/summary.json contains the "),
            "{message}"
        );
        let summary: Value = serde_json::from_str(&fs::read_to_string(out.join("summary.json")).unwrap()).unwrap();
        assert_eq!(summary["interrupted"], true);
        let runs = summary["runs"].as_array().unwrap();
        assert!((2..30).contains(&runs.len()), "{} runs", runs.len());
        for run in runs {
            assert!(out.join(run["folder"].as_str().unwrap()).join("events.jsonl").exists(), "{run}");
        }
        assert_eq!(fs::read_dir(out.join("runs")).unwrap().count(), runs.len(), "an incomplete run is left");
    }
}

#[test]
fn a_second_signal_ends_a_drive_at_once() {
    if !can_drive() {
        return;
    }
    let mut drive = start();
    await_ready(&mut drive);
    drive.signal(Signal::SIGTERM);
    drive.signal(Signal::SIGINT);
    let (_workdir, output) = drive.end();
    assert!(matches!(output.code, Some(130 | 143)), "{output:?}");
}

/// True if this process, and so its children, ignore the signal.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    u64::from_str_radix(mask, 16).unwrap() >> (signal as u64 - 1) & 1 == 1
}

#[test]
fn an_agent_that_is_killed_ends_the_drive_with_one_message() {
    if !can_drive() {
        return;
    }
    let mut drive = start();
    await_ready(&mut drive);
    kill(agents(&drive)[0], Signal::SIGKILL).unwrap();
    let (_workdir, output) = drive.end();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert_eq!(output.sentence(), "crosslane: while driving: the agent exited early: signal: 9 (SIGKILL)");
}

/// The output folder is a file system of 64 KiB, mounted only for the drive.
#[test]
fn a_full_disk_ends_the_drive_with_one_message() {
    if !can_drive() {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        not_run("mounting a small file system needs root");
        return;
    }
    let drive = Drive::start(SCENARIO, "threshold", |command, out| {
        let out = out.to_owned();
        let prepare = move || {
            let none: Option<&str> = None;
            unshare(CloneFlags::CLONE_NEWNS)?;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
            mount(Some("tmpfs"), &out, Some("tmpfs"), MsFlags::empty(), Some("size=64k"))?;
            Ok(())
        };
        // SAFETY: only system calls happen between fork and exec.
        unsafe { command.pre_exec(prepare) };
    });
    let (_workdir, output) = drive.end();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.sentence().contains("No space left on device"), "{output:?}");
}
