//! Whatever ends a contained run ends all that it started. This is a program
//! of its own, without a test harness: containing must come before threads.
#![allow(clippy::unwrap_used)] // It is how a test fails.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use crosslane::testbed::{PathPlan, Testbed, contain, prepare_privileges};

const ROLE: &str = "CONTAINMENT_ROLE";

fn main() {
    // A shell starts what it runs in the background with SIGINT ignored, which a run
    // rightly keeps to.
    // SAFETY: no handler of ours is installed.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    if let Ok(role) = env::var(ROLE) {
        return play(&role);
    }
    let probe = start("exit 3").0.wait().unwrap();
    if probe.code() == Some(2) {
        assert!(env::var_os("CI").is_none(), "e2e NOT RUN: see above");
        eprintln!("e2e NOT RUN: see above");
        return;
    }
    assert_eq!(probe.code(), Some(3), "the run's exit code is passed on");
    sigkill_of_the_outer_process_ends_all_that_was_started();
    ctrl_c_reaches_the_run_once_and_nothing_is_left();
    a_run_that_dies_of_a_signal_takes_its_children_along();
    println!("containment: 4 stories ok");
}

fn sigkill_of_the_outer_process_ends_all_that_was_started() {
    let (mut outer, mut pipe) = start("linger");
    let sleeper = linger_pid(&mut pipe);
    outer.kill().unwrap();
    outer.wait().unwrap();
    assert_ended(pipe.into_inner(), &sleeper);
}

fn ctrl_c_reaches_the_run_once_and_nothing_is_left() {
    let (outer, mut pipe) = start("linger");
    let sleeper = linger_pid(&mut pipe);
    let ended = signal_and_wait(outer, libc::SIGINT);
    assert_eq!(ended.code(), Some(130));
    assert_ended(pipe.into_inner(), &sleeper);
}

fn a_run_that_dies_of_a_signal_takes_its_children_along() {
    let (mut outer, mut pipe) = start("abort");
    let sleeper = linger_pid(&mut pipe);
    assert_eq!(outer.wait().unwrap().code(), Some(128 + libc::SIGABRT));
    assert_ended(pipe.into_inner(), &sleeper);
}

/// What the contained process does; a word and a number.
fn play(role: &str) {
    let contained = prepare_privileges().and_then(|_| contain());
    if let Err(error) = contained {
        eprintln!("{error}");
        std::process::exit(i32::from(error.exit_code()));
    }
    if let Some(code) = role.strip_prefix("exit ") {
        std::process::exit(code.parse().unwrap());
    }
    let testbed = Testbed::new(&[PathPlan { name: "wire".into(), metric: 0 }]).unwrap();
    // It inherits standard output: the pipe ends only when it does.
    let mut sleeper = testbed.vehicle.spawn(Command::new("sleep").arg("60.4711")).unwrap();
    println!("sleeping");
    if role == "abort" {
        std::process::abort();
    }
    sleeper.wait().unwrap();
}

fn start(role: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(env::current_exe().unwrap());
    let mut child = command.env(ROLE, role).stdout(Stdio::piped()).spawn().unwrap();
    let pipe = BufReader::new(child.stdout.take().unwrap());
    (child, pipe)
}

/// Waits until the run has started its child; returns the child's number.
fn linger_pid(pipe: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    pipe.read_line(&mut line).unwrap();
    assert_eq!(line, "sleeping\n");
    let found = sleepers();
    assert_eq!(found.len(), 1, "one sleeper at a time");
    found[0].clone()
}

fn sleepers() -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let is_ours =
        |pid: &String| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\x0060.4711\0");
    processes.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(is_ours).collect()
}

fn signal_and_wait(mut child: Child, signal: i32) -> ExitStatus {
    // SAFETY: a number that is our child's until we wait for it.
    unsafe { libc::kill(child.id() as i32, signal) };
    child.wait().unwrap()
}

/// The sleeper is gone, and with it all that held the pipe.
fn assert_ended(mut pipe: ChildStdout, sleeper: &str) {
    let mut rest = Vec::new();
    pipe.read_to_end(&mut rest).unwrap();
    for _ in 0..100 {
        if sleepers().is_empty() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("process {sleeper} is left");
}
