//! `crosslane refit` fits the tree again to what the agent's trials have shown, and lets it run if it is better.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::agent::{Agent, await_states, command, run};
use crate::program::links::{self, exchange};
use crate::program::{CROSSLANE, ProgramOutput, can_drive, crosslane};
use crosslane::netlink::endpoints::Limits;
use crosslane::netlink::{PathManager, select_path_manager};
use crosslane::testbed::Testbed;
use crosslane::trials;
use crosslane_core::allocate::learned::features::{COUNT, DELIVERY, RTT};
use crosslane_core::allocate::learned::trial::Trial;
use crosslane_core::path::PathId;
use serde_json::Value;
use tempfile::TempDir;

const CONFIGURATION: &str = r#"
[[path]]
name = "near"
rat = "lte"
[[path]]
name = "far"
rat = "nr"
[service]
mode = "backup"
[strategy]
name = "learned"
tree = "tree.json"
store = "trials.jsonl"
[log]
events = "EVENTS"
"#;

/// A tree that puts the path with the longer RTT first, or one that is never sure.
const LONGER_FIRST: &str =
    r#"{"feature": "a-b.rtt_ms", "at_most": 0, "yes": 1, "no": 2}, {"a_first": 0.1}, {"a_first": 0.9}"#;
const UNSURE: &str = r#"{"a_first": 0.5}"#;

fn tree(nodes: &str) -> String {
    format!("{{\"format\": \"crosslane-tree\", \"version\": 1, \"strategy\": \"learned\", \"nodes\": [{nodes}]}}\n")
}

/// Lines of trials in which the path with the shorter RTT delivered twice as much, but in one of ten.
fn store(numbers: std::ops::RangeInclusive<u64>) -> String {
    let line = |number: u64| {
        let draw = |salt: u64| {
            let mixed = (1000 * number + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as f32
        };
        let values = |rtt_ms| {
            let mut values = [f32::NAN; COUNT];
            (values[RTT], values[DELIVERY]) = (rtt_ms, 5.0 + draw(3) % 3.0);
            values
        };
        let (a, b) = (values(10.0 + draw(1) % 90.0), values(10.5 + draw(2) % 90.0));
        let is_a_better = (a[RTT] < b[RTT]) ^ number.is_multiple_of(10);
        let goodput_mbit_s = if is_a_better { [10.0, 5.0] } else { [5.0, 10.0] };
        let (paths, delay_ms) = ([PathId(0), PathId(1)], [30.0, 30.0]);
        let trial = Trial {
            paths,
            values: [a, b],
            was_a_first: true,
            is_a_preferred: number.is_multiple_of(2),
            goodput_mbit_s,
            delay_ms,
        };
        trials::line(number, "learned", &trial) + "\n"
    };
    numbers.map(line).collect()
}

/// A folder with a configuration, a tree and a store.
fn folder(configuration: &str, nodes: &str, store: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("agent.toml"), configuration.replace("EVENTS", "events.jsonl")).unwrap();
    fs::write(folder.path().join("tree.json"), tree(nodes)).unwrap();
    fs::write(folder.path().join("trials.jsonl"), store).unwrap();
    folder
}

fn refit(folder: &Path) -> ProgramOutput {
    crosslane(folder, &["refit", "--config", "agent.toml"])
}

fn start(testbed: &Testbed, folder: TempDir) -> Agent {
    let events = folder.path().join("events.jsonl");
    Agent::spawn(&testbed.vehicle, folder, |folder, ready| command(folder, CONFIGURATION, &events, ready))
}

