//! `crosslane send` over two emulated paths, with an agent of its own.

#![allow(clippy::unwrap_used)]

mod program;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crosslane::netlink::{PathManager, select_path_manager, selected_path_manager};
use crosslane::testbed::Testbed;
use crosslane::testbed::emulator::Emulator;
use program::links::two_links;
use program::{CROSSLANE, Said, can_drive};
use serde_json::Value;
use tempfile::TempDir;

/// Rate of each path.
const MBIT_S: f64 = 8.0;

/// A vehicle with `cheap` and `dear`, and `crosslane receive` far away.
struct World {
    testbed: Testbed,
    _emulator: Emulator,
    receiver: Child,
    desk: TempDir,
}

impl World {
    fn new() -> World {
        // The kernel's choice would be the dear one.
        let (testbed, emulator) = two_links(["dear", "cheap"], MBIT_S, 10);
        let kernel = || select_path_manager(PathManager::Kernel).unwrap();
        testbed.vehicle.enter(kernel).unwrap();
        testbed.server.enter(kernel).unwrap();
        let desk = TempDir::new().unwrap();
        fs::create_dir(desk.path().join("in")).unwrap();
        let mut command = Command::new(CROSSLANE);
        command.args(["receive", "--into", "in", "--listen", "0.0.0.0:7411"]).current_dir(desk.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let receiver = testbed.server.spawn(&mut command).unwrap();
        sleep(Duration::from_millis(300));
        World { testbed, _emulator: emulator, receiver, desk }
    }

    fn send(&self, bytes: usize, options: &[&str]) -> Said {
        fs::write(self.desk.path().join("file"), vec![7; bytes]).unwrap();
        let mut command = Command::new(CROSSLANE);
        command.arg("send").args(options).args(["file", "--to", "10.255.0.1", "--json"]).current_dir(self.desk.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Said::from(self.testbed.vehicle.spawn(&mut command).unwrap().wait_with_output().unwrap())
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
fn the_dear_path_carries_what_the_cheap_one_cannot_by_the_deadline() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    let prices = ["--cost", "dear=0.5/GB,cheap=0.1/GB", "--deadline"];
    // Too little for anything but the first path, which the routes would have be the dear one.
    assert_eq!(world.send(20_000, &[&prices[..], &["12s"]].concat()).code, Some(0));
    assert!(world.sent("cheap") > 20_000 && world.sent("dear") < 5000);
    let (cheap, dear) = (world.sent("cheap"), world.sent("dear"));
    // 4 s over one path.
    let said = world.send(4_000_000, &[&prices[..], &["12s"]].concat());
    let document: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!((said.code, &document["multipath"]), (Some(0), &Value::Bool(true)), "{said:?}");
    let (cheap, dear) = (world.sent("cheap") - cheap, world.sent("dear") - dear);
    // Nothing is known of the paths at first, so that some of it may go over the dear one; the kernel sends half.
    assert!(cheap > 3 * dear, "cheap {cheap}, dear {dear}: {said:?}");
    let before = (world.sent("cheap"), world.sent("dear"));
    // 8 s over one path.
    let said = world.send(8_000_000, &[&prices[..], &["6500ms"]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let (more_cheap, more_dear) = (world.sent("cheap") - before.0, world.sent("dear") - before.1);
    assert!(more_dear > 1_500_000 && more_cheap > more_dear, "cheap {more_cheap}, dear {more_dear}: {said:?}");
    let selected = world.testbed.vehicle.enter(|| selected_path_manager().unwrap()).unwrap();
    assert_eq!(selected, PathManager::Kernel, "it was selected for the connection alone");
}

/// By the first file the agent knows the paths.
#[test]
fn a_deadline_that_cannot_be_met_is_told_beforehand() {
    if !can_drive() {
        return;
    }
    let world = World::new();
    fs::write(world.desk.path().join("known"), vec![7; 3_000_000]).unwrap();
    let paths = ["known", "--prefer", "cheap,dear", "--every", "5s", "--late", "continue"];
    let said = world.send(8_000_000, &[&paths[..], &["--deadline", "4s", "--deadline", "2s"]].concat());
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("no prediction for known is available yet\n"), "{said:?}");
    assert!(said.stderr.contains("the deadline of file cannot be met; predicted completion: in "), "{said:?}");
    let document: Value = serde_json::from_str(&said.stdout).unwrap();
    let second = |of: &Value| of.as_f64().unwrap();
    let file = &document["files"][1];
    let (best_s, completion_s) = (second(&file["admission"]["predicted_s"]), second(&file["completion_s"]));
    assert!((3.5..6.0).contains(&completion_s), "both paths carried: {said:?}");
    // What is sure is less than what comes about.
    assert!((completion_s - 0.2..3.0 * completion_s).contains(&best_s), "{said:?}");
}
