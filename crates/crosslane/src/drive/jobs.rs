//! Executes the runs, some in parallel, each in a separate process.
//!
//! A run's emulator has real-time priority and must not wait for the emulator of another run, so a
//! run needs a whole processor at least. One processor stays free for the kernel and other
//! programs (`docs/decisions/0047-as-many-drives-as-the-processors-carry.md`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Plan;
use crate::comparison::{Entry, lock};
use crate::error::{Error, Result};
use crate::interrupt::{Interrupt, let_through};
use crate::output;
use crate::program::this_program;
use crate::summary::{Outcome, Run};

/// Attempts at a run whose emulator was late.
const ATTEMPTS: u32 = 3;
/// Longest wait before a signal is passed on to the runs.
const NAP: Duration = Duration::from_millis(50);

/// Checks in a separate process that this machine can execute runs of
/// strategies with these bases.
pub fn check_machine(bases: &BTreeSet<String>) -> Result<()> {
    let attempt = "checking this machine";
    let probe =
        |mut program: Command| let_through(program.arg("drive-probe").args(bases).stdin(Stdio::null())).output();
    let output = this_program().and_then(probe).map_err(|cause| Error::failure(attempt, cause))?;
    match output.status.code() {
        Some(0) => Ok(()),
        code => Err(child_error(attempt, String::from_utf8_lossy(&output.stderr).trim(), code)),
    }
}

/// The number of runs that are executed at the same time.
struct Parallel {
    /// By `--jobs`; `None` is as many as the processors carry.
    requested: Option<usize>,
    processors: usize,
    /// CPU-seconds per second of the most demanding run so far; at least 1.
    need: Mutex<f64>,
}

impl Parallel {
    fn new(requested: Option<usize>) -> Parallel {
        let processors = available_parallelism().map_or(1, usize::from);
        Parallel { requested, processors, need: Mutex::new(1.0) }
    }

    /// Number of runs without invalid ones, if each needs `need` processors.
    fn carried(&self, need: f64) -> usize {
        ((self.processors.saturating_sub(1) as f64 / need) as usize).max(1)
    }

    fn number(&self) -> usize {
        self.requested.unwrap_or_else(|| self.carried(*lock(&self.need)))
    }

    /// Includes the CPU-seconds per second of a run. Returns a warning if more runs were
    /// requested than the processors carry, unless a less demanding run has caused it already.
    fn include(&self, measured: f64) -> Option<String> {
        let mut need = lock(&self.need);
        let before = *need;
        *need = before.max(measured);
        self.warning(*need).filter(|_| self.warning(before).is_none())
    }

    /// Warning if more runs were requested than the processors carry.
    fn warning(&self, need: f64) -> Option<String> {
        let (requested, carried) = (self.requested?, self.carried(need));
        (requested > carried).then(|| {
            format!(
                "{requested} runs at a time are more than this machine carries: a run needs {need:.1} of \
                 {} processors, and one stays free; runs may become invalid, and are then repeated. Without --jobs \
                 it is {carried} at a time",
                self.processors
            )
        })
    }
}

/// Executes all plans and returns the complete runs in the order of the plans,
/// with the failure or interrupt, if any. `jobs` is the number of runs at the same
/// time; the default is as many as the processors carry, by the CPU time of the
/// first run, which is then executed alone. After a failure the started runs are
/// finished; after an interrupt they are ended and leave no records. No further
/// run is started after either.
///
/// # Errors
/// This process cannot supervise child processes; no run was started.
pub fn run_all(
    plans: Vec<Plan>,
    jobs: Option<usize>,
    duration_s: f64,
    interrupt: &Interrupt,
) -> Result<(Vec<Run>, Option<Error>)> {
    let parallel = Parallel::new(jobs.map(|jobs| jobs.min(plans.len())));
    parallel.warning(1.0).iter().for_each(output::message);
    let bars = MultiProgress::new();
    let total = bars.add(bar(plans.len() as u64, "{bar:30} {pos}/{len} runs  {msg}"));
    total.tick();
    let queue: Mutex<VecDeque<(usize, Plan)>> = Mutex::new(plans.into_iter().enumerate().collect());
    let finished: Mutex<BTreeMap<usize, Result<Run>>> = Mutex::default();
    let processes = Processes { interrupt, running: Mutex::default() };
    let execute_next = || {
        let Some((place, plan)) = next(&queue).filter(|_| !interrupt.came()) else { return false };
        let bar = bars.add(bar((duration_s * 10.0) as u64, "{bar:30} {msg}"));
        let run = attempt_until_valid(&plan, &bar, &processes, |cpu_s| parallel.include(cpu_s / duration_s));
        bar.finish_and_clear();
        total.inc(1);
        if run.is_err() {
            lock(&queue).clear();
        }
        lock(&finished).insert(place, run);
        true
    };
    let work = |place| while place < parallel.number() && execute_next() {};
    let all_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| processes.end_on_interrupt(&all_done));
        if jobs.is_none() {
            drop(scope.spawn(execute_next).join());
        }
        let workers: Vec<_> = (0..parallel.number()).map(|place| scope.spawn(move || work(place))).collect();
        // The scope reports a worker's panic.
        workers.into_iter().for_each(|worker| drop(worker.join()));
        all_done.store(true, Ordering::Relaxed);
    });
    total.finish_and_clear();
    let (mut runs, mut failure) = (Vec::new(), interrupt.failure("driving"));
    for run in std::mem::take(&mut *lock(&finished)).into_values() {
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

fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}

