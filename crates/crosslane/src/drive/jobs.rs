//! Executes the runs, some in parallel, each in a separate process.

use std::collections::{BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Plan;
use super::program::this_program;
use crate::comparison::Entry;
use crate::error::{Error, Result};
use crate::interrupt::{Interrupt, let_through};
use crate::summary::{Outcome, Run};

/// Attempts at a run whose emulator was late.
const ATTEMPTS: u32 = 3;
/// Longest wait before a signal is passed on to the runs.
const NAP: Duration = Duration::from_millis(50);

/// Checks in a separate process that this machine can execute runs of
/// strategies with these bases.
///
/// # Errors
/// What is missing and what to do (exit code 2).
pub fn check_machine(bases: &BTreeSet<String>) -> Result<()> {
    let attempt = "checking this machine";
    let mut probe = this_program().map_err(|cause| Error::failure(attempt, cause))?;
    let output = let_through(probe.arg("drive-probe").args(bases).stdin(Stdio::null())).output();
    let output = output.map_err(|cause| Error::failure(attempt, cause))?;
    match output.status.code() {
        Some(0) => Ok(()),
        code => Err(child_error(attempt, String::from_utf8_lossy(&output.stderr).trim(), code)),
    }
}

/// Executes all plans and returns the complete runs in the order of the plans,
/// with the failure or interrupt, if any. After a failure the started runs are
/// finished; after an interrupt they are ended and leave no records. No further
/// run is started after either.
///
/// # Errors
/// This process cannot supervise child processes; no run was started.
pub fn run_all(
    plans: Vec<Plan>,
    parallel: usize,
    duration_s: f64,
    interrupt: &Interrupt,
) -> Result<(Vec<Run>, Option<Error>)> {
    let bars = MultiProgress::new();
    let total = bars.add(bar(plans.len() as u64, "{bar:30} {pos}/{len} runs  {msg}"));
    total.tick();
    let queue: Mutex<VecDeque<(usize, Plan)>> = Mutex::new(plans.into_iter().enumerate().collect());
    let finished: Mutex<Vec<(usize, Result<Run>)>> = Mutex::new(Vec::new());
    let processes = Processes { interrupt, running: Mutex::default() };
    let work = || {
        while let Some((place, plan)) = next(&queue).filter(|_| !interrupt.came()) {
            let bar = bars.add(bar((duration_s * 10.0) as u64, "{bar:30} {msg}"));
            let run = attempt_until_valid(&plan, &bar, &processes);
            bar.finish_and_clear();
            total.inc(1);
            if run.is_err() {
                lock(&queue).clear();
            }
            lock(&finished).push((place, run));
        }
    };
    let all_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..parallel.max(1)).map(|_| scope.spawn(work)).collect();
        scope.spawn(|| processes.end_on_interrupt(&all_done));
        // The scope reports a worker's panic.
        workers.into_iter().for_each(|worker| drop(worker.join()));
        all_done.store(true, Ordering::Relaxed);
    });
    total.finish_and_clear();
    let mut finished = finished.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    finished.sort_by_key(|(place, _)| *place);
    let (mut runs, mut failure) = (Vec::new(), interrupt.failure("driving"));
    for (_, run) in finished {
        match run {
            Ok(run) => runs.push(run),
            Err(error) => drop(failure.get_or_insert(error)),
        }
    }
    Ok((runs, failure))
}

/// The processes of the runs, by their ids.
struct Processes<'a> {
    interrupt: &'a Interrupt,
    running: Mutex<BTreeSet<i32>>,
}

impl Processes<'_> {
    /// Ends every run once this process is asked to end. A run ends with all
    /// processes that it has started.
    fn end_on_interrupt(&self, all_done: &AtomicBool) {
        while !all_done.load(Ordering::Relaxed) {
            if self.interrupt.came() {
                // A process that has ended has not been waited for, so its id is not reused.
                for id in lock(&self.running).iter() {
                    let _ = kill(Pid::from_raw(*id), Signal::SIGTERM);
                }
            }
            std::thread::sleep(NAP);
        }
    }
}

fn next(queue: &Mutex<VecDeque<(usize, Plan)>>) -> Option<(usize, Plan)> {
    lock(queue).pop_front()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}

fn attempt_until_valid(plan: &Plan, bar: &ProgressBar, processes: &Processes<'_>) -> Result<Run> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        bar.set_position(0);
        bar.set_message(format!("{} seed {}", plan.entry.strategy, plan.entry.seed));
        let outcome = execute(plan, bar, processes).inspect_err(|_| {
            if processes.interrupt.came() {
                // Partial records could be mistaken for those of a run.
                drop(std::fs::remove_dir_all(&plan.folder));
            }
        })?;
        if outcome.valid || attempts == ATTEMPTS {
            let Entry { strategy, seed } = plan.entry.clone();
            return Ok(Run { folder: Some(plan.entry.folder()), strategy, seed, attempts, outcome });
        }
    }
}

/// Starts the process of a run and reads its standard output: `at SECONDS` as
/// progress, `outcome JSON` at the end, other lines for the user.
fn execute(plan: &Plan, bar: &ProgressBar, processes: &Processes<'_>) -> Result<Outcome> {
    let attempt = format!("running {} with seed {}", plan.entry.strategy, plan.entry.seed);
    let failure = |cause: &dyn std::fmt::Display| Error::failure(&attempt, cause);
    let text = serde_json::to_string(plan).map_err(|cause| failure(&cause))?;
    let mut run = this_program().map_err(|cause| failure(&cause))?;
    run.args(["drive-run", &text]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        if plan.keep { &mut run } else { let_through(&mut run) }.spawn().map_err(|cause| failure(&cause))?;
    let id = child.id() as i32;
    lock(&processes.running).insert(id);
    let mut outcome = None;
    for line in child.stdout.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines().map_while(Result::ok)) {
        match line.split_once(' ') {
            Some(("at", seconds)) => bar.set_position((seconds.parse().unwrap_or(0.0) * 10.0) as u64),
            Some(("outcome", json)) => outcome = Some(serde_json::from_str(json).map_err(|cause| failure(&cause))?),
            _ => bar.suspend(|| println!("{line}")),
        }
    }
    let mut stderr = String::new();
    if let Some(mut pipe) = child.stderr.take() {
        pipe.read_to_string(&mut stderr).map_err(|cause| failure(&cause))?;
    }
    lock(&processes.running).remove(&id);
    let status = child.wait().map_err(|cause| failure(&cause))?;
    match outcome {
        Some(outcome) if status.success() => Ok(outcome),
        _ => Err(child_error(&attempt, stderr.trim(), status.code())),
    }
}

/// The child's error message, if it has one.
fn child_error(attempt: &str, stderr: &str, code: Option<i32>) -> Error {
    let message = stderr.strip_prefix("crosslane: ").unwrap_or(stderr);
    match (message, code) {
        ("", Some(code)) => Error::failure(attempt, format!("the run ended with code {code}")),
        ("", None) => Error::failure(attempt, "the run was killed"),
        (sentence, Some(2)) => Error::message(sentence, 2),
        (sentence, _) => Error::message(sentence, 1),
    }
}
