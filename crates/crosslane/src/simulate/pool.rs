//! Threads that take runs from a queue. The results are in the order of the
//! plan, independent of the order of completion.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use crosslane_sim::scenario::Scenario;

use super::progress::Progress;
use super::{fleet, run};
use crate::comparison::Entry;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::summary::Run;

/// Context of all runs.
pub struct Work<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// Folder of the comparison, if runs write records.
    pub folder: Option<&'a Path>,
    /// Threads of a run of many vehicles.
    pub threads: usize,
}

/// Executes all runs and returns the complete ones, with the failure, if any.
/// After a failure or a signal no run is started, and those in progress are
/// aborted.
///
/// # Errors
/// The signals cannot be set up; no run was started.
pub fn run_all(work: &Work, entries: Vec<Entry>, threads: usize) -> Result<(Vec<Run>, Option<Error>)> {
    let stop = interrupt::listen()?;
    let progress = Progress::new(entries.len(), work.scenario.duration_s);
    let threads = threads.clamp(1, entries.len().max(1));
    let planned = entries.len();
    let queue: Mutex<VecDeque<(usize, Entry)>> = Mutex::new(entries.into_iter().enumerate().collect());
    let failed = AtomicBool::new(false);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let complete: Mutex<Vec<(usize, Run)>> = Mutex::new(Vec::new());
    let should_continue = || !failed.load(Ordering::Relaxed) && !stop.came();
    let take_runs = || {
        while let Some((place, entry)) = next(&queue).filter(|_| should_continue()) {
            match execute(work, &entry, &progress, &should_continue) {
                Ok(Some(run)) => lock(&complete).push((place, run)),
                Ok(None) => {}
                Err(error) => {
                    failed.store(true, Ordering::Relaxed);
                    lock(&failure).get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(take_runs);
        }
    });
    progress.done();
    let mut complete = complete.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    complete.sort_by_key(|(place, _)| *place);
    let mut failure = lock(&failure).take();
    if complete.len() < planned && failure.is_none() {
        failure = stop.failure("simulating");
    }
    Ok((complete.into_iter().map(|(_, run)| run).collect(), failure))
}

fn execute(
    work: &Work,
    entry: &Entry,
    progress: &Progress,
    should_continue: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Run>> {
    let folder = work.folder.map(|_| entry.folder());
    let place = work.folder.map(|of_all| of_all.join(entry.folder()));
    let at_second = || {
        progress.second();
        should_continue()
    };
    let outcome = if work.scenario.fleet.is_some() {
        fleet::execute(work.scenario, entry, place.as_deref(), work.threads, at_second)?
    } else {
        run::execute(work.scenario, entry, place.as_deref(), at_second)?
    };
    let Some(outcome) = outcome else { return Ok(None) };
    progress.run();
    Ok(Some(Run { strategy: entry.strategy.clone(), seed: entry.seed, folder, attempts: 1, outcome }))
}

/// A separate function, so that the lock is not held during the run.
fn next<T>(queue: &Mutex<VecDeque<T>>) -> Option<T> {
    lock(queue).pop_front()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
