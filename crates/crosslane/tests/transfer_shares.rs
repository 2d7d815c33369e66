//! What `crosslane send` sends over the expensive path in the cases of `scenarios/deadline`, on this machine's
//! kernel: no deadline is missed, and little more goes there than must.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::program::busy::decide;
use crate::program::links::unequal_links;
use crate::program::{CROSSLANE, ProgramOutput, can_drive};
use serde_json::Value;
use tempfile::TempDir;

/// Objects of a run, one each 10 s.
const OBJECTS: usize = 4;
/// One-way delay of each path.
const DELAY_MS: u64 = 50;

/// A case: rates of the cheap and the expensive path, size of an object, and its deadline.
#[derive(Clone, Copy, Debug)]
struct Case {
    mbit_s: [f64; 2],
    bytes: f64,
    within_s: f64,
}

const SYMMETRIC_9S: Case = Case { mbit_s: [8.0, 8.0], bytes: 10e6, within_s: 9.0 };
const CASES: [Case; 9] = [
    Case { within_s: 10.0, ..SYMMETRIC_9S },
    SYMMETRIC_9S,
    Case { within_s: 7.5, ..SYMMETRIC_9S },
    Case { mbit_s: [4.0, 12.0], within_s: 10.0, ..SYMMETRIC_9S },
    Case { mbit_s: [4.0, 12.0], ..SYMMETRIC_9S },
    Case { mbit_s: [4.0, 12.0], within_s: 7.5, ..SYMMETRIC_9S },
    Case { mbit_s: [3.8, 3.0], bytes: 5e6, within_s: 10.0 },
    Case { mbit_s: [3.8, 3.0], bytes: 5e6, within_s: 9.0 },
    Case { mbit_s: [3.8, 3.0], bytes: 5e6, within_s: 8.0 },
];

#[derive(Clone, Copy, Debug)]
struct Outcome {
    missed: usize,
    /// The longest completion, as the sender measures it.
    completion_s: f64,
    /// Of the payload over the expensive path, in %, and its minimum.
    share: f64,
    optimum: f64,
    /// IP bytes over payload, minus 1, in %.
    overhead: f64,
}

impl Case {
    /// The minimum share of the expensive path, in %, with the headers of TCP over IPv4 with timestamps.
    fn optimum(self) -> f64 {
        let cheap = self.mbit_s[0] * 1e6 / 8.0 * 1448.0 / 1500.0 * (self.within_s - DELAY_MS as f64 / 1e3);
        100.0 * (1.0 - cheap / self.bytes).max(0.0)
    }

    fn run(self, congestion: &str) -> Outcome {
        let (testbed, _emulator) = unequal_links(["cheap", "expensive"], self.mbit_s, DELAY_MS);
        let workdir = TempDir::new().unwrap();
        fs::create_dir(workdir.path().join("in")).unwrap();
        let names: Vec<String> = (0..OBJECTS).map(|number| number.to_string()).collect();
        for name in &names {
            fs::write(workdir.path().join(name), vec![7; self.bytes as usize]).unwrap();
        }
        let mut command = Command::new(CROSSLANE);
        command
            .args(["receive", "--encryption", "none", "--once", "--into", "in", "--listen", "0.0.0.0:7411"])
            .current_dir(workdir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut receiver = testbed.server.spawn(&mut command).unwrap();
        sleep(Duration::from_millis(500));
        let mut command = Command::new(CROSSLANE);
        let deadline = format!("{}ms", self.within_s * 1e3);
        command.args(["send", "--cost", "cheap=0.1/GB,expensive=0.5/GB", "--every", "10s", "--deadline", &deadline]);
        command.args(["--encryption", "none"]);
        command.args(["--congestion", congestion, "--to", "10.255.0.1", "--json"]).args(&names);
        command.current_dir(workdir.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = ProgramOutput::from(testbed.vehicle.spawn(&mut command).unwrap().wait_with_output().unwrap());
        drop(receiver.kill());
        drop(receiver.wait());
        let table = testbed.vehicle.enter(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
        let sent = |path: &str| {
            let line = table.lines().find_map(|line| line.trim().strip_prefix(path)?.strip_prefix(':')).unwrap();
            line.split_whitespace().nth(8).unwrap().parse::<f64>().unwrap()
        };
        let document: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        let bytes = |path: usize| document["paths"][path]["bytes"].as_f64().unwrap();
        let is_late = |file: &&Value| file["in_time"] != Value::Bool(true);
        let completion_s = |file: &Value| file["completion_s"].as_f64().unwrap_or(f64::INFINITY);
        let files = document["files"].as_array().unwrap();
        let total = bytes(0) + bytes(1);
        Outcome {
            missed: files.iter().filter(is_late).count(),
            completion_s: files.iter().map(completion_s).fold(0.0, f64::max),
            share: 100.0 * bytes(1) / total,
            optimum: self.optimum(),
            overhead: 100.0 * ((sent("cheap") + sent("expensive")) / (self.bytes * OBJECTS as f64) - 1.0),
        }
    }
}

#[test]
fn no_deadline_is_missed_and_little_more_than_must_goes_over_the_expensive_path() {
    if !can_drive() {
        return;
    }
    for congestion in ["cubic", "bbr"] {
        decide(|| {
            let outcome = SYMMETRIC_9S.run(congestion);
            let in_time = outcome.missed == 0 && outcome.completion_s <= SYMMETRIC_9S.within_s;
            let above = outcome.share - outcome.optimum;
            let is_good = in_time && (-1.0..4.0).contains(&above) && outcome.overhead < 6.0;
            if is_good { Ok(()) } else { Err(format!("{congestion}: {outcome:?}")) }
        });
    }
}

#[test]
#[ignore = "measures all cases, 13 minutes"]
fn all_cases() {
    for congestion in ["cubic", "bbr"] {
        for case in CASES {
            println!("{congestion} {case:?}: {:.1?}", case.run(congestion));
        }
    }
}
