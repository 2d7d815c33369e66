//! Threads that take runs from a queue. What came out stands in the order of
//! the plan, whatever thread was first.

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

/// What all runs share.
pub struct Work<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// Folder of the comparison, if runs are to leave records.
    pub folder: Option<&'a Path>,
    /// Threads of a run of many vehicles, which has them all.
    pub threads: usize,
}

/// Carries out all runs. After a failure or a signal none is begun, and those
/// under way are given up: then the failure stands beside the runs that are
/// complete.
///
/// # Errors
/// The signals cannot be set up; no run was begun.
pub fn run_all(work: &Work, entries: Vec<Entry>, threads: usize) -> Result<(Vec<Run>, Option<Error>)> {
    let stop = interrupt::listen()?;
    let progress = Progress::new(entries.len(), work.scenario.duration_s);
    let threads = threads.clamp(1, entries.len().max(1));
    let planned = entries.len();
    let queue: Mutex<VecDeque<(usize, Entry)>> = Mutex::new(entries.into_iter().enumerate().collect());
    let failed = AtomicBool::new(false);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let complete: Mutex<Vec<(usize, Run)>> = Mutex::new(Vec::new());
    let goes_on = || !failed.load(Ordering::Relaxed) && !stop.came();
    let take_runs = || {
        while let Some((place, entry)) = next(&queue).filter(|_| goes_on()) {
            match carry_out(work, &entry, &progress, &goes_on) {
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

fn carry_out(
    work: &Work,
    entry: &Entry,
    progress: &Progress,
    goes_on: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Run>> {
    let folder = work.folder.map(|_| entry.folder());
    let place = work.folder.map(|of_all| of_all.join(entry.folder()));
    let at_second = || {
        progress.second();
        goes_on()
    };
    let outcome = if work.scenario.fleet.is_some() {
        fleet::carry_out(work.scenario, entry, place.as_deref(), work.threads, at_second)?
    } else {
        run::carry_out(work.scenario, entry, place.as_deref(), at_second)?
    };
    let Some(outcome) = outcome else { return Ok(None) };
    progress.run();
    Ok(Some(Run { strategy: entry.strategy.clone(), seed: entry.seed, folder, attempts: 1, outcome }))
}

/// A function of its own, so that the lock does not last as long as the run.
fn next<T>(queue: &Mutex<VecDeque<T>>) -> Option<T> {
    lock(queue).pop_front()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
