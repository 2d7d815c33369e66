//! A comparison in simulated time: what it leaves, that threads do not matter,
//! and how it ends early.

#![allow(clippy::unwrap_used)]

mod program;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use arrow_ipc::reader::FileReader;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use program::{CROSSLANE, METRICS, RECORDS, SCENARIO, Said, crosslane, not_run};
use serde_json::Value;
use tempfile::TempDir;

/// A folder with the scenario in it.
fn desk() -> TempDir {
    let desk = TempDir::new().unwrap();
    fs::write(desk.path().join("s.toml"), SCENARIO).unwrap();
    desk
}

fn simulate(desk: &TempDir, arguments: &str) -> Said {
    let arguments: Vec<&str> = ["simulate", "s.toml"].into_iter().chain(arguments.split(' ')).collect();
    crosslane(desk.path(), &arguments)
}

/// Every file below `folder`, by its name from there.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else {
                let name = entry.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, fs::read(&entry).unwrap());
            }
        }
    }
    found
}

fn summary(folder: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join("summary.json")).unwrap()).unwrap()
}

#[test]
fn a_simulation_leaves_the_run_folder_that_a_drive_leaves() {
    let desk = desk();
    let said = simulate(&desk, "--strategy threshold,mine --seed 3..4 --json --out out");
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
    let out = desk.path().join("out");
    let told: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(told, summary(&out));
    assert_eq!(
        (&told["schema"], &told["scenario"], &told["engine"]),
        (&1.into(), &"short".into(), &"simulator".into())
    );
    let names: Vec<String> =
        told["runs"].as_array().unwrap().iter().map(|run| run["folder"].as_str().unwrap().to_string()).collect();
    assert_eq!(names, ["runs/threshold-3", "runs/mine-3", "runs/threshold-4", "runs/mine-4"]);
    for run in told["runs"].as_array().unwrap() {
        assert_eq!((&run["valid"], &run["attempts"]), (&true.into(), &1.into()));
        let metrics = run["metrics"].as_object().unwrap();
        let missing: Vec<_> = METRICS.iter().filter(|name| !metrics.contains_key(**name)).collect();
        assert_eq!(missing, [] as [&&str; 0], "{metrics:?}");
        assert!(!metrics.contains_key("stall_us.max"), "only the kernel's emulator has that");
        assert_eq!((metrics["messages.sent"].as_f64(), metrics["messages.lost"].as_f64()), (Some(100.0), Some(0.0)));
    }
    assert_eq!(fs::read_to_string(out.join("scenario.toml")).unwrap(), SCENARIO);
    let run = out.join("runs/threshold-3");
    for (record, columns) in RECORDS {
        let reader = FileReader::try_new(File::open(run.join(format!("{record}.arrow"))).unwrap(), None).unwrap();
        let names: Vec<String> = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names.join(" "), columns, "{record}");
        let rows: usize = reader.map(|batch| batch.unwrap().num_rows()).sum();
        assert!(rows > 10, "{record}: {rows} rows");
    }
    check_events(&fs::read_to_string(run.join("events.jsonl")).unwrap());
    assert_eq!(fs::read_dir(&run).unwrap().count(), RECORDS.len() + 1, "more than the formats promise");
}

