//! A comparison in simulated time: its files, its independence of the number of threads,
//! and its interruption.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::program::{
    CROSSLANE, METRICS, ProgramOutput, RECORDS, SCENARIO, assert_none, complaint, crosslane, not_run,
};
use arrow_ipc::reader::FileReader;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A working directory with the scenario.
fn workdir() -> TempDir {
    let workdir = TempDir::new().unwrap();
    fs::write(workdir.path().join("s.toml"), SCENARIO).unwrap();
    workdir
}

fn simulate(workdir: &TempDir, arguments: &str) -> ProgramOutput {
    let arguments: Vec<&str> = ["simulate", "s.toml"].into_iter().chain(arguments.split(' ')).collect();
    crosslane(workdir.path(), &arguments)
}

/// Every file below `folder`, by its path relative to it.
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
fn a_simulation_leaves_the_same_run_folder_as_a_drive() {
    let workdir = workdir();
    let output = simulate(&workdir, "--strategy threshold,mine --seed 3..4 --json --out out");
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    let out = workdir.path().join("out");
    let printed: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(printed, summary(&out));
    assert_eq!(
        (&printed["schema"], &printed["scenario"], &printed["engine"]),
        (&1.into(), &"short".into(), &"simulator".into())
    );
    let names: Vec<String> =
        printed["runs"].as_array().unwrap().iter().map(|run| run["folder"].as_str().unwrap().to_string()).collect();
    assert_eq!(names, ["runs/threshold-3", "runs/mine-3", "runs/threshold-4", "runs/mine-4"]);
    for run in printed["runs"].as_array().unwrap() {
        assert_eq!((&run["valid"], &run["attempts"]), (&true.into(), &1.into()));
        let metrics = run["metrics"].as_object().unwrap();
        let missing: Vec<_> = METRICS.iter().filter(|name| !metrics.contains_key(**name)).collect();
        assert_eq!(missing, [] as [&&str; 0], "{metrics:?}");
        assert!(!metrics.contains_key("stall_us.max"), "only emulated drives have this metric");
        assert_eq!((metrics["messages.sent"].as_f64(), metrics["messages.lost"].as_f64()), (Some(100.0), Some(0.0)));
    }
    assert_eq!(fs::read_to_string(out.join("scenario.toml")).unwrap(), SCENARIO);
    let resolved: Value = serde_json::from_str(&fs::read_to_string(out.join("scenario.json")).unwrap()).unwrap();
    assert_eq!(resolved["strategies"][0]["base"], "threshold");
    assert_eq!((&resolved["seeds"], &resolved["congestion"]), (&json!([3, 4]), &"cubic".into()));
    assert_eq!((&resolved["traffic"]["kind"], &resolved["traffic"]["direction"]), (&"messages".into(), &"up".into()));
    assert_eq!((&resolved["paths"][0]["name"], &resolved["paths"][0]["link"]), (&"its-g5".into(), &"radio".into()));
    let run = out.join("runs/threshold-3");
    for (record, columns) in RECORDS {
        let reader = FileReader::try_new(File::open(run.join(format!("{record}.arrow"))).unwrap(), None).unwrap();
        let names: Vec<String> = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names.join(" "), columns, "{record}");
        let rows: usize = reader.map(|batch| batch.unwrap().num_rows()).sum();
        assert!(rows > 10, "{record}: {rows} rows");
    }
    check_events(&fs::read_to_string(run.join("events.jsonl")).unwrap());
    assert_eq!(fs::read_dir(&run).unwrap().count(), RECORDS.len() + 1, "more files than the formats list");
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
    assert!(events.iter().any(|event| event["event"] == "subflow_established" && event["path"].is_string()));
}

