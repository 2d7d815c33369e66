//! A recorded drive as a source: the signals in `samples.arrow` of a run folder, each at its time after the start.

use std::path::{Path, PathBuf};
use std::thread::sleep;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use crosslane_core::path::{PathId, Sample, SampleKind, Signal};
use crosslane_core::time::{Duration, Instant};

use super::Observed;
use super::worker::{Reporter, Wording, Worker};
use crate::arrow_file::{self, Batches, cut_short, texts, times_ns};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// Longest sleep before it is seen that nothing listens any more.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The signals that the vehicle of a recorded run received, in the order of time.
pub struct Recorded {
    file: PathBuf,
    batches: Batches,
    /// Names of the paths; a signal of another one is left out.
    paths: Vec<String>,
    batch: std::vec::IntoIter<(Instant, Sample)>,
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
        if let Some(missing) =
            ["t_ns", "path", "kind", "rssi_dbm", "station"].iter().find(|name| schema.index_of(name).is_err())
        {
            return Err(cut_short(&file, format!("it has no column `{missing}`")));
        }
        Ok(Recorded { file, batches, paths, batch: Vec::new().into_iter() })
    }

    /// What the vehicle received of a batch: not its own CAMs, which the units received.
    fn read(&self, batch: &RecordBatch) -> Option<Vec<(Instant, Sample)>> {
        let signals = batch.column_by_name("rssi_dbm")?.as_primitive_opt::<Float32Type>()?;
        let stations = batch.column_by_name("station")?.as_primitive_opt::<UInt32Type>()?;
        let (times, paths, kinds) = (times_ns(batch)?, texts(batch, "path")?, texts(batch, "kind")?);
        let sample = |row: usize| {
            let path = self.paths.iter().position(|name| name == paths[row])?;
            let rssi_dbm =
                Some(signals.value(row)).filter(|dbm| (-120.0..=0.0).contains(dbm) && kinds[row] != "vehicle-cam")?;
            let station = stations.is_valid(row).then(|| stations.value(row));
            let kind = SampleKind::Signal(Signal { rssi_dbm, station, ..Signal::default() });
            Some((Instant::from_nanos(times[row]), Sample { path: PathId(path as u8), kind }))
        };
        Some((0..batch.num_rows()).filter_map(sample).collect())
    }
}

impl Iterator for Recorded {
    type Item = Result<(Instant, Sample)>;

    fn next(&mut self) -> Option<Result<(Instant, Sample)>> {
        loop {
            if let Some(sample) = self.batch.next() {
                return Some(Ok(sample));
            }
            let batch = match self.batches.next()? {
                Ok(batch) => self.read(&batch).ok_or_else(|| cut_short(&self.file, "a column has another type")),
                Err(cause) => Err(cut_short(&self.file, cause)),
            };
            match batch {
                Ok(samples) => self.batch = samples.into_iter(),
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
        lacks: "its further signals",
    };
    let worker = Worker::thread("recorded", wording, move |reporter| run_through(recorded, &name, &reporter));
    worker.map_err(|cause| Error::failure("starting a thread for a recorded drive", cause))
}

fn run_through(recorded: Recorded, name: &str, reporter: &Reporter) {
    let (clock, mut count) = (Clock::start(), 0_u64);
    for sample in recorded {
        let (at, sample) = match sample {
            Ok(sample) => sample,
            Err(fault) => {
                let note = format!("{fault}; the agent continues without its further signals");
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
        reporter.send_blocking(Ok(sample.into()));
        count += 1;
    }
    let note = format!("the recorded drive {name} has ended after {count} signals of paths of this agent");
    reporter.send_blocking(Ok(Observed::Note(note)));
}
