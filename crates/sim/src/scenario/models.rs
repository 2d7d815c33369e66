//! `[wifi.model]` and `[cellular.model]`: access links modelled from the
//! positions of their stations.

use crosslane_core::path::Rat;
use serde::Deserialize;

use super::ScenarioError;
use super::schema::{number, period, whole};
use super::source_map::Lines;
use crate::radio::access_link::AccessModel;
use crate::radio::cellular::{self, Cells, MAX_CELLS};
use crate::radio::wifi::{AccessPoint, Band};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WifiModelKeys {
    position_m: Vec<f64>,
    band: Band,
    #[serde(default = "whole::<20>", deserialize_with = "number::<_, _, -30, 60>")]
    eirp_dbm: f64,
    #[serde(default, deserialize_with = "number::<_, _, 0, 200>")]
    loss_1m_db: Option<f64>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 10>")]
    exponent: Option<f64>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 20>")]
    shadowing_db: Option<f64>,
    #[serde(default, deserialize_with = "period::<_, _, 10_000>")]
    shadowing_distance_m: Option<f64>,
    #[serde(default, deserialize_with = "period::<_, _, 10_000>")]
    peak_mbit_s: Option<f64>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 20>")]
    share_db: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CellularModelKeys {
    cells_m: Vec<Vec<f64>>,
    #[serde(default, deserialize_with = "number::<_, _, 1, 100>")]
    bandwidth_mhz: Option<f64>,
    #[serde(default = "whole::<2>", deserialize_with = "number::<_, _, 1, 8>")]
    layers: f64,
    #[serde(default, deserialize_with = "number::<_, _, -30, 90>")]
    eirp_dbm: Option<f64>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 250>")]
    loss_1km_db: Option<f64>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 100>")]
    loss_decade_db: Option<f64>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 20>")]
    shadowing_db: Option<f64>,
    #[serde(default = "whole::<50>", deserialize_with = "period::<_, _, 10_000>")]
    shadowing_distance_m: f64,
    #[serde(default, deserialize_with = "number::<_, _, 0, 1>")]
    load: Option<f64>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 1>")]
    share: Option<f64>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 20>")]
    share_db: Option<f64>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 20>")]
    sinr_db: Option<f64>,
    #[serde(default, deserialize_with = "number::<_, _, 0, 1>")]
    up_ratio: Option<f64>,
    #[serde(default = "whole::<3>", deserialize_with = "number::<_, _, 0, 20>")]
    hysteresis_db: f64,
    #[serde(default = "whole::<40>", deserialize_with = "number::<_, _, 0, 10_000>")]
    interruption_ms: f64,
}

/// Defaults that differ between LTE and NR.
struct Defaults {
    bandwidth_mhz: f64,
    eirp_dbm: f64,
    loss_1km_db: f64,
    loss_decade_db: f64,
    shadowing_db: f64,
    up_ratio: f64,
    curve: cellular::Curve,
}

/// 20 MHz at 2 GHz: macro cell of TR 36.942; 46 dBm and an antenna of 15 dBi.
const LTE: Defaults = Defaults {
    bandwidth_mhz: 20.0,
    eirp_dbm: 61.0,
    loss_1km_db: 128.1,
    loss_decade_db: 37.6,
    shadowing_db: 8.0,
    up_ratio: 0.5,
    curve: cellular::LTE,
};

/// 100 MHz at 3.5 GHz: urban macro cell without line of sight of TR 38.901, table
/// 7.4.1-1; 49 dBm and beams of 24 dBi.
const NR: Defaults = Defaults {
    bandwidth_mhz: 100.0,
    eirp_dbm: 73.0,
    loss_1km_db: 141.7,
    loss_decade_db: 39.08,
    shadowing_db: 6.0,
    up_ratio: 0.2,
    curve: cellular::NR,
};

impl WifiModelKeys {
    pub(super) fn build(self, lines: &Lines, key: &str) -> Result<AccessModel, ScenarioError> {
        let key = format!("{key}.model.position_m");
        let position_m = point(lines, &key, "the access point", &self.position_m)?;
        let mut curve = self.band.curve();
        curve.loss_1m_db = self.loss_1m_db.unwrap_or(curve.loss_1m_db);
        curve.exponent = self.exponent.unwrap_or(curve.exponent);
        curve.shadowing_db = self.shadowing_db.unwrap_or(curve.shadowing_db);
        curve.shadowing_distance_m = self.shadowing_distance_m.unwrap_or(curve.shadowing_distance_m);
        curve.share_low_db = self.share_db.unwrap_or(curve.share_low_db);
        curve.share_high_db = self.share_db.unwrap_or(curve.share_high_db);
        if let Some(peak_mbit_s) = self.peak_mbit_s {
            curve.max_mbit_s *= peak_mbit_s / curve.peak_mbit_s;
            curve.peak_mbit_s = peak_mbit_s;
        }
        let point = AccessPoint { position_m, eirp_dbm: self.eirp_dbm, curve };
        Ok(AccessModel::Wifi(self.band, point))
    }
}

impl CellularModelKeys {
    pub(super) fn build(self, lines: &Lines, key: &str, rat: Rat) -> Result<AccessModel, ScenarioError> {
        let key = format!("{key}.model.cells_m");
        let what = format!("{} cells are not 1 to {MAX_CELLS}", self.cells_m.len());
        let remedy = "give the positions of the cells, for example [[0, 0], [800, 0]]";
        lines.require((1..=MAX_CELLS).contains(&self.cells_m.len()), &key, what, remedy)?;
        let cells_m = self.cells_m.iter().zip(0..);
        let cells_m = cells_m.map(|(cell_m, place)| point(lines, &format!("{key}.{place}"), "the cell", cell_m));
        let defaults = if rat == Rat::Nr { NR } else { LTE };
        let mut curve = defaults.curve;
        curve.share_low_db = self.share_db.unwrap_or(curve.share_low_db);
        curve.share_high_db = self.share_db.unwrap_or(curve.share_high_db);
        curve.sinr_db = self.sinr_db.unwrap_or(curve.sinr_db);
        let load = self.load.unwrap_or(curve.load);
        Ok(AccessModel::Cellular(Cells {
            cells_m: cells_m.collect::<Result<_, _>>()?,
            bandwidth_mhz: self.bandwidth_mhz.unwrap_or(defaults.bandwidth_mhz),
            layers: self.layers,
            eirp_dbm: self.eirp_dbm.unwrap_or(defaults.eirp_dbm),
            loss_1km_db: self.loss_1km_db.unwrap_or(defaults.loss_1km_db),
            loss_decade_db: self.loss_decade_db.unwrap_or(defaults.loss_decade_db),
            shadowing_db: self.shadowing_db.unwrap_or(defaults.shadowing_db),
            shadowing_distance_m: self.shadowing_distance_m,
            load,
            share: self.share.unwrap_or_else(|| curve.share_at(load)),
            up_ratio: self.up_ratio.unwrap_or(defaults.up_ratio),
            hysteresis_db: self.hysteresis_db,
            interruption_ms: self.interruption_ms,
            curve,
        }))
    }
}

fn point(lines: &Lines, key: &str, what: &str, position_m: &[f64]) -> Result<[f64; 2], ScenarioError> {
    match *position_m {
        [x, y] if x.is_finite() && y.is_finite() => Ok([x, y]),
        _ => Err(lines.error(key, format!("{what} is not at a finite x and y"), "give both in m, for example [0, 12]")),
    }
}
