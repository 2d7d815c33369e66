//! However a contained run ends, all its processes end with it. This is a separate
//! program without a test harness: a run must be contained before it starts threads.
#![allow(clippy::unwrap_used)] // A test fails by a panic.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use crosslane::testbed::{PathPlan, Testbed, contain, prepare_privileges};

const ROLE: &str = "CONTAINMENT_ROLE";

fn main() {
    // A shell starts background jobs with SIGINT ignored, and a run inherits that.
    // SAFETY: this installs the default action, no handler.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    if let Ok(role) = env::var(ROLE) {
        return run_role(&role);
    }
    let probe = start("exit 3").0.wait().unwrap();
    if probe.code() == Some(2) {
        assert!(env::var_os("CI").is_none(), "e2e NOT RUN: see above");
        eprintln!("e2e NOT RUN: see above");
        return;
    }
    assert_eq!(probe.code(), Some(3), "the run's exit code is passed on");
    sigkill_of_the_outer_process_ends_all_processes_of_the_run();
    ctrl_c_reaches_the_run_once_and_leaves_no_process();
    the_children_of_a_run_that_aborts_end_with_it();
    println!("containment: 4 tests ok");
}

fn sigkill_of_the_outer_process_ends_all_processes_of_the_run() {
    let (mut outer, mut pipe) = start("linger");
    let sleeper = sleeper_pid(&mut pipe);
    outer.kill().unwrap();
    outer.wait().unwrap();
    assert_ended(pipe.into_inner(), &sleeper);
}

fn ctrl_c_reaches_the_run_once_and_leaves_no_process() {
    let (outer, mut pipe) = start("linger");
    let sleeper = sleeper_pid(&mut pipe);
    let ended = signal_and_wait(outer, libc::SIGINT);
    assert_eq!(ended.code(), Some(130));
    assert_ended(pipe.into_inner(), &sleeper);
}

fn the_children_of_a_run_that_aborts_end_with_it() {
    let (mut outer, mut pipe) = start("abort");
    let sleeper = sleeper_pid(&mut pipe);
    assert_eq!(outer.wait().unwrap().code(), Some(128 + libc::SIGABRT));
    assert_ended(pipe.into_inner(), &sleeper);
}

/// Runs the contained process; `role` is `linger`, `abort` or `exit CODE`.
fn run_role(role: &str) {
    let contained = prepare_privileges().and_then(|_| contain());
    if let Err(error) = contained {
        eprintln!("{error}");
        std::process::exit(i32::from(error.exit_code()));
    }
    if let Some(code) = role.strip_prefix("exit ") {
        std::process::exit(code.parse().unwrap());
    }
    let testbed = Testbed::new(&[PathPlan { name: "wire".into(), metric: 0 }]).unwrap();
    // It inherits standard output, so the pipe is open until it exits.
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

/// Waits until the run has started its child; returns the child's process ID.
fn sleeper_pid(pipe: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    pipe.read_line(&mut line).unwrap();
    assert_eq!(line, "sleeping\n");
    let found = sleepers();
    assert_eq!(found.len(), 1, "only one sleeper runs at a time");
    found[0].clone()
}

fn sleepers() -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let is_ours =
        |pid: &String| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\x0060.4711\0");
    processes.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(is_ours).collect()
}

fn signal_and_wait(mut child: Child, signal: i32) -> ExitStatus {
    // SAFETY: the process ID belongs to our child until we wait for it.
    unsafe { libc::kill(child.id() as i32, signal) };
    child.wait().unwrap()
}

/// The sleeper and all processes that held the pipe open have ended.
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
