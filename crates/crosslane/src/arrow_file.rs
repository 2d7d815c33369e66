//! Reads the tables of a run folder (`docs/reference/records.md`).

use std::fmt::Display;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_ipc::reader::FileReader;

use crate::error::{Error, Result};

/// A table, batch by batch.
pub type Batches = FileReader<BufReader<File>>;

/// The error about a file of a run folder.
pub fn cut_short(file: &Path, cause: impl Display) -> Error {
    let remedy = "name a folder that `crosslane drive` or `crosslane simulate` completed, with records";
    Error::usage(format!("reading {}", file.display()), cause.to_string(), remedy)
}

/// Opens a table.
///
/// # Errors
/// There is no such file, or it is cut short.
pub fn open(file: &Path) -> Result<Batches> {
    let open = File::open(file).map_err(|cause| cut_short(file, cause))?;
    FileReader::try_new(BufReader::new(open), None).map_err(|cause| cut_short(file, cause))
}

/// Gives each batch of a table to `add`, which returns `None` if a column is missing.
///
/// # Errors
/// There is no such file, it is cut short, or a column is missing.
pub fn read_table(file: &Path, mut add: impl FnMut(&RecordBatch) -> Option<()>) -> Result<()> {
    for batch in open(file)? {
        let batch = batch.map_err(|cause| cut_short(file, cause))?;
        add(&batch).ok_or_else(|| cut_short(file, "a column is missing"))?;
    }
    Ok(())
}

/// The column of times, in ns since the run began.
pub fn times_ns(batch: &RecordBatch) -> Option<&[u64]> {
    Some(batch.column_by_name("t_ns")?.as_primitive_opt::<UInt64Type>()?.values())
}

/// A column of text.
pub fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Option<Vec<&'a str>> {
    Some(batch.column_by_name(name)?.as_string_opt::<i32>()?.iter().map(Option::unwrap_or_default).collect())
}
