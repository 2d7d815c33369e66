//! Reads the tables of a run folder (`docs/reference/records.md`).

use std::cell::Cell;
use std::fmt::Display;
use std::fs::File;
use std::io::BufReader;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Once;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_ipc::reader::FileReader;
use arrow_schema::{ArrowError, SchemaRef};

use crate::error::{Error, Result};
use crate::text_file;

thread_local! {
    static IS_READING: Cell<bool> = const { Cell::new(false) };
}

/// A table, batch by batch.
pub struct Batches {
    file: PathBuf,
    reader: FileReader<BufReader<File>>,
}

impl Batches {
    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.reader.schema()
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        caught(&self.file, || self.reader.next().transpose()).transpose()
    }
}

/// The error about a file of a run folder.
pub fn cut_short(file: &Path, cause: impl Display) -> Error {
    let remedy = "name a folder that `crosslane drive` or `crosslane simulate` completed, with records";
    Error::usage(format!("reading {}", file.display()), cause.to_string(), remedy)
}

/// Opens a table.
///
/// # Errors
/// There is no such file, or it is cut short or damaged.
pub fn open(file: &Path) -> Result<Batches> {
    let open = text_file::open_regular(file).map_err(|cause| cut_short(file, cause))?;
    let reader = caught(file, || FileReader::try_new(BufReader::new(open), None))?;
    Ok(Batches { file: file.into(), reader })
}

/// What the library reads of a file. It panics, with a message, on some files that are damaged.
fn caught<T>(file: &Path, read: impl FnOnce() -> std::result::Result<T, ArrowError>) -> Result<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_READING.get() {
                report(panic);
            }
        }));
    });
    IS_READING.set(true);
    let read = panic::catch_unwind(AssertUnwindSafe(read));
    IS_READING.set(false);
    let read = read.map_err(|_| cut_short(file, "it is damaged"))?;
    read.map_err(|cause| cut_short(file, cause))
}

/// Gives each batch of a table to `add`, which returns `None` if a column is missing.
///
/// # Errors
/// There is no such file, it is cut short or damaged, or a column is missing.
pub fn read_table(file: &Path, mut add: impl FnMut(&RecordBatch) -> Option<()>) -> Result<()> {
    for batch in open(file)? {
        add(&batch?).ok_or_else(|| cut_short(file, "a column is missing"))?;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, StringArray, UInt64Array};
    use arrow_ipc::writer::FileWriter;

    use super::*;

    #[test]
    fn no_damaged_byte_of_a_table_is_a_panic() {
        let columns: [(&str, ArrayRef); 2] = [
            ("t_ns", Arc::new(UInt64Array::from(vec![1, 2, 3]))),
            ("path", Arc::new(StringArray::from(vec![Some("lte"), None, Some("its-g5")]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut writer = FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        let whole = writer.into_inner().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.arrow");
        let mut faults = Vec::new();
        for (place, byte) in (0..whole.len()).flat_map(|place| [1, 0x40, 0xff].map(|byte| (place, byte))) {
            let mut damaged = whole.clone();
            damaged[place] ^= byte;
            std::fs::write(&file, damaged).unwrap();
            let read = read_table(&file, |batch| times_ns(batch).and(texts(batch, "path")).map(drop));
            faults.extend(read.err().map(|fault| fault.to_string()));
        }
        assert!(faults.iter().any(|fault| fault.contains("t.arrow: it is damaged; name a folder")), "{faults:?}");
    }

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let fault = open(&pipe).err().unwrap().to_string();
        assert!(fault.contains("pipe: it is no regular file; name a folder"), "{fault}");
        let fault = text_file::read_regular(&pipe).unwrap_err().to_string();
        assert_eq!(fault, "it is no regular file");
    }
}
