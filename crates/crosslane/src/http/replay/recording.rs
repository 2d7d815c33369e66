//! What a run recorded, as far as the page shows it (`docs/reference/records.md`).

use std::collections::BTreeMap;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use serde_json::Value;

use crate::arrow_file::{cut_short, read_table, texts, times_ns};
use crate::control::report::ReasonReport;
use crate::error::Result;
use crate::text_file;

/// Intervals in which positions and signals, and statistics of a subflow, are kept, in s.
const INTERVAL_S: f64 = 0.1;
const SUBFLOW_INTERVAL_S: f64 = 0.2;

/// A run; all times are in s since its start, and everything is in the order of time.
#[derive(Default)]
pub struct Recording {
    /// Names of the paths: those of the scenario, then others that occur.
    pub paths: Vec<String>,
    /// Positions of the vehicle, in m.
    pub positions: Vec<(f64, [f64; 2])>,
    /// Signals of each path, in dBm.
    pub signals: BTreeMap<usize, Vec<(f64, f32)>>,
    /// Bytes that each path has delivered until then, up and down.
    pub bytes: BTreeMap<usize, Vec<(f64, [u64; 2])>>,
    /// Statistics of the subflows.
    pub subflows: Vec<SubflowRow>,
    /// What the agent decided and believed.
    pub changes: Vec<Change>,
}

/// Statistics of a subflow.
pub struct SubflowRow {
    pub at_s: f64,
    pub path: usize,
    pub token: u32,
    pub local: String,
    pub remote: String,
    pub is_backup: bool,
    pub rtt_ms: f64,
    pub acked_bytes: u64,
    pub received_bytes: u64,
}

/// A change of a path.
pub struct Change {
    pub at_s: f64,
    pub path: usize,
    /// `state` or `belief`.
    pub of: &'static str,
    pub to: String,
    pub reason: ReasonReport,
}

impl Recording {
    /// Reads the folder of a run; `paths` are those of the scenario.
    ///
    /// # Errors
    /// A file is missing or cut short.
    pub fn read(folder: &Path, paths: &[String]) -> Result<Recording> {
        let mut recording = Recording { paths: paths.to_vec(), ..Recording::default() };
        read_table(&folder.join("links.arrow"), |batch| recording.add_positions(batch))?;
        read_table(&folder.join("samples.arrow"), |batch| recording.add_signals(batch))?;
        read_table(&folder.join("throughput.arrow"), |batch| recording.add_bytes(batch))?;
        let mut last = BTreeMap::new();
        read_table(&folder.join("tcp_info.arrow"), |batch| recording.add_subflows(batch, &mut last))?;
        recording.add_events(&folder.join("events.jsonl"))?;
        Ok(recording)
    }

    fn path(&mut self, name: &str) -> usize {
        self.paths.iter().position(|one| one == name).unwrap_or_else(|| {
            self.paths.push(name.into());
            self.paths.len() - 1
        })
    }

    /// The vehicle has the same position in the rows of all links.
    fn add_positions(&mut self, batch: &RecordBatch) -> Option<()> {
        let (times, x, y) = (times(batch)?, floats(batch, "x_m")?, floats(batch, "y_m")?);
        for (row, at_s) in times.into_iter().enumerate() {
            if self.positions.last().is_none_or(|(last, _)| at_s >= last + INTERVAL_S) {
                self.positions.push((at_s, [x[row], y[row]]));
            }
        }
        Some(())
    }

    fn add_signals(&mut self, batch: &RecordBatch) -> Option<()> {
        let signals = batch.column_by_name("rssi_dbm")?.as_primitive_opt::<Float32Type>()?;
        let (times, paths, kinds) = (times(batch)?, texts(batch, "path")?, texts(batch, "kind")?);
        let is_signal = |row: usize| signals.is_valid(row) && kinds[row] != "vehicle-cam";
        for (row, at_s) in times.into_iter().enumerate().filter(|(row, _)| is_signal(*row)) {
            let path = self.path(paths[row]);
            let of_path = self.signals.entry(path).or_default();
            if of_path.last().is_none_or(|(last, _)| at_s >= last + INTERVAL_S) && signals.value(row).is_finite() {
                of_path.push((at_s, signals.value(row)));
            }
        }
        Some(())
    }

