//! `crosslane check`: which kind of file it takes one for, what can be read once only, and its result as JSON.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program::{CROSSLANE, ProgramOutput, SCENARIO, assert_none, complaint, crosslane};
use serde_json::Value;
use tempfile::TempDir;

/// Runs the program with this text on its standard input.
fn piped(folder: &Path, arguments: &[&str], text: &str) -> ProgramOutput {
    let mut command = Command::new(CROSSLANE);
    command.args(arguments).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn a_scenario_from_a_pipe_is_checked_and_simulated() {
    let workdir = TempDir::new().unwrap();
    let output = piped(workdir.path(), &["check", "/dev/stdin"], SCENARIO);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    let arguments = ["simulate", "/dev/stdin", "--strategy", "kernel", "--records", "none", "--out", "out"];
    let output = piped(workdir.path(), &arguments, SCENARIO);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    assert_eq!(fs::read_to_string(workdir.path().join("out/scenario.toml")).unwrap(), SCENARIO);
}

/// Whatever a misspelled key is, the file is read as what it is most like.
#[test]
fn a_file_with_a_fault_is_read_as_what_it_is_meant_to_be() {
    let workdir = TempDir::new().unwrap();
    let cases = [
        ("[[paths]]\nname = \"lte\"\n", "configuration f.toml line 1: unknown key `paths`; did you mean `path`?"),
        (
            "[servise]\nmode = \"backup\"\n",
            "configuration f.toml line 1: unknown key `servise`; did you mean `service`?",
        ),
        ("[[path]]\nname = 99999999999999999999\n", "configuration f.toml line 2: `name`: invalid value: integer"),
        ("nam = \"drive\"\nduration_s = 4\n", "f.toml, line 1: unknown key `nam`; did you mean `name`?"),
        (
            "listen = \"127.0.0.1:4761\"\nkey = 7\n",
            "configuration f.toml line 2: `key`: invalid type: integer `7`; give",
        ),
        ("name = \"drive\"\nname = \"drive\"\n", "f.toml, line 2: `name` is already in line 1; remove one of the two"),
        ("name = \"drive\"\nduration_s = 4 s\n", "f.toml, line 2: `duration_s`: "),
        (
            "[[path]]\nname = \"lte\"\n[service\n",
            "configuration f.toml line 3: unclosed table, expected `]`; write it as",
        ),
        ("listen = \"127.0.0.1:4761\"\nkey =\n", "configuration f.toml line 2: "),
        ("", "f.toml, line 1: `name` is missing; add it (docs/reference/scenario.md lists the keys)"),
    ];
    let mut complaints = Vec::new();
    for (text, expected) in cases {
        fs::write(workdir.path().join("f.toml"), text).unwrap();
        complaints.extend(complaint(&crosslane(workdir.path(), &["check", "f.toml"]), expected));
    }
    assert_none(complaints);
}

#[test]
fn a_file_whose_name_is_not_utf_8_is_checked() {
    let workdir = TempDir::new().unwrap();
    let name = OsStr::from_bytes(b"\xff.toml");
    fs::write(workdir.path().join(name), SCENARIO).unwrap();
    let mut command = Command::new(CROSSLANE);
    let output = command.args(["check", "--json"]).arg(name).current_dir(workdir.path()).output().unwrap();
    let output = ProgramOutput::from(output);
    let result: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!((&result["file"], &result["ok"]), (&"\u{fffd}.toml".into(), &true.into()), "{output:?}");
}

#[test]
fn a_strategy_that_no_command_runs_is_a_fault_of_the_scenario() {
    let workdir = TempDir::new().unwrap();
    let tree = r#"{"format": "crosslane-tree", "version": 1, "strategy": "smartps", "nodes": [{"a_first": 0.25}]}"#;
    fs::write(workdir.path().join("tree.json"), tree).unwrap();
    let of = "base = \"threshold\"\n[strategy.signal]\nthreshold_dbm = -84";
    assert!(SCENARIO.contains(of));
    let cases = [
        ("base = \"mp-dpa\"", "needs deadlines, and the traffic has none; make it of kind `deadline`, or choose"),
        ("base = \"tunnel\"\ntrials = 0", "f.toml, line 26: strategy `"),
        ("base = \"learned\"\ntree = \"tree.json\"", "f.toml, line 26: strategy `"),
    ];
    let mut complaints = Vec::new();
    for (strategy, expected) in cases {
        fs::write(workdir.path().join("f.toml"), SCENARIO.replacen(of, strategy, 1)).unwrap();
        complaints.extend(complaint(&crosslane(workdir.path(), &["check", "f.toml"]), expected));
    }
    assert_none(complaints);
}

#[test]
fn a_fault_is_in_the_json_too() {
    let workdir = TempDir::new().unwrap();
    let cases = [
        (SCENARIO.replacen("duration_s = 4", "duration_s = \"4 s\"", 1), "scenario"),
        ("[[path]]\nname = \"lte\"\nrat = \"6g\"\n".into(), "configuration"),
        ("listen = \"127.0.0.1:4761\"\nkey = \"none.key\"\n".into(), "controller"),
    ];
    for (text, kind) in cases {
        fs::write(workdir.path().join("f.toml"), &text).unwrap();
        let output = crosslane(workdir.path(), &["check", "f.toml", "--json"]);
        let result: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!((&result["kind"], &result["ok"], output.code), (&kind.into(), &false.into(), Some(2)), "{output:?}");
        let finding = result["findings"][0].as_str().unwrap();
        assert!(finding.len() > 20 && output.stderr.contains(finding), "{output:?}");
    }
}