#[test]
fn a_better_tree_orders_the_paths_of_the_running_agent_and_says_what_it_was_fitted_to() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = links::links_of(&["near", "far"], &[(10.0, 5), (10.0, 25)], &[]);
    testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
    let listener = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
    let without_trials = CONFIGURATION.replace("store =", "trials = 0\nstore =");
    let workdir = folder(&without_trials, LONGER_FIRST, &store(1..=400));
    let events = workdir.path().join("events.jsonl");
    let agent =
        Agent::spawn(&testbed.vehicle, workdir, |folder, ready| command(folder, &without_trials, &events, ready));
    let folder = agent.workdir.path().to_owned();
    let (client, server) = links::connect(&testbed, &listener);
    await_states(&testbed.vehicle, ["backup", "active"]);

    let done = run(&testbed.vehicle, &folder, &["refit", "--config", "agent.toml", "--json"]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    let done: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&done["promoted"], &done["running"], &done["held_out"]), (&true.into(), &true.into(), &80.into()));
    assert!(done["accuracy"].as_f64() > Some(0.85) && done["running_accuracy"].as_f64() < Some(0.15), "{done}");
    let status = await_states(&testbed.vehicle, ["active", "backup"]);
    exchange(&client, &server);
    let origin = "trained: accuracy 0.";
    assert!(status.tree.is_some_and(|tree| tree.contains(origin) && tree.contains("by crosslane refit")));
    let explained = run(&testbed.vehicle, &folder, &["explain", "near"]).stdout;
    assert!(explained.contains("a tree orders the paths, with ") && explained.contains(", rows 320, "), "{explained}");
    let former = fs::read_to_string(folder.join("tree.json.former")).unwrap();
    assert_eq!(former, tree(LONGER_FIRST));
    let size = fs::metadata(folder.join("tree.json")).unwrap().len();
    assert!(size < 20_000, "{size}");

    let again = run(&testbed.vehicle, &folder, &["refit", "--config", "agent.toml"]);
    let expected = "the tree stays: the running tree has seen all but 0 of the newest rows, and 50 are needed to compare \
                    another one with it\n";
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), expected), "{again:?}");
    fs::rename(folder.join("tree.json.former"), folder.join("tree.json")).unwrap();
    assert_eq!(run(&testbed.vehicle, &folder, &["reload"]).stdout, "another tree orders the paths, with 3 nodes\n");
    await_states(&testbed.vehicle, ["backup", "active"]);
    let (events, stderr) = agent.end();
    assert_eq!(stderr, "");
    assert!(events.contains("\"reason\":\"a tree orders the paths, with 3 nodes\""), "{events}");
    assert!(
        events.contains("by request: another tree orders the paths, with ") && events.contains("rows 320"),
        "{events}"
    );
}

#[test]
fn trials_of_a_running_agent_are_stored_and_numbered_on_after_a_kill_within_a_line() {
    if !can_drive() {
        return;
    }
    let (testbed, _emulator) = links::links_of(&["near", "far"], &[(10.0, 5), (10.0, 25)], &[]);
    testbed.vehicle.enter(|| select_path_manager(PathManager::UserSpace).unwrap()).unwrap();
    let listener = links::listen(&testbed, Limits { subflows: 8, add_addr_accepted: 8 });
    let mut workdir = folder(CONFIGURATION, UNSURE, "");
    for round in 1..=2 {
        let agent = start(&testbed, workdir);
        let store = agent.workdir.path().join("trials.jsonl");
        let (client, server) = links::connect(&testbed, &listener);
        let began = Instant::now();
        while trials::read(&store, "learned").unwrap().rows.len() < round {
            exchange(&client, &server);
            sleep(Duration::from_millis(5));
            assert!(began.elapsed() < Duration::from_secs(60), "{}", agent.read("events.jsonl"));
        }
        let events = agent.read("events.jsonl");
        assert!(events.contains("the two paths are swapped in a trial"), "{events}");
        workdir = folder(CONFIGURATION, UNSURE, &(agent.read("trials.jsonl") + "{\"versi"));
        agent.kill();
    }
    let rows = trials::read(&workdir.path().join("trials.jsonl"), "learned").unwrap();
    assert_eq!((rows.rows.len(), rows.skipped), (2, 2), "a cut line after each kill");
    assert_eq!(rows.rows.iter().map(|row| row.number).collect::<Vec<_>>(), [1, 2]);
    assert!(rows.rows.iter().all(|row| row.trial.is_a_preferred && row.trial.was_a_first));
    let done = refit(workdir.path());
    assert!(done.stdout.starts_with("the tree stays: in "), "{done:?}");
    assert!(done.stdout.ends_with("\n2 lines are no rows and were skipped\n"), "{done:?}");
}

