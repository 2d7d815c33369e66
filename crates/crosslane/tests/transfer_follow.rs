//! `crosslane send --follow`: files that grow while they are sent.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::program::{CROSSLANE, ProgramOutput};
use crate::receiver::Receiver;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

struct World {
    workdir: TempDir,
    receiver: Receiver,
    log: File,
    content: Vec<u8>,
}

impl World {
    fn new() -> World {
        let workdir = TempDir::new().unwrap();
        let receiver = Receiver::start(workdir.path());
        let log = File::create(workdir.path().join("log")).unwrap();
        World { workdir, receiver, log, content: Vec::new() }
    }

    fn path(&self) -> &Path {
        self.workdir.path()
    }

    fn stored(&self) -> PathBuf {
        self.path().join("in/log")
    }

    fn part(&self) -> PathBuf {
        self.path().join("in/log.part")
    }

    fn append(&mut self, length: usize) {
        let bytes: Vec<u8> = (0..length).map(|place| (place * 31 + self.content.len()) as u8).collect();
        self.log.write_all(&bytes).unwrap();
        self.content.extend(bytes);
    }

    fn start(&self, options: &[&str]) -> Child {
        let mut command = Command::new(CROSSLANE);
        command.args(["send", "log", "--follow", "--encryption", "none", "--json", "--to", &self.receiver.address]);
        command.args(options).current_dir(self.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits until the receiver has all that was appended.
    fn await_all(&self) {
        for _ in 0..3000 {
            if fs::read(self.part()).is_ok_and(|found| found == self.content) {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("{} of {} bytes", fs::read(self.part()).unwrap_or_default().len(), self.content.len());
    }
}

fn interrupt(child: Child) -> ProgramOutput {
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    ProgramOutput::from(child.wait_with_output().unwrap())
}

fn file(output: &ProgramOutput) -> Value {
    let document: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    document["files"][0].clone()
}

#[test]
fn what_is_appended_arrives_as_it_appears_until_ctrl_c() {
    let mut world = World::new();
    world.append(100);
    let sender = world.start(&["--deadline", "10s"]);
    world.await_all();
    for length in [1, 16_384, 40_000, 3_000_000, 7] {
        world.append(length);
        world.await_all();
        assert!(!world.stored().exists());
    }
    let output = interrupt(sender);
    assert_eq!(output.code, Some(0), "{output:?}");
    let file = file(&output);
    assert_eq!((file["outcome"].as_str(), file["in_time"].as_bool()), (Some("stored"), Some(true)), "{output:?}");
    assert_eq!(file["bytes"].as_u64(), Some(world.content.len() as u64));
    assert!(file["parts"].as_u64().unwrap() >= 6, "{output:?}");
    assert!(fs::read(world.stored()).unwrap() == world.content);
    assert_eq!(fs::read_dir(world.path().join("in")).unwrap().count(), 1);
    assert_eq!(world.receiver.end().lines().count(), 1, "no fault was reported");
}

#[test]
fn a_file_to_which_nothing_is_appended_ends_after_the_idle_time() {
    let mut world = World::new();
    world.append(50_000);
    let mut sender = world.start(&["--idle", "1s"]);
    for _ in 0..4 {
        sleep(Duration::from_millis(400));
        world.append(1000);
        assert!(sender.try_wait().unwrap().is_none(), "it grows");
    }
    let output = ProgramOutput::from(sender.wait_with_output().unwrap());
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(fs::read(world.stored()).unwrap() == world.content);
}

#[test]
fn a_file_that_becomes_shorter_is_not_stored() {
    let mut world = World::new();
    world.append(50_000);
    let sender = world.start(&[]);
    world.await_all();
    world.log.set_len(10).unwrap();
    let output = ProgramOutput::from(sender.wait_with_output().unwrap());
    assert_eq!((output.code, file(&output)["outcome"].as_str()), (Some(1), Some("changed")), "{output:?}");
    world
        .receiver
        .await_message("the sender abandoned it: it changed while it was sent; the received part is in in/log.part");
    assert!(!world.stored().exists());
    assert_eq!(fs::read_dir(world.path().join("in")).unwrap().count(), 1, "no state is left");
}

/// Both ends were killed, at different times.
#[test]
fn a_followed_file_goes_on_after_kills_of_both_ends() {
    let mut world = World::new();
    world.append(3_000_000);
    let mut sender = world.start(&[]);
    world.await_all();
    sender.kill().unwrap();
    sender.wait().unwrap();
    world.append(100_000);
    world.receiver.await_message("the connection ended before it was complete; the received part is in in/log.part");
    world.receiver = Receiver::start(world.path());
    let sender = world.start(&[]);
    world.await_all();
    world.append(5);
    world.await_all();
    let output = interrupt(sender);
    assert_eq!(output.code, Some(0), "{output:?}");
    let file = file(&output);
    assert!(file["resumed_bytes"].as_u64().unwrap() > 2_900_000, "{output:?}");
    assert!(fs::read(world.stored()).unwrap() == world.content);
    let log = world.receiver.end();
    assert!(log.contains("it goes on: 3000000 bytes are there"), "{log}");
}

/// The sender lives on: what the first receiver has confirmed is not sent again, and not missing either.
#[test]
fn a_receiver_that_is_started_again_goes_on_with_a_followed_file() {
    let mut world = World::new();
    world.append(200_000);
    let sender = world.start(&[]);
    world.await_all();
    // Without a state the file would begin from nothing, as log.2.part.
    let state = world.path().join("in/log.part.state");
    while !state.exists() {
        sleep(Duration::from_millis(1));
    }
    let address = world.receiver.address.clone();
    drop(world.receiver.child.kill());
    drop(world.receiver.child.wait());
    world.append(70_000);
    world.receiver = Receiver::at(world.path(), &address);
    world.await_all();
    let output = interrupt(sender);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(fs::read(world.stored()).unwrap() == world.content);
}
