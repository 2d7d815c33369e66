//! Writes the record files of a run: Arrow IPC with one table a file, and events
//! as lines of JSON. `docs/reference/records.md` lists the columns.
//!
//! Rows are written in batches of [`BATCH_ROWS`], so that memory is bounded.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, RecordBatch, StringArray, types};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, Field, Schema};
use crosslane_core::allocate::learned::features::QUANTITIES;
use crosslane_core::link::DropReason;
use crosslane_core::path::PathId;
use crosslane_sim::record::rows::{LinkRow, MessageRow, PacketRow, SampleRow, TcpInfoRow, ThroughputRow, WindowRow};
use serde_json::Value;

use crate::error::{Error, Result};

/// Rows of a batch.
pub const BATCH_ROWS: usize = 8192;

/// A column: its name, its values, and whether they can be null.
pub struct Column(&'static str, ArrayRef, bool);

/// Writes one table; `columns` gives its columns over some of the rows, with the names of the paths.
///
/// # Errors
/// The file cannot be written.
pub fn write_table<R>(
    file: &Path,
    paths: &[String],
    rows: &[R],
    columns: impl Fn(&[R], &[String]) -> Vec<Column>,
) -> Result<()> {
    let field = |Column(name, values, nullable)| Field::new(name, values.data_type().clone(), nullable);
    let schema = Schema::new(columns(&[], paths).into_iter().map(field).collect::<Vec<_>>());
    let write = || {
        let mut writer = FileWriter::try_new(BufWriter::new(File::create(file)?), &schema)?;
        for batch in rows.chunks(BATCH_ROWS) {
            let values = columns(batch, paths).into_iter().map(|column| column.1).collect();
            writer.write(&RecordBatch::try_new(Arc::clone(writer.schema()), values)?)?;
        }
        writer.finish()?;
        writer.flush()
    };
    write().map_err(|cause| failed(file, cause))
}

/// Writes `events.jsonl`: one line for each event, an object with `t_s`, `source`, `event` and its own fields.
///
/// # Errors
/// The file cannot be written.
pub fn write_events(file: &Path, events: impl IntoIterator<Item = Value>) -> Result<()> {
    let write = || {
        let mut output = BufWriter::new(File::create(file)?);
        events.into_iter().try_for_each(|event| writeln!(output, "{event}"))?;
        output.flush()
    };
    write().map_err(|cause| failed(file, ArrowError::from(cause)))
}

fn failed(file: &Path, cause: ArrowError) -> Error {
    let cause = match cause {
        ArrowError::IoError(_, error) => without_number(&error),
        other => other.to_string(),
    };
    let remedy = "free some space there or give another folder with --out";
    Error::failure(format!("writing {}", file.display()), cause).with_remedy(remedy)
}

/// The text of the error ("No space left on device") without its number.
fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

/// Columns of `packets.arrow`.
pub fn packets(rows: &[PacketRow], paths: &[String]) -> Vec<Column> {
    vec![
        number::<types::UInt64Type, _>("t_ns", rows, |row| row.t_ns),
        maybe::<types::UInt64Type, _>("delivered_ns", rows, |row| row.delivered_ns),
        path_names(rows, paths, |row| row.path),
        text("direction", rows, |row| row.direction.as_str()),
        number::<types::UInt16Type, _>("ip_bytes", rows, |row| row.ip_bytes),
        number::<types::UInt16Type, _>("payload_bytes", rows, |row| row.payload_bytes),
        maybe::<types::UInt16Type, _>("subflow", rows, |row| row.subflow),
        number::<types::UInt32Type, _>("tcp_seq", rows, |row| row.tcp_seq),
        number::<types::UInt32Type, _>("tcp_ack", rows, |row| row.tcp_ack),
        number::<types::UInt8Type, _>("tcp_flags", rows, |row| row.tcp_flags),
        maybe::<types::UInt64Type, _>("dsn", rows, |row| row.dsn),
        maybe::<types::UInt64Type, _>("data_ack", rows, |row| row.data_ack),
        text("mptcp", rows, |row| row.mptcp.to_string()),
        Column("drop", strings(rows, |row| row.drop.map(DropReason::as_str)), true),
        number::<types::UInt8Type, _>("tries", rows, |row| row.tries),
    ]
}

/// Columns of `throughput.arrow`.
pub fn throughput(rows: &[ThroughputRow], paths: &[String]) -> Vec<Column> {
    vec![
        number::<types::UInt64Type, _>("t_ns", rows, |row| row.t_ns),
        path_names(rows, paths, |row| row.path),
        text("direction", rows, |row| row.direction.as_str()),
        number::<types::UInt64Type, _>("ip_bytes", rows, |row| row.ip_bytes),
        number::<types::UInt64Type, _>("payload_bytes", rows, |row| row.payload_bytes),
        number::<types::UInt64Type, _>("reinjected_bytes", rows, |row| row.reinjected_bytes),
    ]
}

/// Columns of `samples.arrow`.
pub fn samples(rows: &[SampleRow], paths: &[String]) -> Vec<Column> {
    vec![
        number::<types::UInt64Type, _>("t_ns", rows, |row| row.t_ns),
        Column("path", strings(rows, |row| row.sample.path().map(|path| path_name(paths, path))), true),
        text("kind", rows, |row| row.sample.kind()),
        maybe::<types::Float32Type, _>("rssi_dbm", rows, |row| Some(row.sample.signal()?.rssi_dbm)),
        maybe::<types::UInt32Type, _>("station", rows, |row| row.sample.signal()?.station),
        maybe::<types::Float32Type, _>("rsrq_db", rows, |row| row.sample.signal()?.rsrq_db),
        maybe::<types::Float32Type, _>("sinr_db", rows, |row| row.sample.signal()?.sinr_db),
        maybe::<types::Float64Type, _>("phy_mbit_s", rows, |row| row.sample.phy_mbit_s()),
        maybe::<types::Float64Type, _>("latitude_deg", rows, |row| Some(row.sample.position()?.latitude_deg)),
        maybe::<types::Float64Type, _>("longitude_deg", rows, |row| Some(row.sample.position()?.longitude_deg)),
        maybe::<types::Float64Type, _>("heading_deg", rows, |row| row.sample.vehicle()?.heading_deg),
        maybe::<types::Float64Type, _>("speed_m_s", rows, |row| row.sample.vehicle()?.speed_m_s),
        Column("announced", Arc::new(rows.iter().map(|row| row.sample.announced()).collect::<BooleanArray>()), true),
    ]
}

/// Columns of `windows.arrow`.
pub fn windows(rows: &[WindowRow], paths: &[String]) -> Vec<Column> {
    let mut columns = vec![
        number::<types::UInt64Type, _>("t_ns", rows, |row| row.t_ns),
        path_names(rows, paths, |row| row.path),
        number::<types::UInt64Type, _>("delivered_bytes", rows, |row| row.delivered_bytes),
    ];
    columns.extend(QUANTITIES.iter().enumerate().map(|(place, quantity)| {
        let known = |row: &WindowRow| Some(row.values[place]).filter(|value| !value.is_nan());
        maybe::<types::Float32Type, _>(quantity.name, rows, known)
    }));
    columns
}

/// Columns of `tcp_info.arrow`.
pub fn tcp_info(rows: &[TcpInfoRow], paths: &[String]) -> Vec<Column> {
    vec![
        number::<types::UInt64Type, _>("t_ns", rows, |row| row.t_ns),
        path_names(rows, paths, |row| row.path),
        maybe::<types::UInt16Type, _>("subflow", rows, |row| row.subflow),
        text("local", rows, |row| row.local.as_str()),
        text("remote", rows, |row| row.remote.as_str()),
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

/// Columns of `messages.arrow`.
pub fn messages(rows: &[MessageRow], _paths: &[String]) -> Vec<Column> {
    vec![
        number::<types::UInt64Type, _>("number", rows, |row| row.number),
        number::<types::UInt64Type, _>("sent_ns", rows, |row| row.sent_ns),
        maybe::<types::UInt64Type, _>("written_ns", rows, |row| row.written_ns),
        maybe::<types::UInt64Type, _>("received_ns", rows, |row| row.received_ns),
        number::<types::UInt32Type, _>("size_bytes", rows, |row| row.size_bytes),
    ]
}

/// Columns of `links.arrow`.
pub fn links(rows: &[LinkRow], paths: &[String]) -> Vec<Column> {
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

fn number<T: ArrowPrimitiveType, R>(name: &'static str, rows: &[R], value: impl Fn(&R) -> T::Native) -> Column {
    let values = PrimitiveArray::<T>::from_iter_values(rows.iter().map(value));
    Column(name, Arc::new(values), false)
}

fn maybe<T: ArrowPrimitiveType, R>(name: &'static str, rows: &[R], value: impl Fn(&R) -> Option<T::Native>) -> Column {
    let values: PrimitiveArray<T> = rows.iter().map(value).collect();
    Column(name, Arc::new(values), true)
}

fn text<'a, R, S: AsRef<str>>(name: &'static str, rows: &'a [R], value: impl Fn(&'a R) -> S) -> Column {
    Column(name, strings(rows, |row| Some(value(row))), false)
}

fn strings<'a, R, S: AsRef<str>>(rows: &'a [R], value: impl Fn(&'a R) -> Option<S>) -> ArrayRef {
    Arc::new(rows.iter().map(value).collect::<StringArray>())
}

fn path_names<R>(rows: &[R], paths: &[String], path: impl Fn(&R) -> PathId) -> Column {
    text("path", rows, |row| path_name(paths, path(row)))
}

fn path_name(paths: &[String], path: PathId) -> &str {
    paths.get(usize::from(path.0)).map_or("", String::as_str)
}

#[cfg(test)]
#[path = "tables_tests.rs"]
mod tests;