#[test]
fn without_an_agent_the_better_tree_waits_for_it() {
    let folder = folder(CONFIGURATION, UNSURE, &store(1..=300));
    let done = refit(folder.path());
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    assert!(
        done.stdout.starts_with("a new tree will order the paths when the agent starts: fitted to 240 rows"),
        "{done:?}"
    );
    let checked = crosslane(folder.path(), &["check", "agent.toml"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

#[test]
fn what_cannot_be_fitted_is_one_sentence_and_the_tree_stays() {
    let stays = |store: &str, sentence: &str| {
        let folder = folder(CONFIGURATION, UNSURE, store);
        let done = refit(folder.path());
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
        assert!(done.stdout.starts_with("the tree stays: ") && done.stdout.contains(sentence), "{done:?}");
        assert_eq!(fs::read_to_string(folder.path().join("tree.json")).unwrap(), tree(UNSURE));
    };
    stays("", "in 0 rows either order was better, and 250 are needed");
    let whole = store(1..=300);
    stays(&whole.replace("[5.0,10.0]", "[10.0,5.0]"), "the same path was better in every row");
    stays(&format!("{}\n{{\"version\":1,\"numb\nx\n", store(1..=20)), "\n2 lines are no rows and were skipped\n");
    stays(&whole.replace("\"learned\"", "\"smartps\""), "in 0 rows");

    let rejected = |folder: &TempDir, code: i32, words: &[&str]| {
        let done = refit(folder.path());
        assert_eq!(done.code, Some(code), "{done:?}");
        assert!(words.iter().all(|word| done.sentence().contains(word)), "{done:?}");
    };
    let other = whole.replacen("\"version\":1", "\"version\":2", 1);
    rejected(
        &folder(CONFIGURATION, UNSURE, &other),
        2,
        &["while reading trials ", "rows of version 2", "remove the file"],
    );
    let without = CONFIGURATION.replace("store = \"trials.jsonl\"\n", "");
    rejected(&folder(&without, UNSURE, &whole), 2, &["names no tree and store", "give `tree` and `store`"]);
    let without = CONFIGURATION.replace("tree = \"tree.json\"\n", "");
    rejected(&folder(&without, UNSURE, &whole), 2, &["line 10", "`store` without `tree`"]);
    let missing = folder(CONFIGURATION, UNSURE, &whole);
    fs::remove_file(missing.path().join("tree.json")).unwrap();
    rejected(&missing, 2, &["while reading tree ", "No such file"]);
    let large = folder(CONFIGURATION, UNSURE, &whole);
    File::options().write(true).open(large.path().join("trials.jsonl")).unwrap().set_len(1 << 30).unwrap();
    rejected(&large, 2, &["while reading trials ", "it has more than 64 MiB"]);
    let full = folder(CONFIGURATION, UNSURE, &whole);
    fs::create_dir(full.path().join("tree.json.new")).unwrap();
    rejected(&full, 1, &["while writing tree ", "the running tree stays"]);
    assert_eq!(fs::read_to_string(full.path().join("tree.json")).unwrap(), tree(UNSURE));
    let folder = folder(&CONFIGURATION.replace("trials.jsonl", "."), UNSURE, &whole);
    rejected(&folder, 2, &["while reading trials ", "correct `store`"]);
}

/// The limit of a file's size stands for a full disk: both end a write in the middle.
#[test]
fn on_a_full_disk_the_former_tree_stays_whole() {
    let folder = folder(CONFIGURATION, UNSURE, &store(1..=300));
    let limited = format!("trap '' XFSZ; ulimit -f 0; exec {CROSSLANE} refit --config agent.toml");
    let done = Command::new("sh").args(["-c", &limited]).current_dir(folder.path()).output().unwrap();
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert_eq!((done.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    let words = ["while writing tree ", "File too large", "the running tree stays"];
    assert!(words.iter().all(|word| stderr.contains(word)), "{stderr}");
    assert_eq!(fs::read_to_string(folder.path().join("tree.json")).unwrap(), tree(UNSURE));
    assert!(!folder.path().join("tree.json.new").exists(), "nothing is left of the new tree");
    assert_eq!(refit(folder.path()).code, Some(0), "with space again it is written");
    assert_ne!(fs::read_to_string(folder.path().join("tree.json")).unwrap(), tree(UNSURE));
}

#[test]
fn the_unit_runs_below_everything_else_within_its_memory() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let unit = fs::read_to_string(packaging.join("crosslane-refit.service")).unwrap();
    for line in ["Nice=19", "CPUSchedulingPolicy=idle", "IOSchedulingClass=idle", "CPUQuota=10%", "MemoryMax=200M"] {
        assert!(unit.lines().any(|other| other == line), "{line}");
    }
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/crosslane ")).unwrap();
    assert_eq!(command, "refit --config /etc/crosslane/agent.toml");
    assert!(fs::read_to_string(packaging.join("crosslane-refit.timer")).unwrap().contains("WantedBy=timers.target"));
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        crate::program::not_run("systemd-analyze is missing");
        return;
    }
    let folder = TempDir::new().unwrap();
    for name in ["crosslane-refit.service", "crosslane-refit.timer"] {
        let text = fs::read_to_string(packaging.join(name)).unwrap();
        fs::write(folder.path().join(name), text.replace("/usr/bin/crosslane", CROSSLANE)).unwrap();
    }
    let units = ["crosslane-refit.service", "crosslane-refit.timer"].map(|name| folder.path().join(name));
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(units).output().unwrap();
    let complaints = String::from_utf8_lossy(&verified.stderr);
    assert!(!complaints.contains("crosslane-refit"), "{complaints}");
}
