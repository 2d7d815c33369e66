//! Carries out the runs, some in parallel, each in a separate process. A run that only
//! waits for the sockets of the server does not count against the limit.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::thread;

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::report;
use super::run::{LINGERING, Manager};
use super::selfcheck::{self, Planted};
use super::verdict::{Decision, Facts, Violation, decide, evaluate};

/// Maximum number of runs that wait for sockets at the same time.
const MAX_LINGERING: usize = 12;

/// Number of the attempt in which all seeds are rerun.
pub const RERUN: usize = 9;

/// Result of a run with one path manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Side {
    /// Measurements of the run.
    pub facts: Facts,
    /// The rules that it broke.
    pub broken: Vec<Violation>,
}

/// Results of a seed in one attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// With the agent.
    pub agent: Side,
    /// With the in-kernel path manager.
    pub kernel: Side,
}

/// Results of a seed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Plan of the seed.
    pub plan: Plan,
    /// The first attempt, and repetitions that a broken rule required.
    pub attempts: Vec<Attempt>,
}

impl Outcome {
    /// The decision from all attempts so far.
    pub fn decision(&self) -> Decision {
        let broken: Vec<_> = self.attempts.iter().map(|attempt| report::broken(&self.plan, attempt)).collect();
        decide(&broken)
    }
}

/// Checks whether this machine can carry out a run.
///
/// # Errors
/// A message with the reason, if it cannot.
pub fn probe() -> Result<(), String> {
    let output = Command::new(std::env::current_exe().unwrap()).arg("--role=probe").output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// A counting semaphore.
struct Semaphore {
    free: Mutex<usize>,
    changed: Condvar,
}

impl Semaphore {
    fn of(number: usize) -> Semaphore {
        Semaphore { free: Mutex::new(number), changed: Condvar::new() }
    }

    fn acquire(&self) {
        let mut free = self.changed.wait_while(self.free.lock().unwrap(), |free| *free == 0).unwrap();
        *free -= 1;
    }

    fn release(&self) {
        *self.free.lock().unwrap() += 1;
        self.changed.notify_one();
    }
}

/// Carries out all plans with both path managers, and repeats undecided ones.
pub fn run_all(plans: &[Plan], parallel: usize, out: Option<&Path>) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> =
        plans.iter().map(|plan| Outcome { plan: plan.clone(), attempts: Vec::new() }).collect();
    for number in 0.. {
        let is_open = |outcome: &&Outcome| outcome.decision() == Decision::Open;
        let undecided: Vec<Plan> = outcomes.iter().filter(is_open).map(|outcome| outcome.plan.clone()).collect();
        if undecided.is_empty() {
            break;
        }
        if number > 0 {
            report::repeat(&undecided);
        }
        for (seed, attempt) in run_once(&undecided, parallel, out, number) {
            outcomes.iter_mut().filter(|outcome| outcome.plan.seed == seed).for_each(|outcome| {
                outcome.attempts.push(attempt.clone());
            });
        }
    }
    outcomes
}

/// Carries out each plan once with both path managers; the results are sorted by seed.
/// `number` is the number of the attempt, from 0; each attempt has a separate folder.
pub fn run_once(plans: &[Plan], parallel: usize, out: Option<&Path>, number: usize) -> Vec<(u64, Attempt)> {
    let temporary = tempfile::TempDir::new().unwrap();
    let folder = out.unwrap_or(temporary.path());
    let folder = if number == 0 { folder.to_owned() } else { folder.join(format!("again-{number}")) };
    let (active, all) = (Semaphore::of(parallel.max(1)), Semaphore::of(parallel.max(1) + MAX_LINGERING));
    let halves: Mutex<Vec<(u64, Manager, Side)>> = Mutex::new(Vec::new());
    let attempts: Mutex<Vec<(u64, Attempt)>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for plan in plans {
            for manager in [Manager::Agent, Manager::Kernel] {
                all.acquire();
                active.acquire();
                let (active, all, halves, attempts, folder) = (&active, &all, &halves, &attempts, &folder);
                scope.spawn(move || {
                    let side = carry_out(plan, manager, folder, active);
                    all.release();
                    let mut halves = halves.lock().unwrap();
                    let other = halves.iter().position(|(seed, _, _)| *seed == plan.seed);
                    let Some(other) = other.map(|place| halves.swap_remove(place).2) else {
                        return halves.push((plan.seed, manager, side));
                    };
                    let (agent, kernel) = if manager == Manager::Agent { (side, other) } else { (other, side) };
                    let attempt = Attempt { agent, kernel };
                    report::attempt(plan, &attempt);
                    attempts.lock().unwrap().push((plan.seed, attempt));
                });
            }
        }
    });
    let mut attempts = attempts.into_inner().unwrap();
    attempts.sort_by_key(|(seed, _)| *seed);
    attempts
}

/// Carries out the planted faults; returns a message for each that was not found.
pub fn self_check(parallel: usize) -> Vec<String> {
    let temporary = tempfile::TempDir::new().unwrap();
    let (active, planted) = (Semaphore::of(parallel.max(1)), selfcheck::planted());
    thread::scope(|scope| {
        let (active, folder) = (&active, temporary.path());
        let check = |planted: Planted| {
            active.acquire();
            scope.spawn(move || {
                let side = carry_out(&planted.plan, Manager::Agent, folder, active);
                selfcheck::complaint(&planted, &side)
            })
        };
        let threads: Vec<_> = planted.into_iter().map(check).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    })
}

fn carry_out(plan: &Plan, manager: Manager, folder: &Path, active: &Semaphore) -> Side {
    let folder: PathBuf = folder.join(format!("{}-{}", manager.name(), plan.seed));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--role=run").arg(serde_json::to_string(plan).unwrap()).arg(manager.name()).arg(&folder);
    command.arg(std::process::id().to_string()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stderr = child.stderr.take().unwrap();
    let complaints = thread::spawn(move || std::io::read_to_string(stderr).unwrap_or_default());
    let (mut is_lingering, mut facts) = (false, None);
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        if line == LINGERING {
            is_lingering = true;
            active.release();
        } else {
            facts = serde_json::from_str::<Facts>(&line).ok();
        }
    }
    if !is_lingering {
        active.release();
    }
    let status = child.wait().unwrap();
    let complaint = complaints.join().unwrap();
    match facts {
        Some(facts) => Side { broken: evaluate(plan, &facts), facts },
        None => {
            let what = format!("the run failed: {status}: {}", complaint.trim());
            Side { facts: Facts::default(), broken: vec![Violation { rule: "run".into(), what }] }
        }
    }
}