fn check_events(text: &str) {
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in &events {
        assert!(event["t_s"].is_number() && event["source"].is_string() && event["event"].is_string(), "{event}");
    }
    let times: Vec<f64> = events.iter().filter_map(|event| event["t_s"].as_f64()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let decision = events.iter().find(|event| event["event"] == "decision").expect("a decision");
    for key in ["path", "state", "was", "rule", "reason"] {
        assert!(decision[key].is_string(), "{key} in {decision}");
    }
    assert!(events.iter().any(|event| event["event"] == "subflow_established" && event["path"] == "lte"));
}

#[test]
fn one_thread_and_two_write_the_same_bytes() {
    let desk = desk();
    let jobs = |jobs: u32| {
        let said = simulate(&desk, &format!("--seed 1..3 --jobs {jobs} --out jobs-{jobs}"));
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
        files(&desk.path().join(format!("jobs-{jobs}")))
    };
    let (one, two) = (jobs(1), jobs(2));
    assert_eq!(one.len(), 3 + 9 * (RECORDS.len() + 1));
    assert_eq!(one.keys().collect::<Vec<_>>(), two.keys().collect::<Vec<_>>());
    for (name, bytes) in &one {
        assert!(two[name] == *bytes, "{name} differs");
    }
}

#[test]
fn runs_stand_in_the_order_of_the_plan_whatever_thread_was_first() {
    let desk = desk();
    let runs = |jobs: u32| {
        let said = simulate(&desk, &format!("--seed 1..60 --jobs {jobs} --json --out jobs-{jobs}"));
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
        said.stdout
    };
    assert!(runs(1) == runs(16));
}

/// What is summed up as packets pass is what their record adds up to.
#[test]
fn records_are_kept_of_few_runs_and_cost_no_metric() {
    let desk = desk();
    let few = simulate(&desk, "--seed 1..2 --strategy kernel,mine --json --out few");
    let none = simulate(&desk, "--seed 1..2 --strategy kernel,mine --json --records none --out none");
    let many = simulate(&desk, "--seed 1..21 --strategy kernel --out many");
    assert_eq!((few.code, none.code, many.code), (Some(0), Some(0), Some(0)), "{none:?} {many:?}");
    assert!(many.stdout.ends_with("\nSummary: many/summary.json\n"), "{}", many.stdout);
    for folder in ["none", "many"] {
        let names: Vec<String> = files(&desk.path().join(folder)).into_keys().collect();
        assert_eq!(names, ["scenario.toml", "summary.json", "versions.json"]);
    }
    let metrics = |said: &Said| {
        let summary: Value = serde_json::from_str(&said.stdout).unwrap();
        summary["runs"].as_array().unwrap().iter().map(|run| run["metrics"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(metrics(&few), metrics(&none));
}

#[test]
fn what_was_complete_when_it_was_interrupted_stays_usable() {
    let desk = TempDir::new().unwrap();
    fs::write(desk.path().join("s.toml"), SCENARIO.replace("duration_s = 4", "duration_s = 40")).unwrap();
    let mut command = Command::new(CROSSLANE);
    command.args(["simulate", "s.toml", "--seed", "1..5000", "--jobs", "1", "--records", "all", "--out", "out"]);
    command.current_dir(desk.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let out = desk.path().join("out");
    let second = out.join("runs/kernel-tuned-1");
    for _ in 0..1000 {
        if second.exists() {
            break;
        }
        sleep(Duration::from_millis(10));
    }
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let said: Said = child.wait_with_output().unwrap().into();
    assert_eq!(said.code, Some(130), "{said:?}");
    let told = said.sentence();
    assert!(
        told.starts_with("crosslane: while simulating: it was interrupted; out/summary.json contains the "),
        "{told}"
    );
    let summary = summary(&out);
    assert_eq!(summary["interrupted"], true);
    let runs = summary["runs"].as_array().unwrap();
    assert!(!runs.is_empty() && runs.len() < 15_000, "{} runs", runs.len());
    for run in runs {
        assert!(out.join(run["folder"].as_str().unwrap()).join("events.jsonl").exists(), "{run}");
    }
}

/// The folder for the records is a file system of 2 MiB, which the simulation alone sees.
#[test]
fn a_full_disk_ends_it_with_one_sentence_and_leaves_what_was_complete() {
    if !nix::unistd::geteuid().is_root() {
        not_run("to mount a small file system needs root");
        return;
    }
    let desk = desk();
    let out = desk.path().join("out");
    fs::create_dir(&out).unwrap();
    let kept = desk.path().join("kept");
    let mut command = Command::new("sh");
    let script =
        "\"$0\" simulate s.toml --seed 1..100 --records all --jobs 1 --out out; code=$?; cp -r out kept; exit $code";
    command.args(["-c", script, CROSSLANE]).current_dir(desk.path()).stdin(Stdio::null());
    let prepare = move || {
        let none: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        mount(Some("tmpfs"), &out, Some("tmpfs"), MsFlags::empty(), Some("size=2m"))?;
        Ok(())
    };
    // SAFETY: only system calls happen between fork and exec.
    unsafe { command.pre_exec(prepare) };
    let said: Said = command.output().unwrap().into();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.sentence().contains("No space left on device; free some space"), "{said:?}");
    let summary = summary(&kept);
    let complete = summary["runs"].as_array().unwrap().len();
    assert!(complete > 0 && fs::read_dir(kept.join("runs")).unwrap().count() == complete, "{complete} runs");
}

#[test]
fn bad_input_is_one_sentence_and_leaves_nothing() {
    let desk = desk();
    let path = desk.path();
    fs::write(path.join("key.toml"), SCENARIO.replace("duration_s", "duration")).unwrap();
    fs::write(path.join("file"), "").unwrap();
    let calls = [
        ("simulate", 2, "arguments were not provided: <SCENARIO>"),
        ("simulate none.toml", 2, "while reading scenario none.toml: No such file"),
        ("simulate key.toml", 2, "key.toml, line 2: unknown key `duration`; did you mean `duration_s`?"),
        ("simulate s.toml --strategy kernel,fast", 2, "there is no strategy \"fast\"; choose from single, kernel"),
        ("simulate s.toml --seed 4..1", 2, "\"4..1\" is no seed"),
        ("simulate s.toml --jobs 0", 2, "0 is not in 1..=256"),
        ("simulate s.toml --records some", 2, "invalid value 'some' for '--records <WHICH>'"),
        ("simulate s.toml --keep", 2, "unexpected argument '--keep' found"),
        ("simulate s.toml --out file/out", 2, "while making file/out: Not a directory (os error 20); name a folder"),
    ];
    for (call, code, sentence) in calls {
        let said = crosslane(path, &call.split(' ').collect::<Vec<_>>());
        assert_eq!(said.code, Some(code), "{call}: {said:?}");
        assert!(said.sentence().contains(sentence), "{call}: {}", said.stderr);
        assert!(!path.join("runs").exists(), "{call} left something");
    }
}

#[test]
fn an_expectation_that_is_not_met_fails() {
    let desk = TempDir::new().unwrap();
    let bound = "[[expect]]\nstrategy = \"kernel\"\nmetric = \"messages.sent\"\nat_most = 1\n";
    fs::write(desk.path().join("s.toml"), format!("{SCENARIO}{bound}")).unwrap();
    let said = simulate(&desk, "--strategy kernel --out out");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.contains("NOT OK  messages.sent of kernel: at most 1 — is 100"), "{}", said.stdout);
    assert_eq!(simulate(&desk, "--strategy kernel --out out --expect").code, Some(1));
}

#[test]
fn the_command_is_in_completion_and_manual() {
    let said = |arguments: &[&str]| crosslane(Path::new("/"), arguments).stdout;
    assert!(said(&["completion", "bash"]).contains("crosslane,simulate)"));
    assert!(said(&["man"]).contains("crosslane\\-simulate"));
    let help = said(&["simulate", "--help"]);
    for option in ["--strategy", "--seed", "--jobs", "--out", "--data", "--json", "--expect", "--records"] {
        assert!(help.contains(option), "{option} in {help}");
    }
}