/// Executes the run until it is valid; `include` receives the CPU time of each attempt in s and
/// returns a warning.
fn attempt_until_valid(
    plan: &Plan,
    bar: &ProgressBar,
    processes: &Processes<'_>,
    include: impl Fn(f64) -> Option<String>,
) -> Result<Run> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        bar.set_position(0);
        bar.set_message(format!("{} seed {}", plan.entry.strategy, plan.entry.seed));
        let (outcome, cpu_s) = execute(plan, bar, processes).inspect_err(|_| {
            if processes.interrupt.came() {
                // Partial records could be mistaken for those of a run.
                drop(std::fs::remove_dir_all(&plan.folder));
            }
        })?;
        if let Some(warning) = include(cpu_s) {
            bar.suspend(|| output::message(warning));
        }
        if outcome.valid || attempts == ATTEMPTS {
            let Entry { strategy, seed } = plan.entry.clone();
            return Ok(Run { folder: Some(plan.entry.folder()), strategy, seed, attempts, outcome });
        }
    }
}

/// Starts the process of a run and reads its standard output: `at SECONDS` as
/// progress, `cpu SECONDS` and `outcome JSON` at the end, other lines for the user.
/// Returns the outcome and the CPU time in s.
fn execute(plan: &Plan, bar: &ProgressBar, processes: &Processes<'_>) -> Result<(Outcome, f64)> {
    let attempt = format!("running {} with seed {}", plan.entry.strategy, plan.entry.seed);
    let failure = |cause: &dyn std::fmt::Display| Error::failure(&attempt, cause);
    let text = serde_json::to_string(plan).map_err(|cause| failure(&cause))?;
    let mut run = this_program().map_err(|cause| failure(&cause))?;
    run.args(["drive-run", &text]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        if plan.keep { &mut run } else { let_through(&mut run) }.spawn().map_err(|cause| failure(&cause))?;
    let id = child.id() as i32;
    lock(&processes.running).insert(id);
    let (mut outcome, mut cpu_s) = (None, 0.0);
    for line in child.stdout.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines().map_while(Result::ok)) {
        match line.split_once(' ') {
            Some(("at", seconds)) => bar.set_position((seconds.parse().unwrap_or(0.0) * 10.0) as u64),
            Some(("cpu", seconds)) => cpu_s = seconds.parse().unwrap_or(0.0),
            Some(("outcome", json)) => outcome = Some(serde_json::from_str(json).map_err(|cause| failure(&cause))?),
            _ => bar.suspend(|| drop(output::print("printing a line of the run", line + "\n"))),
        }
    }
    let mut stderr = String::new();
    let read = child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut stderr));
    read.transpose().map_err(|cause| failure(&cause))?;
    lock(&processes.running).remove(&id);
    let status = child.wait().map_err(|cause| failure(&cause))?;
    match outcome {
        Some(outcome) if status.success() => Ok((outcome, cpu_s)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parallel(requested: Option<usize>, processors: usize) -> Parallel {
        Parallel { requested, processors, need: Mutex::new(1.0) }
    }

    #[test]
    fn a_run_has_a_processor_and_one_stays_free() {
        let number = |processors| parallel(None, processors).number();
        assert_eq!([1, 2, 3, 4, 16].map(number), [1, 1, 2, 3, 15]);
    }

    #[test]
    fn the_most_demanding_run_determines_the_number() {
        let parallel = parallel(None, 8);
        let after = |need| (parallel.include(need), parallel.number());
        assert_eq!([0.2, 1.9, 0.5].map(after), [(None, 7), (None, 3), (None, 3)]);
    }

    #[test]
    fn more_runs_than_the_processors_carry_are_warned_about_once() {
        let requested = parallel(Some(3), 4);
        assert!(requested.warning(1.0).is_none());
        assert!(requested.include(0.4).is_none());
        let warning = requested.include(1.6).unwrap_or_default();
        assert!(warning.contains("3 runs at a time") && warning.contains("1.6 of 4 processors"), "{warning}");
        assert!(warning.ends_with("Without --jobs it is 1 at a time"), "{warning}");
        assert_eq!((requested.include(2.0), requested.number()), (None, 3), "it is done as requested");
        assert!(parallel(Some(2), 2).warning(1.0).is_some());
    }
}
