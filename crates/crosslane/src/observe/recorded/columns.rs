//! The columns of `samples.arrow` (`docs/reference/records.md`), and the sample in a row of them.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, UInt32Type};
use arrow_array::{Array, BooleanArray, Float32Array, Float64Array, RecordBatch, UInt32Array};
use crosslane_core::path::{PathId, Position, Signal, VehicleState};
use crosslane_sim::world::WorldSample;

use crate::arrow_file::{texts, times_ns};

/// Columns of every recording.
pub const FIRST: [&str; 5] = ["t_ns", "path", "kind", "rssi_dbm", "station"];
/// Columns that recordings of a former version lack, all of them.
pub const LATER: [&str; 8] =
    ["rsrq_db", "sinr_db", "phy_mbit_s", "latitude_deg", "longitude_deg", "heading_deg", "speed_m_s", "announced"];

/// The columns of a batch.
pub struct Columns<'a> {
    batch: &'a RecordBatch,
    /// Times, in ns since the run began.
    pub times: &'a [u64],
    paths: Vec<&'a str>,
    kinds: Vec<&'a str>,
    stations: &'a UInt32Array,
    announced: Option<&'a BooleanArray>,
}

/// A column of numbers, one of two types.
enum Numbers<'a> {
    Single(&'a Float32Array),
    Double(&'a Float64Array),
}

impl<'a> Columns<'a> {
    /// The columns of a batch; `None` if one has another type.
    pub fn of(batch: &'a RecordBatch) -> Option<Columns<'a>> {
        let announced = match batch.column_by_name("announced") {
            Some(column) => Some(column.as_boolean_opt()?),
            None => None,
        };
        let (times, paths, kinds) = (times_ns(batch)?, texts(batch, "path")?, texts(batch, "kind")?);
        let stations = batch.column_by_name("station")?.as_primitive_opt::<UInt32Type>()?;
        Some(Columns { batch, times, paths, kinds, stations, announced })
    }

    /// What the vehicle observed, of one of `paths`: not its own CAMs, which the units received.
    ///
    /// # Errors
    /// Why the row makes no sense.
    pub fn sample(&self, row: usize, paths: &[String]) -> Result<Option<WorldSample>, String> {
        let path = || paths.iter().position(|name| name == self.paths[row]).map(|path| PathId(path as u8));
        match self.kinds[row] {
            "vehicle" => self.vehicle(row).map(Some),
            "vehicle-cam" => Ok(None),
            kind @ ("cam" | "radio" | "handover") => match path() {
                None => Ok(None),
                Some(path) if kind == "cam" => Ok(Some(WorldSample::Cam(path, self.signal(row)?))),
                Some(path) if kind == "radio" => {
                    let phy_mbit_s = self.number(row, "phy_mbit_s", 0.0, 1e6)?;
                    Ok(Some(WorldSample::Radio(path, self.signal(row)?, phy_mbit_s)))
                }
                Some(path) => {
                    let announced = self.announced.filter(|announced| announced.is_valid(row));
                    let is_announced = announced.ok_or("a handover without `announced`")?.value(row);
                    Ok(Some(WorldSample::Handover { path, is_announced }))
                }
            },
            other => Err(format!("the kind {other:?} is unknown")),
        }
    }

    fn signal(&self, row: usize) -> Result<Signal, String> {
        let rssi_dbm = self.number(row, "rssi_dbm", -200.0, 0.0)?.ok_or("a signal without `rssi_dbm`")? as f32;
        let decibels = |name| Ok::<_, String>(self.number(row, name, -100.0, 100.0)?.map(|db| db as f32));
        let (rsrq_db, sinr_db, sender) = (decibels("rsrq_db")?, decibels("sinr_db")?, self.position(row)?);
        let station = self.stations.is_valid(row).then(|| self.stations.value(row));
        Ok(Signal { rssi_dbm, rsrq_db, sinr_db, station, sender })
    }

    fn vehicle(&self, row: usize) -> Result<WorldSample, String> {
        let heading_deg = self.number(row, "heading_deg", 0.0, 360.0)?;
        let speed_m_s = self.number(row, "speed_m_s", 0.0, 1000.0)?;
        Ok(WorldSample::Vehicle(VehicleState { position: self.position(row)?, heading_deg, speed_m_s }))
    }

    fn position(&self, row: usize) -> Result<Option<Position>, String> {
        let latitude_deg = self.number(row, "latitude_deg", -90.0, 90.0)?;
        let longitude_deg = self.number(row, "longitude_deg", -180.0, 180.0)?;
        let both = latitude_deg.zip(longitude_deg);
        Ok(both.map(|(latitude_deg, longitude_deg)| Position { latitude_deg, longitude_deg }))
    }

    /// A value that makes sense; `None` if it is null, or the column is one that a former version lacks.
    fn number(&self, row: usize, name: &str, least: f64, greatest: f64) -> Result<Option<f64>, String> {
        let Some(column) = self.batch.column_by_name(name) else { return Ok(None) };
        let single = column.as_primitive_opt::<Float32Type>().map(Numbers::Single);
        let numbers = single.or_else(|| column.as_primitive_opt::<Float64Type>().map(Numbers::Double));
        let value = match numbers.ok_or_else(|| format!("`{name}` is no column of numbers"))? {
            Numbers::Single(values) => values.is_valid(row).then(|| f64::from(values.value(row))),
            Numbers::Double(values) => values.is_valid(row).then(|| values.value(row)),
        };
        match value {
            Some(value) if !(least..=greatest).contains(&value) => {
                Err(format!("`{name}` is {value} and must be from {least} to {greatest}"))
            }
            value => Ok(value),
        }
    }
}
