//! `crosslane send` over two emulated paths, without capabilities and without MPTCP, without an agent and beside one.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

use crate::program::links::two_links;
use crate::program::{CROSSLANE, ProgramOutput, can_drive};
use crosslane::control::report::{AgentStatus, PathReport, ReasonReport, Report};
use crosslane::testbed::Testbed;
use crosslane::testbed::emulator::Emulator;
use crosslane_core::allocate::Mode;
use serde_json::Value;
use tempfile::TempDir;

/// Rate of each path.
const MBIT_S: f64 = 8.0;

/// A vehicle with paths `cheap` and `expensive`, and `crosslane receive` on a server.
struct World {
    testbed: Testbed,
    _emulator: Emulator,
    receiver: Child,
    workdir: TempDir,
    /// Emulated links of several tests at a time would delay one another.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl World {
    fn new() -> World {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // The first path, which the kernel prefers, is the expensive one.
        let (testbed, emulator) = two_links(["expensive", "cheap"], MBIT_S, 10);
        for namespace in [&testbed.vehicle, &testbed.server] {
            namespace.set_sysctl("net/mptcp/enabled", "0").unwrap();
        }
        let workdir = TempDir::new().unwrap();
        fs::create_dir(workdir.path().join("in")).unwrap();
        let mut command = Command::new(CROSSLANE);
        command
            .args(["receive", "--encryption", "none", "--into", "in", "--listen", "0.0.0.0:7411"])
            .current_dir(workdir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let receiver = testbed.server.spawn(&mut command).unwrap();
        sleep(Duration::from_millis(300));
        World { testbed, _emulator: emulator, receiver, workdir, _alone: alone }
    }

    fn send(&self, bytes: usize, options: &[&str]) -> ProgramOutput {
        fs::write(self.workdir.path().join("file"), vec![7; bytes]).unwrap();
        let mut command = Command::new(CROSSLANE);
        command
            .arg("send")
            .args(options)
            .args(["file", "--encryption", "none", "--to", "10.255.0.1", "--json"])
            .current_dir(self.workdir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(|| {
                for capability in 0..64 {
                    // It fails beyond the last capability of this kernel.
                    libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
                }
                Ok(())
            });
        }
        ProgramOutput::from(self.testbed.vehicle.spawn(&mut command).unwrap().wait_with_output().unwrap())
    }

    /// An agent of the vehicle that believes this of `cheap`; without a belief, it never answers.
    fn start_agent(&self, cheap: &str) {
        let name = format!("crosslane/agent/{}", std::process::id());
        let bind = || UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        let listener = self.testbed.vehicle.enter(bind).unwrap();
        let status = Report::Status(Box::new(status(&[("cheap", cheap), ("expensive", "good")])));
        let answer = Some(serde_json::to_string(&status).unwrap() + "\n").filter(|_| !cheap.is_empty());
        // It ends with the test.
        spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let is_asked = BufReader::new(&stream).read_line(&mut String::new()).is_ok_and(|count| count > 0);
                if let Some(answer) = answer.as_ref().filter(|_| is_asked) {
                    drop(stream.write_all(answer.as_bytes()));
                } else if is_asked {
                    kept.push(stream);
                }
            }
        });
    }

    /// Bytes that the vehicle has sent over a path.
    fn sent(&self, path: &str) -> u64 {
        let table = self.testbed.vehicle.enter(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
        let line = table.lines().find_map(|line| line.trim().strip_prefix(path)?.strip_prefix(':')).unwrap();
        line.split_whitespace().nth(8).unwrap().parse().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.receiver.kill());
        drop(self.receiver.wait());
    }
}

#[test]
fn the_expensive_path_carries_what_the_cheap_path_cannot_by_the_deadline() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let prices = ["--cost", "expensive=0.5/GB,cheap=0.1/GB", "--deadline"];
    // A file so small that it uses only one path; by the routes this would be the expensive one.
    assert_eq!(world.send(20_000, &[&prices[..], &["12s"]].concat()).code, Some(0));
    assert!(world.sent("cheap") > 20_000 && world.sent("expensive") < 5000);
    let (cheap, expensive) = (world.sent("cheap"), world.sent("expensive"));
    // 4 s over a single path.
    let output = world.send(4_000_000, &[&prices[..], &["12s"]].concat());
    let document: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!((output.code, &document["paths"][0]["name"]), (Some(0), &Value::from("cheap")), "{output:?}");
    let (cheap, expensive) = (world.sent("cheap") - cheap, world.sent("expensive") - expensive);
    // The path rates are unknown at first, so a part may use the expensive path; the kernel alone would send half.
    assert!(cheap > 3 * expensive, "cheap {cheap}, expensive {expensive}: {output:?}");
    let before = (world.sent("cheap"), world.sent("expensive"));
    // 8 s over a single path.
    let output = world.send(8_000_000, &[&prices[..], &["6500ms"]].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    let (more_cheap, more_expensive) = (world.sent("cheap") - before.0, world.sent("expensive") - before.1);
    assert!(
        more_expensive > 1_500_000 && more_cheap > more_expensive,
        "cheap {more_cheap}, expensive {more_expensive}: {output:?}"
    );
}

