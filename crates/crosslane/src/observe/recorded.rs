//! A recorded drive as a source: what `samples.arrow` of a run folder has, each row at its time after the start.

use std::path::{Path, PathBuf};
use std::thread::sleep;

use arrow_array::RecordBatch;
use crosslane_core::agent::Input;
use crosslane_core::time::{Duration, Instant};

use super::Observed;
use super::worker::{Reporter, Wording, Worker};
use crate::arrow_file::{self, Batches, cut_short};
use crate::clock::Clock;
use crate::error::{Error, Result};
use columns::{Columns, FIRST, LATER};

mod columns;

/// Longest sleep before it is seen that nothing listens any more.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// What the vehicle of a recorded run observed of its radios and its motion, in the order of time.
pub struct Recorded {
    file: PathBuf,
    batches: Batches,
    /// Names of the paths; a sample of another one is left out.
    paths: Vec<String>,
    batch: std::vec::IntoIter<(Instant, Input)>,
    /// Rows of the batches before.
    rows: usize,
    /// Whether a row made no sense.
    is_faulty: bool,
    /// Sentences for the user.
    notes: Vec<String>,
}

impl Recorded {
    /// Opens the folder of a run, or its `samples.arrow`.
    ///
    /// # Errors
    /// There is no such file, or it is no table of samples.
    pub fn open(run: &Path, paths: Vec<String>) -> Result<Recorded> {
        let file = if run.is_dir() { run.join("samples.arrow") } else { run.to_owned() };
        let batches = arrow_file::open(&file)?;
        let schema = batches.schema();
        let lacks = |name: &&&str| schema.index_of(name).is_err();
        let is_former = LATER.iter().all(|name| lacks(&name));
        let missing = FIRST.iter().chain(&LATER).find(lacks).filter(|name| !is_former || FIRST.contains(name));
        if let Some(missing) = missing {
            return Err(cut_short(&file, format!("it has no column `{missing}`")));
        }
        let notes = is_former.then(|| {
            let lacks = "without RSRQ, SINR, PHY rates, positions and announced handovers";
            format!("a former version recorded {}, {lacks}: strategies that use them decide otherwise", file.display())
        });
        let batch = Vec::new().into_iter();
        Ok(Recorded { file, batches, paths, batch, rows: 0, is_faulty: false, notes: notes.into_iter().collect() })
    }

    /// What the user should know of what was read since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn read(&mut self, batch: &RecordBatch) -> Option<Vec<(Instant, Input)>> {
        let (columns, mut inputs) = (Columns::of(batch)?, Vec::new());
        for (row, t_ns) in columns.times.iter().enumerate() {
            match columns.sample(row, &self.paths) {
                Ok(sample) => {
                    let found = sample.into_iter().flat_map(|sample| sample.inputs());
                    inputs.extend(found.map(|input| (Instant::from_nanos(*t_ns), input)));
                }
                Err(_) if self.is_faulty => {}
                Err(reason) => {
                    self.is_faulty = true;
                    let (file, number) = (self.file.display(), self.rows + row + 1);
                    self.notes.push(format!("{file}: row {number} and others like it are left out: {reason}"));
                }
            }
        }
        self.rows += batch.num_rows();
        Some(inputs)
    }
}

impl Iterator for Recorded {
    type Item = Result<(Instant, Input)>;

    fn next(&mut self) -> Option<Result<(Instant, Input)>> {
        loop {
            if let Some(input) = self.batch.next() {
                return Some(Ok(input));
            }
            let batch = match self.batches.next()? {
                Ok(batch) => self.read(&batch).ok_or_else(|| cut_short(&self.file, "a column has another type")),
                Err(fault) => Err(fault),
            };
            match batch {
                Ok(inputs) => self.batch = inputs.into_iter(),
                Err(fault) => return Some(Err(fault)),
            }
        }
    }
}

/// Replays a recorded run from now on, in a separate thread.
///
/// # Errors
/// It cannot be read, or the system starts no thread.
pub fn replay(run: &Path, paths: Vec<String>) -> Result<Worker> {
    let (recorded, name) = (Recorded::open(run, paths)?, run.display().to_string());
    let wording = Wording {
        attempt: format!("replaying {name}"),
        remedy: "name a folder that `crosslane drive` or `crosslane simulate` completed, with records",
        lacks: "its further samples",
    };
    let worker = Worker::thread("recorded", wording, move |reporter| run_through(recorded, &name, &reporter));
    worker.map_err(|cause| Error::failure("starting a thread for a recorded drive", cause))
}

fn run_through(mut recorded: Recorded, name: &str, reporter: &Reporter) {
    let (clock, mut count) = (Clock::start(), 0_u64);
    while let Some(input) = recorded.next() {
        recorded.take_notes().into_iter().for_each(|note| reporter.send_blocking(Ok(Observed::Note(note))));
        let (at, input) = match input {
            Ok(input) => input,
            Err(fault) => {
                let note = format!("{fault}; the agent continues without its further samples");
                return reporter.send_blocking(Ok(Observed::Note(note)));
            }
        };
        while let wait = at.since(clock.now())
            && !wait.is_zero()
        {
            if reporter.is_over() {
                return;
            }
            sleep(wait.min(LONGEST_SLEEP));
        }
        reporter.send_blocking(Ok(Observed::Input(input)));
        count += 1;
    }
    let end = format!("the recorded drive {name} has ended after {count} samples for this agent");
    recorded.take_notes().into_iter().chain([end]).for_each(|note| reporter.send_blocking(Ok(Observed::Note(note))));
}