    fn add_bytes(&mut self, batch: &RecordBatch) -> Option<()> {
        let bytes = batch.column_by_name("ip_bytes")?.as_primitive_opt::<UInt64Type>()?.values();
        let (times, paths, directions) = (times(batch)?, texts(batch, "path")?, texts(batch, "direction")?);
        for (row, at_s) in times.into_iter().enumerate() {
            let path = self.path(paths[row]);
            let of_path = self.bytes.entry(path).or_default();
            let mut total = of_path.last().map_or([0, 0], |(_, total)| *total);
            let sum = &mut total[usize::from(directions[row] == "down")];
            *sum = sum.saturating_add(bytes[row]);
            of_path.push((at_s, total));
        }
        Some(())
    }

    /// `last` has the time of each subflow's last row.
    fn add_subflows(&mut self, batch: &RecordBatch, last: &mut BTreeMap<(String, String), f64>) -> Option<()> {
        let numbers = |name: &str| Some(batch.column_by_name(name)?.as_primitive_opt::<UInt32Type>()?.values().clone());
        let large = |name: &str| Some(batch.column_by_name(name)?.as_primitive_opt::<UInt64Type>()?.values().clone());
        let (times, paths, tokens) = (times(batch)?, texts(batch, "path")?, numbers("token")?);
        let (locals, remotes, rtts) = (texts(batch, "local")?, texts(batch, "remote")?, numbers("rtt_us")?);
        let (acked, received) = (large("bytes_acked")?, large("bytes_received")?);
        let backups = batch.column_by_name("backup")?.as_boolean_opt()?;
        for (row, at_s) in times.into_iter().enumerate() {
            let (local, remote) = (locals[row].to_owned(), remotes[row].to_owned());
            let kept = last.entry((local.clone(), remote.clone())).or_insert(f64::NEG_INFINITY);
            if at_s < *kept + SUBFLOW_INTERVAL_S {
                continue;
            }
            *kept = at_s;
            let path = self.path(paths[row]);
            self.subflows.push(SubflowRow {
                at_s,
                path,
                token: tokens[row],
                local,
                remote,
                is_backup: backups.value(row),
                rtt_ms: f64::from(rtts[row]) / 1e3,
                acked_bytes: acked[row],
                received_bytes: received[row],
            });
        }
        Some(())
    }

    fn add_events(&mut self, file: &Path) -> Result<()> {
        let text = text_file::read_regular(file).map_err(|cause| cut_short(file, cause))?;
        let mut states = BTreeMap::new();
        for (place, line) in text.lines().enumerate() {
            let Ok(event) = serde_json::from_str::<Value>(line) else {
                return Err(cut_short(file, format!("line {} is no JSON", place + 1)));
            };
            if event["source"] == "agent" {
                self.add_event(&event, &mut states);
            }
        }
        self.changes.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        Ok(())
    }

    /// `states` are the last wanted states of a tunnel's paths.
    fn add_event(&mut self, event: &Value, states: &mut BTreeMap<usize, String>) {
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        let at_s = event["t_s"].as_f64().unwrap_or(0.0);
        let mut push = |path, of, to: &str, reason| self.changes.push(Change { at_s, path, of, to: to.into(), reason });
        match text("event") {
            of @ ("decision" | "belief") => {
                let (of, to) = if of == "decision" { ("state", text("state")) } else { ("belief", text("belief")) };
                let inputs = serde_json::from_value(event["inputs"].clone()).unwrap_or_default();
                let reason = ReasonReport { rule: text("rule").into(), text: text("reason").into(), inputs };
                let Some(path) = self.paths.iter().position(|one| one == text("path")) else { return };
                push(path, of, to, reason);
            }
            "steering" => {
                let wanted = event["states"].as_array().into_iter().flatten().filter_map(Value::as_str);
                for (path, state) in wanted.enumerate().filter(|(path, _)| *path < self.paths.len()) {
                    if states.insert(path, state.into()).as_deref() != Some(state) {
                        let reason = event["reasons"][path].as_str().unwrap_or_default();
                        push(path, "state", state, ReasonReport { text: reason.into(), ..ReasonReport::default() });
                    }
                }
            }
            _ => {}
        }
    }
}

fn times(batch: &RecordBatch) -> Option<Vec<f64>> {
    Some(times_ns(batch)?.iter().map(|t_ns| *t_ns as f64 / 1e9).collect())
}

fn floats<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a [f64]> {
    Some(batch.column_by_name(name)?.as_primitive_opt::<Float64Type>()?.values())
}