fn status(paths: &[(&str, &str)]) -> AgentStatus {
    let reason = ReasonReport { rule: "signal".into(), text: "a test".into(), inputs: [].into() };
    let path = |(name, belief): &(&str, &str)| PathReport {
        path: format!("path-{name}"),
        interface: (*name).to_owned(),
        address: None,
        preference: 1,
        state: "active".into(),
        state_since_s: 0.0,
        state_reason: reason.clone(),
        belief: (*belief).to_owned(),
        belief_since_s: 0.0,
        belief_reason: reason.clone(),
        signal_dbm: None,
        signal_age_s: None,
        signal_source: None,
        radio: None,
        rtt_ms: None,
        connections: 0,
        sent_bytes: None,
        received_bytes: None,
        network: None,
        volume: None,
        echo: None,
    };
    AgentStatus {
        version: String::new(),
        pid: std::process::id(),
        configuration: String::new(),
        uptime_s: 1.0,
        longest_answer_ms: 0.0,
        strategy: None,
        tree: None,
        mode: Mode::default(),
        preferred: None,
        connections: 0,
        paths: paths.iter().map(path).collect(),
        tunnel: None,
        units: Vec::new(),
        problems: Vec::new(),
        changes: Vec::new(),
    }
}

/// The cheap path would be sufficient, and is all that carries without an agent.
#[test]
fn a_path_that_an_agent_doubts_carries_only_without_another() {
    if !can_drive() {
        return;
    }
    for belief in ["fading", "lost"] {
        let world = World::new();
        world.start_agent(belief);
        let output = world.send(4_000_000, &["--cost", "expensive=0.5/GB,cheap=0.1/GB", "--deadline", "20s"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.stderr.contains(&format!("cheap: the agent believes it {belief}")), "{output:?}");
        let (cheap, expensive) = (world.sent("cheap"), world.sent("expensive"));
        assert!(expensive > 5 * cheap, "cheap {cheap}, expensive {expensive}: {output:?}");
    }
}

#[test]
fn an_agent_that_hangs_is_none() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    world.start_agent("");
    let output = world.send(2_000_000, &["--cost", "expensive=0.5/GB,cheap=0.1/GB", "--deadline", "20s"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(world.sent("cheap") > 3 * world.sent("expensive"), "{output:?}");
}

#[test]
fn a_price_that_is_missing_is_named() {
    if !can_drive() {
        return;
    }
    let options = ["--prefer", "cheap,expensive", "--cost", "cheap=0.1/GB", "--deadline", "20s"];
    let output = World::new().send(1000, &options);
    assert_eq!(output.code, Some(2), "{output:?}");
    let message =
        "\"expensive\" has no price, but other paths have one; add expensive=PRICE/GB to --cost, or omit --cost";
    assert!(output.stderr.contains(message), "{output:?}");
}

/// The first file lets it measure the paths.
#[test]
fn a_deadline_that_cannot_be_met_is_reported_in_advance() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    fs::write(world.workdir.path().join("known"), vec![7; 3_000_000]).unwrap();
    let paths = ["known", "--prefer", "cheap,expensive", "--every", "5s", "--late", "continue"];
    let output = world.send(8_000_000, &[&paths[..], &["--deadline", "4s", "--deadline", "2s"]].concat());
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("no prediction for known is available yet\n"), "{output:?}");
    assert!(output.stderr.contains("the deadline of file cannot be met; predicted completion: in "), "{output:?}");
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    let second = |of: &Value| of.as_f64().unwrap();
    let file = &document["files"][1];
    let (predicted_s, completion_s) = (second(&file["admission"]["predicted_s"]), second(&file["completion_s"]));
    assert!((3.5..6.0).contains(&completion_s), "both paths were used: {output:?}");
    // The predicted time is conservative.
    assert!((completion_s - 0.2..3.0 * completion_s).contains(&predicted_s), "{output:?}");
}