#[test]
fn one_thread_and_two_write_the_same_bytes() {
    let workdir = workdir();
    let jobs = |jobs: u32| {
        let output = simulate(&workdir, &format!("--seed 1..3 --jobs {jobs} --out jobs-{jobs}"));
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
        files(&workdir.path().join(format!("jobs-{jobs}")))
    };
    let (one, two) = (jobs(1), jobs(2));
    assert_eq!(one.len(), 4 + 12 * (RECORDS.len() + 1));
    assert_eq!(one.keys().collect::<Vec<_>>(), two.keys().collect::<Vec<_>>());
    for (name, bytes) in &one {
        assert!(two[name] == *bytes, "{name} differs");
    }
}

#[test]
fn runs_are_listed_in_the_order_of_the_plan_with_any_number_of_threads() {
    let workdir = workdir();
    let runs = |jobs: u32| {
        let output = simulate(&workdir, &format!("--seed 1..60 --jobs {jobs} --json --out jobs-{jobs}"));
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
        output.stdout
    };
    assert!(runs(1) == runs(16));
}

/// Metrics computed during the run equal those computed from the packet record.
#[test]
fn records_are_kept_for_few_runs_and_do_not_change_metrics() {
    let workdir = workdir();
    let few = simulate(&workdir, "--seed 1..2 --strategy kernel,mine --json --out few");
    let none = simulate(&workdir, "--seed 1..2 --strategy kernel,mine --json --records none --out none");
    let many = simulate(&workdir, "--seed 1..21 --strategy kernel --out many");
    assert_eq!((few.code, none.code, many.code), (Some(0), Some(0), Some(0)), "{none:?} {many:?}");
    assert!(many.stdout.ends_with("\nSummary: many/summary.json\n"), "{}", many.stdout);
    for folder in ["none", "many"] {
        let names: Vec<String> = files(&workdir.path().join(folder)).into_keys().collect();
        assert_eq!(names, ["scenario.json", "scenario.toml", "summary.json", "versions.json"]);
    }
    let program = crosslane(workdir.path(), &["--version"]).stdout;
    let versions: Value =
        serde_json::from_str(&fs::read_to_string(workdir.path().join("none/versions.json")).unwrap()).unwrap();
    assert_eq!(format!("crosslane {}\n", versions["crosslane"].as_str().unwrap()), program);
    let metrics = |output: &ProgramOutput| {
        let summary: Value = serde_json::from_str(&output.stdout).unwrap();
        summary["runs"].as_array().unwrap().iter().map(|run| run["metrics"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(metrics(&few), metrics(&none));
}

#[test]
fn an_interrupted_simulation_leaves_the_summary_of_its_complete_runs() {
    let workdir = TempDir::new().unwrap();
    fs::write(workdir.path().join("s.toml"), SCENARIO.replace("duration_s = 4", "duration_s = 40")).unwrap();
    let mut command = Command::new(CROSSLANE);
    command.args(["simulate", "s.toml", "--seed", "1..5000", "--jobs", "1", "--records", "all", "--out", "out"]);
    command.current_dir(workdir.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let out = workdir.path().join("out");
    let second = out.join("runs/kernel-tuned-1");
    for _ in 0..1000 {
        if second.exists() {
            break;
        }
        sleep(Duration::from_millis(10));
    }
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output: ProgramOutput = child.wait_with_output().unwrap().into();
    assert_eq!(output.code, Some(130), "{output:?}");
    let message = output.sentence();
    assert!(
        message.starts_with("crosslane: while simulating: it was interrupted; out/summary.json contains the "),
        "{message}"
    );
    let summary = summary(&out);
    assert_eq!(summary["interrupted"], true);
    let runs = summary["runs"].as_array().unwrap();
    assert!(!runs.is_empty() && runs.len() < 15_000, "{} runs", runs.len());
    for run in runs {
        assert!(out.join(run["folder"].as_str().unwrap()).join("events.jsonl").exists(), "{run}");
    }
}

#[test]
fn a_folder_belongs_to_one_comparison_at_a_time() {
    let workdir = workdir();
    let out = workdir.path().join("out");
    fs::create_dir(&out).unwrap();
    let other = Flock::lock(File::open(&out).unwrap(), FlockArg::LockExclusive).unwrap();
    let output = simulate(&workdir, "--strategy kernel --out out");
    let expected = "while making out: another `crosslane` writes into it; wait for its end, or name another folder";
    assert_none(complaint(&output, expected).into_iter().collect());
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    drop(other);
    assert_eq!(simulate(&workdir, "--strategy kernel --out out").code, Some(0));
}

#[test]
fn a_scenario_of_the_users_own_is_not_overwritten_by_another() {
    let workdir = workdir();
    let own = workdir.path().join("out/scenario.toml");
    fs::create_dir(workdir.path().join("out")).unwrap();
    fs::write(&own, "name = \"mine\"\n").unwrap();
    let output = simulate(&workdir, "--strategy kernel --out out");
    let expected = "while writing out/scenario.toml: it is another scenario, which would be lost; name another folder";
    assert_none(complaint(&output, expected).into_iter().collect());
    assert_eq!(fs::read_to_string(&own).unwrap(), "name = \"mine\"\n");
    fs::copy(workdir.path().join("s.toml"), &own).unwrap();
    assert_eq!(simulate(&workdir, "--strategy kernel --out out").code, Some(0));
    fs::write(&own, "name = \"mine\"\n").unwrap();
    assert_eq!(simulate(&workdir, "--strategy kernel --out out").code, Some(0));
}

#[test]
fn folders_of_runs_that_a_comparison_does_not_have_are_named_and_stay() {
    let workdir = workdir();
    let warning = |arguments: &str| simulate(&workdir, &format!("{arguments} --out out")).stderr;
    assert_eq!(warning("--strategy kernel,threshold"), "");
    let replaced = "crosslane: out has the records of an earlier comparison; those of the same runs are replaced\n";
    assert_eq!(warning("--strategy kernel,threshold"), replaced);
    let others = warning("--strategy threshold,mine");
    let remedy = "that this comparison does not record; remove what you do not need\n";
    assert_eq!(others, format!("{replaced}crosslane: out/runs/kernel-1 is the folder of a run {remedy}"));
    let others = warning("--strategy mine --records none");
    assert_eq!(others, format!("{replaced}crosslane: out/runs/kernel-1 and 2 more are folders of runs {remedy}"));
    assert!(workdir.path().join("out/runs/kernel-1/packets.arrow").exists());
}

#[test]
fn a_run_leaves_nothing_of_an_earlier_one_in_its_folder() {
    let workdir = workdir();
    let run = workdir.path().join("out/runs/kernel-1");
    fs::create_dir_all(run.join("keys")).unwrap();
    fs::write(run.join("agent.log"), "of a drive").unwrap();
    let output = simulate(&workdir, "--strategy kernel --out out");
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    assert!(run.join("packets.arrow").exists() && !run.join("agent.log").exists() && !run.join("keys").exists());
}

#[test]
fn a_comparison_that_is_killed_leaves_no_results_of_an_earlier_one() {
    let workdir = workdir();
    let out = workdir.path().join("out");
    assert_eq!(simulate(&workdir, "--strategy kernel --out out").code, Some(0));
    fs::remove_dir_all(out.join("runs")).unwrap();
    fs::write(workdir.path().join("s.toml"), SCENARIO.replace("duration_s = 4", "duration_s = 40")).unwrap();
    let mut command = Command::new(CROSSLANE);
    command.args(["simulate", "s.toml", "--seed", "1..5000", "--jobs", "1", "--records", "all", "--out", "out"]);
    let mut child = command.current_dir(workdir.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    for _ in 0..1000 {
        if out.join("runs").exists() {
            break;
        }
        sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(out.join("runs").exists() && !out.join("summary.json").exists());
}

/// The output folder is a file system of 2 MiB, mounted only for the simulation.
#[test]
fn a_full_disk_ends_a_simulation_with_one_message_and_leaves_its_complete_runs() {
    if !nix::unistd::geteuid().is_root() {
        not_run("mounting a small file system needs root");
        return;
    }
    let workdir = workdir();
    let out = workdir.path().join("out");
    fs::create_dir(&out).unwrap();
    let kept = workdir.path().join("kept");
    let mut command = Command::new("sh");
    let script =
        "\"$0\" simulate s.toml --seed 1..100 --records all --jobs 1 --out out; code=$?; cp -r out kept; exit $code";
    command.args(["-c", script, CROSSLANE]).current_dir(workdir.path()).stdin(Stdio::null());
    let prepare = move || {
        let none: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        mount(Some("tmpfs"), &out, Some("tmpfs"), MsFlags::empty(), Some("size=2m"))?;
        Ok(())
    };
    // SAFETY: only system calls happen between fork and exec.
    unsafe { command.pre_exec(prepare) };
    let output: ProgramOutput = command.output().unwrap().into();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.sentence().contains("No space left on device; free some space"), "{output:?}");
    let summary = summary(&kept);
    let complete = summary["runs"].as_array().unwrap().len();
    assert!(complete > 0 && fs::read_dir(kept.join("runs")).unwrap().count() == complete, "{complete} runs");
}

#[test]
fn bad_input_is_reported_in_one_message_and_leaves_no_files() {
    let workdir = workdir();
    let path = workdir.path();
    fs::write(path.join("key.toml"), SCENARIO.replace("duration_s", "duration")).unwrap();
    fs::write(path.join("file"), "").unwrap();
    let calls = [
        ("simulate", 2, "arguments were not provided: <SCENARIO>"),
        ("simulate none.toml", 2, "while reading scenario none.toml: No such file"),
        ("simulate key.toml", 2, "key.toml, line 2: unknown key `duration`; did you mean `duration_s`?"),
        ("simulate s.toml --strategy kernel,fast", 2, "there is no strategy \"fast\"; choose from single, kernel"),
        ("simulate s.toml --seed 4..1", 2, "\"4..1\" is not a seed"),
        ("simulate s.toml --jobs 0", 2, "0 is not in 1..=256"),
        ("simulate s.toml --records some", 2, "invalid value 'some' for '--records <WHICH>'"),
        ("simulate s.toml --keep", 2, "unexpected argument '--keep' found"),
        ("simulate s.toml --out file/out", 2, "while making file/out: Not a directory (os error 20); name a folder"),
    ];
    for (call, code, sentence) in calls {
        let output = crosslane(path, &call.split(' ').collect::<Vec<_>>());
        assert_eq!(output.code, Some(code), "{call}: {output:?}");
        assert!(output.sentence().contains(sentence), "{call}: {}", output.stderr);
        assert!(!path.join("runs").exists(), "{call} left files");
    }
}

#[test]
fn an_expectation_that_is_not_met_fails() {
    let workdir = TempDir::new().unwrap();
    let bound = "[[expect]]\nstrategy = \"kernel\"\nmetric = \"messages.sent\"\nat_most = 1\n";
    fs::write(workdir.path().join("s.toml"), format!("{SCENARIO}{bound}")).unwrap();
    let output = simulate(&workdir, "--strategy kernel --out out");
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("NOT OK  messages.sent of kernel: at most 1 — is 100"), "{}", output.stdout);
    assert_eq!(simulate(&workdir, "--strategy kernel --out out --expect").code, Some(1));
}

#[test]
fn the_command_is_in_the_completion_and_the_manual() {
    let stdout = |arguments: &[&str]| crosslane(Path::new("/"), arguments).stdout;
    assert!(stdout(&["completion", "bash"]).contains("crosslane,simulate)"));
    assert!(stdout(&["man"]).contains("crosslane\\-simulate"));
    let help = stdout(&["simulate", "--help"]);
    for option in ["--strategy", "--seed", "--jobs", "--out", "--data", "--json", "--expect", "--records"] {
        assert!(help.contains(option), "{option} in {help}");
    }
}
