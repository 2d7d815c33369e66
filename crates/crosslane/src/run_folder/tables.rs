//! Writes the record files of a run: Arrow IPC with one table a file, and events
//! as lines of JSON. `docs/reference/records.md` lists the columns.
//!
//! Rows are written in batches of [`BATCH_ROWS`], so that memory is bounded. A
//! file is complete after `finish`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, RecordBatch, StringArray, types};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, Field, Schema};
use crosslane_core::link::DropReason;
use crosslane_core::path::PathId;
use crosslane_sim::record::rows::{LinkRow, MessageRow, PacketRow, SampleRow, TcpInfoRow, ThroughputRow};

use crate::error::Error;

/// Rows of a batch.
pub const BATCH_ROWS: usize = 8192;

/// A record file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("while writing {}: {cause}; free some space there or give another folder with --out", file.display())]
pub struct RecordError {
    file: PathBuf,
    cause: String,
}

impl From<RecordError> for Error {
    fn from(cause: RecordError) -> Error {
        Error::message(cause.to_string(), 1)
    }
}

/// A row type with a table.
pub trait Row: Sized {
    /// The table's columns over `rows`; `paths` are the names of the paths.
    fn columns(rows: &[Self], paths: &[String]) -> Vec<Column>;
}

/// A column: its name, its values, and whether they can be null.
pub struct Column(&'static str, ArrayRef, bool);

/// Writes one table.
pub struct Table<R> {
    file: PathBuf,
    paths: Vec<String>,
    rows: Vec<R>,
    writer: FileWriter<BufWriter<File>>,
}

impl<R: Row> Table<R> {
    /// Creates `file`; `paths` are the names of the paths, by [`PathId`].
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(file: &Path, paths: &[String]) -> Result<Table<R>, RecordError> {
        let columns = R::columns(&[], paths);
        let fields: Vec<Field> = columns
            .iter()
            .map(|Column(name, values, nullable)| Field::new(*name, values.data_type().clone(), *nullable))
            .collect();
        let output = File::create(file).map_err(|cause| failed(file, cause))?;
        let writer = FileWriter::try_new(BufWriter::new(output), &Schema::new(fields));
        Ok(Table {
            file: file.to_path_buf(),
            paths: paths.to_vec(),
            rows: Vec::new(),
            writer: writer.map_err(|cause| failed(file, cause))?,
        })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// A full batch cannot be written.
    pub fn push(&mut self, row: R) -> Result<(), RecordError> {
        self.rows.push(row);
        if self.rows.len() < BATCH_ROWS {
            return Ok(());
        }
        self.flush()
    }

    /// Writes the remaining rows and completes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<(), RecordError> {
        self.flush()?;
        let ended = self.writer.finish().and_then(|()| self.writer.flush());
        ended.map_err(|cause| failed(&self.file, cause))
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let values = R::columns(&self.rows, &self.paths).into_iter().map(|column| column.1).collect();
        let written =
            RecordBatch::try_new(Arc::clone(self.writer.schema()), values).and_then(|batch| self.writer.write(&batch));
        self.rows.clear();
        written.map_err(|cause| failed(&self.file, cause))
    }
}

/// Writes a complete table.
///
/// # Errors
/// The file cannot be written.
pub fn write_table<R: Row>(
    file: &Path,
    paths: &[String],
    rows: impl IntoIterator<Item = R>,
) -> Result<(), RecordError> {
    let mut table = Table::create(file, paths)?;
    for row in rows {
        table.push(row)?;
    }
    table.finish()
}

/// Writes `events.jsonl`.
pub struct Events {
    file: PathBuf,
    output: BufWriter<File>,
}

impl Events {
    /// Creates `file`.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(file: &Path) -> Result<Events, RecordError> {
        let output = File::create(file).map_err(|cause| failed(file, cause))?;
        Ok(Events { file: file.to_path_buf(), output: BufWriter::new(output) })
    }

    /// Writes one event: an object with `t_s`, `source`, `event` and its own
    /// fields.
    ///
    /// # Errors
    /// The line cannot be written.
    pub fn write(&mut self, event: &serde_json::Value) -> Result<(), RecordError> {
        writeln!(self.output, "{event}").map_err(|cause| failed(&self.file, cause))
    }

    /// Flushes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<(), RecordError> {
        self.output.flush().map_err(|cause| failed(&self.file, cause))
    }
}

