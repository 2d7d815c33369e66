//! `crosslane view`: the page of a recorded run, and folders that are cut short.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::program::{CROSSLANE, SCENARIO, crosslane};
use crosslane::control::report::{AgentStatus, ConnectionPage};
use crosslane::http::Signals;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// Two simulated runs: `kernel` without an agent, and `threshold`.
fn simulated() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("s.toml"), SCENARIO).unwrap();
    let output = crosslane(folder.path(), &["simulate", "s.toml", "--strategy", "kernel,threshold", "--out", "run"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    folder
}

/// A program that serves a run; its address.
struct View(Child, String);

impl View {
    fn start(folder: &Path) -> View {
        let mut command = Command::new(CROSSLANE);
        command.args(["view", "run", "--listen", "127.0.0.1:0"]).current_dir(folder);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("http://").and_then(|rest| rest.split('/').next()).unwrap();
        View(child, address.into())
    }

    /// Status and body of the response to GET.
    fn get(&self, target: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.1).unwrap();
        write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
    }

    fn json(&self, target: &str) -> Value {
        let (status, body) = self.get(target);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_run_is_shown_at_every_moment_as_an_agent_reports_itself() {
    let folder = simulated();
    let mut view = View::start(folder.path());
    let overview = view.json("/api/replay");
    assert_eq!(
        (&overview["runs"], &overview["duration_s"]),
        (&["kernel, seed 1", "threshold, seed 1"].into(), &4.0.into())
    );
    assert!(view.get("/").1.contains("/replay.js") && view.get("/replay.js").0 == 200 && view.get("/page.js").0 == 200);

    let map = view.json("/api/map?run=1");
    assert_eq!((&map["paths"], &map["units"][0]["name"]), (&["its-g5", "lte"].into(), &"rsu1".into()));
    let way = map["way"].as_array().unwrap();
    assert!((39..=41).contains(&way.len()), "{} positions", way.len());
    let (first, last) = (&way[0], way.last().unwrap());
    assert!(first[1] == 40.0 && last[1].as_f64().unwrap() > 90.0, "{first} to {last}");
    // The connection begins over LTE, before the first CAM, and the traffic ends before the run.
    assert!(
        way.iter().skip(10).take(20).all(|one| one[3] == 0) && last[3].is_null(),
        "its-g5 carries near the unit: {way:?}"
    );

    let at = |t: f64| -> AgentStatus { serde_json::from_value(view.json(&format!("/api/state?run=1&t={t}"))).unwrap() };
    let status = at(3.0);
    assert_eq!((status.uptime_s, status.strategy.as_deref(), status.connections), (3.0, Some("threshold"), 1));
    let path = &status.paths[0];
    assert_eq!((path.path.as_str(), path.state.as_str(), path.belief.as_str()), ("its-g5", "active", "good"));
    assert!(path.signal_dbm.unwrap() > -82.0 && path.rtt_ms.unwrap() > 1.0 && !path.state_reason.text.is_empty());
    assert!(path.sent_bytes > at(1.0).paths[0].sent_bytes && at(0.0).paths[0].state == "closed");
    assert!(status.changes.iter().all(|change| change.ago_s >= 0.0) && status.changes.len() > at(0.0).changes.len());
    let connections: ConnectionPage = serde_json::from_value(view.json("/api/connections?run=1&t=3")).unwrap();
    assert_eq!(connections.connections.len(), 1);
    let signals: Signals = serde_json::from_value(view.json("/api/signals?run=1&t=2")).unwrap();
    assert!((15..=21).contains(&signals["its-g5"].len()) && signals["its-g5"][0].0 > signals["its-g5"][9].0);
    // Without an agent the state is what the kernel shows.
    let kernel: AgentStatus = serde_json::from_value(view.json("/api/state?run=0&t=3")).unwrap();
    assert_eq!((kernel.paths[0].state.as_str(), kernel.changes.len()), ("active", 0));

    for target in ["/api/state?run=7", "/api/nothing", "/metrics"] {
        assert_eq!(view.get(target).0, 404, "{target}");
    }
    assert_eq!(view.get("/api/state?run=-1&t=NaN").0, 200);
    kill(Pid::from_raw(view.0.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(view.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_folder_that_is_cut_short_is_one_sentence() {
    let folder = simulated();
    let run = folder.path().join("run");
    let expect = |file: &str| {
        let output = crosslane(folder.path(), &["view", "run"]);
        assert_eq!(output.code, Some(2), "{output:?}");
        let sentence = output.sentence();
        let remedy = "name a folder that `crosslane drive` or `crosslane simulate` completed, with records";
        assert!(
            sentence.starts_with(&format!("crosslane: while reading run/{file}")) && sentence.ends_with(remedy),
            "{sentence}"
        );
    };
    let events = fs::read_to_string(run.join("runs/kernel-1/events.jsonl")).unwrap();
    let third = events.match_indices('\n').nth(2).unwrap().0;
    fs::write(run.join("runs/kernel-1/events.jsonl"), &events[..third - 1]).unwrap();
    expect("runs/kernel-1/events.jsonl: line 3 is no JSON");
    fs::write(run.join("runs/kernel-1/events.jsonl"), &events).unwrap();
    for file in ["links.arrow", "events.jsonl", "tcp_info.arrow"] {
        let path = run.join("runs/kernel-1").join(file);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        expect(&format!("runs/kernel-1/{file}"));
        fs::remove_file(&path).unwrap();
        expect(&format!("runs/kernel-1/{file}"));
        fs::write(&path, whole).unwrap();
    }
    let summary = fs::read_to_string(run.join("summary.json")).unwrap();
    fs::write(run.join("summary.json"), summary.replace("\"duration_s\": 4.0", "\"duration_s\": -4.0")).unwrap();
    expect("summary.json: `duration_s` is -4");
    fs::write(run.join("summary.json"), summary.replace("runs/kernel-1", "../elsewhere")).unwrap();
    expect("summary.json");
    fs::write(run.join("summary.json"), &summary[..summary.len() / 2]).unwrap();
    expect("summary.json");
    fs::remove_file(run.join("summary.json")).unwrap();
    expect("summary.json");
}

#[test]
fn a_run_whose_packets_are_cut_short_is_shown_with_a_warning() {
    let folder = simulated();
    let packets = folder.path().join("run/runs/threshold-1/packets.arrow");
    let whole = fs::read(&packets).unwrap();
    fs::write(&packets, &whole[..whole.len() / 2]).unwrap();
    let mut view = View::start(folder.path());
    assert_eq!(view.json("/api/map?run=1")["paths"], Value::from(vec!["its-g5", "lte"]));
    kill(Pid::from_raw(view.0.id() as i32), Signal::SIGINT).unwrap();
    let mut warning = String::new();
    view.0.stderr.take().unwrap().read_to_string(&mut warning).unwrap();
    let expected = "crosslane: run/runs/threshold-1/packets.arrow cannot be read, perhaps because its run was killed; the page shows \
                    the other records\n";
    assert_eq!(warning, expected);
}

#[test]
fn a_run_of_a_fleet_is_said_to_have_no_records() {
    let folder = simulated();
    let scenario = folder.path().join("run/scenario.json");
    let text = fs::read_to_string(&scenario).unwrap();
    assert!(text.contains("\"fleet\": null"), "{text}");
    fs::write(&scenario, text.replace("\"fleet\": null", "\"fleet\": { \"vehicles\": null }")).unwrap();
    let output = crosslane(folder.path(), &["view", "run"]);
    let expected = "crosslane: while reading run: a run of a fleet has no records to show; see runs/*/vehicles.csv in";
    assert!(output.code == Some(2) && output.sentence().starts_with(expected), "{output:?}");
}

#[test]
fn runs_without_records_and_a_port_that_is_taken_are_one_sentence() {
    let folder = simulated();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = crosslane(folder.path(), &["view", "run", "--listen", &address]);
    assert_eq!(output.code, Some(1));
    assert!(output.sentence().ends_with("; name an address of this machine and a free port by --listen"), "{output:?}");
    let arguments = ["simulate", "s.toml", "--strategy", "kernel", "--records", "none", "--out", "bare"];
    assert_eq!(crosslane(folder.path(), &arguments).code, Some(0));
    let output = crosslane(folder.path(), &["view", "bare"]);
    assert_eq!(output.code, Some(2));
    assert!(output.sentence().contains("--records all"), "{output:?}");
}
