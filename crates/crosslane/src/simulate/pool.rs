//! Threads that take runs from a queue. The results are in the order of the
//! plan, independent of the order of completion.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Mutex;

use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::Detail;

use super::progress::Progress;
use super::{fleet, run};
use crate::comparison::{Entry, lock};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::summary::Run;

pub struct Work<'a> {
    pub scenario: &'a Scenario,
    /// Folder of the comparison and the detail of its records, if runs write them.
    pub folder: Option<(&'a Path, Detail)>,
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
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let complete: Mutex<BTreeMap<usize, Run>> = Mutex::default();
    let should_continue = || lock(&failure).is_none() && !stop.came();
    let take_runs = || {
        while let Some((place, entry)) = next(&queue).filter(|_| should_continue()) {
            match execute(work, &entry, &progress, &should_continue) {
                Ok(Some(run)) => drop(lock(&complete).insert(place, run)),
                Ok(None) => {}
                Err(error) => drop(lock(&failure).get_or_insert(error)),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(take_runs);
        }
    });
    progress.done();
    let complete: Vec<Run> = std::mem::take(&mut *lock(&complete)).into_values().collect();
    let interrupted = if complete.len() < planned { stop.failure("simulating") } else { None };
    let failure = lock(&failure).take().or(interrupted);
    Ok((complete, failure))
}

fn execute(
    work: &Work,
    entry: &Entry,
    progress: &Progress,
    should_continue: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Run>> {
    let place = work.folder.map(|(of_all, detail)| (of_all.join(entry.folder()), detail));
    let at_second = || {
        progress.second();
        should_continue()
    };
    let Some(strategy) = work.scenario.strategy(&entry.strategy) else {
        return Err(Error::failure("simulating", format!("there is no strategy {:?}", entry.strategy)));
    };
    let outcome = if work.scenario.fleet.is_some() {
        fleet::execute(
            work.scenario,
            &strategy,
            entry.seed,
            place.as_ref().map(|(folder, _)| folder.as_path()),
            work.threads,
            at_second,
        )?
    } else {
        run::execute(
            work.scenario,
            &strategy,
            entry.seed,
            place.as_ref().map(|(folder, detail)| (folder.as_path(), *detail)),
            at_second,
        )?
    };
    Ok(outcome.map(|outcome| {
        progress.run();
        let folder = place.is_some().then(|| entry.folder());
        Run { strategy: entry.strategy.clone(), seed: entry.seed, folder, attempts: 1, outcome }
    }))
}

/// A separate function, so that the lock is not held during the run.
fn next<T>(queue: &Mutex<VecDeque<T>>) -> Option<T> {
    lock(queue).pop_front()
}