fn failed(file: &Path, cause: impl Into<ArrowError>) -> RecordError {
    let cause = match cause.into() {
        ArrowError::IoError(_, error) => without_number(&error),
        other => other.to_string(),
    };
    RecordError { file: file.to_path_buf(), cause }
}

/// The text of the error ("No space left on device") without its number.
fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

impl Row for PacketRow {
    fn columns(rows: &[PacketRow], paths: &[String]) -> Vec<Column> {
        vec![
            number::<types::UInt64Type, _>("t_ns", rows, |row| row.t_ns),
            maybe::<types::UInt64Type, _>("delivered_ns", rows, |row| row.delivered_ns),
            path_names(rows, paths, |row| row.path),
            text("direction", rows, |row| Some(row.direction.as_str())),
            number::<types::UInt16Type, _>("ip_bytes", rows, |row| row.ip_bytes),
            number::<types::UInt16Type, _>("payload_bytes", rows, |row| row.payload_bytes),
            maybe::<types::UInt16Type, _>("subflow", rows, |row| row.subflow),
            number::<types::UInt32Type, _>("tcp_seq", rows, |row| row.tcp_seq),
            number::<types::UInt32Type, _>("tcp_ack", rows, |row| row.tcp_ack),
            number::<types::UInt8Type, _>("tcp_flags", rows, |row| row.tcp_flags),
            maybe::<types::UInt64Type, _>("dsn", rows, |row| row.dsn),
            maybe::<types::UInt64Type, _>("data_ack", rows, |row| row.data_ack),
            option_names(rows),
            Column("drop", text("drop", rows, |row| row.drop.map(DropReason::as_str)).1, true),
            number::<types::UInt8Type, _>("tries", rows, |row| row.tries),
        ]
    }
}

impl Row for ThroughputRow {
    fn columns(rows: &[ThroughputRow], paths: &[String]) -> Vec<Column> {
        vec![
            number::<types::UInt64Type, _>("t_ns", rows, |row| row.t_ns),
            path_names(rows, paths, |row| row.path),
            text("direction", rows, |row| Some(row.direction.as_str())),
            number::<types::UInt64Type, _>("ip_bytes", rows, |row| row.ip_bytes),
            number::<types::UInt64Type, _>("payload_bytes", rows, |row| row.payload_bytes),
            number::<types::UInt64Type, _>("reinjected_bytes", rows, |row| row.reinjected_bytes),
        ]
    }
}

impl Row for SampleRow {
    fn columns(rows: &[SampleRow], paths: &[String]) -> Vec<Column> {
        vec![
            number::<types::UInt64Type, _>("t_ns", rows, |row| row.t_ns),
            path_names(rows, paths, |row| row.path),
            text("kind", rows, |row| Some(row.kind.name())),
            number::<types::Float32Type, _>("rssi_dbm", rows, |row| row.rssi_dbm),
            maybe::<types::UInt32Type, _>("station", rows, |row| row.station),
        ]
    }
}

impl Row for TcpInfoRow {
    fn columns(rows: &[TcpInfoRow], paths: &[String]) -> Vec<Column> {
        vec![
            number::<types::UInt64Type, _>("t_ns", rows, |row| row.t_ns),
            path_names(rows, paths, |row| row.path),
            maybe::<types::UInt16Type, _>("subflow", rows, |row| row.subflow),
            text("local", rows, |row| Some(row.local.as_str())),
            text("remote", rows, |row| Some(row.remote.as_str())),
            number::<types::UInt32Type, _>("token", rows, |row| row.token),
            Column("backup", Arc::new(rows.iter().map(|row| Some(row.backup)).collect::<BooleanArray>()), false),
            number::<types::UInt32Type, _>("rtt_us", rows, |row| row.rtt_us),
            number::<types::UInt32Type, _>("rttvar_us", rows, |row| row.rttvar_us),
            number::<types::UInt32Type, _>("cwnd", rows, |row| row.cwnd),
            number::<types::UInt32Type, _>("unacked", rows, |row| row.unacked),
            number::<types::UInt32Type, _>("lost", rows, |row| row.lost),
            number::<types::UInt32Type, _>("total_retrans", rows, |row| row.total_retrans),
            number::<types::UInt64Type, _>("bytes_acked", rows, |row| row.bytes_acked),
            number::<types::UInt64Type, _>("bytes_received", rows, |row| row.bytes_received),
            number::<types::UInt32Type, _>("notsent_bytes", rows, |row| row.notsent_bytes),
            number::<types::UInt64Type, _>("delivery_rate_bit_s", rows, |row| row.delivery_rate_bit_s),
        ]
    }
}

impl Row for MessageRow {
    fn columns(rows: &[MessageRow], _paths: &[String]) -> Vec<Column> {
        vec![
            number::<types::UInt64Type, _>("number", rows, |row| row.number),
            number::<types::UInt64Type, _>("sent_ns", rows, |row| row.sent_ns),
            maybe::<types::UInt64Type, _>("written_ns", rows, |row| row.written_ns),
            maybe::<types::UInt64Type, _>("received_ns", rows, |row| row.received_ns),
            number::<types::UInt32Type, _>("size_bytes", rows, |row| row.size_bytes),
        ]
    }
}

impl Row for LinkRow {
    fn columns(rows: &[LinkRow], paths: &[String]) -> Vec<Column> {
        vec![
            number::<types::UInt64Type, _>("t_ns", rows, |row| row.t_ns),
            path_names(rows, paths, |row| row.path),
            number::<types::Float64Type, _>("x_m", rows, |row| row.x_m),
            number::<types::Float64Type, _>("y_m", rows, |row| row.y_m),
            number::<types::Float64Type, _>("speed_m_s", rows, |row| row.speed_m_s),
            maybe::<types::Float64Type, _>("distance_m", rows, |row| row.distance_m),
            number::<types::Float32Type, _>("rssi_dbm", rows, |row| row.rssi_dbm),
            number::<types::Float64Type, _>("up_mbit_s", rows, |row| row.up_mbit_s),
            number::<types::Float64Type, _>("down_mbit_s", rows, |row| row.down_mbit_s),
            number::<types::Float64Type, _>("delay_ms", rows, |row| row.delay_ms),
            number::<types::Float64Type, _>("loss", rows, |row| row.loss),
            maybe::<types::Float64Type, _>("sinr_db", rows, |row| row.quality.sinr_db),
            maybe::<types::Float64Type, _>("rsrq_db", rows, |row| row.quality.rsrq_db),
            maybe::<types::Float64Type, _>("carrier_rssi_dbm", rows, |row| row.quality.carrier_rssi_dbm),
            maybe::<types::UInt8Type, _>("cell", rows, |row| row.quality.cell),
        ]
    }
}

fn number<T: ArrowPrimitiveType, R>(name: &'static str, rows: &[R], value: impl Fn(&R) -> T::Native) -> Column {
    let values = PrimitiveArray::<T>::from_iter_values(rows.iter().map(value));
    Column(name, Arc::new(values), false)
}

fn maybe<T: ArrowPrimitiveType, R>(name: &'static str, rows: &[R], value: impl Fn(&R) -> Option<T::Native>) -> Column {
    let values: PrimitiveArray<T> = rows.iter().map(value).collect();
    Column(name, Arc::new(values), true)
}

fn text<'a, R>(name: &'static str, rows: &'a [R], value: impl Fn(&'a R) -> Option<&'a str>) -> Column {
    Column(name, Arc::new(rows.iter().map(value).collect::<StringArray>()), false)
}

fn path_names<R>(rows: &[R], paths: &[String], path: impl Fn(&R) -> PathId) -> Column {
    let name = |row: &R| paths.get(usize::from(path(row).0)).map_or("", String::as_str);
    Column("path", Arc::new(rows.iter().map(|row| Some(name(row))).collect::<StringArray>()), false)
}

fn option_names(rows: &[PacketRow]) -> Column {
    let mut values = StringBuilder::new();
    for row in rows {
        values.append_value(row.mptcp.to_string());
    }
    Column("mptcp", Arc::new(values.finish()), false)
}

#[cfg(test)]
#[path = "tables_tests.rs"]
mod tests;
