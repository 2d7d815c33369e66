//! Signal and rates of a modelled access link over time and position.

use crosslane_core::rng::Rng;

use crate::input::mobility::distance_m;
use crate::radio::ar1::Ar1;
use crate::radio::cellular::Cells;
use crate::radio::shadowing::{Memory, Shadowing};
use crate::radio::wifi::{AccessPoint, Band, NO_SIGNAL_DBM, decibels};

/// Minimum reported RSRP, in dBm (TS 36.133, clause 9.1.4).
const MIN_RSRP_DBM: f64 = -140.0;

/// Model of an access link.
#[derive(Clone, Debug, PartialEq)]
pub enum AccessModel {
    /// An access point.
    Wifi(Band, AccessPoint),
    /// Base stations.
    Cellular(Cells),
}

impl AccessModel {
    /// Nominal uplink and downlink rates at a good signal, in Mbit/s.
    pub fn nominal_mbit_s(&self) -> [f64; 2] {
        match self {
            AccessModel::Wifi(_, point) => [point.curve.peak_mbit_s; 2],
            AccessModel::Cellular(cells) => {
                let down = cells.nominal_mbit_s();
                [down * cells.up_ratio, down]
            }
        }
    }
}

/// Signal and rates of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReceivedSignal {
    /// RSSI (Wi-Fi) or RSRP (cellular) with shadowing, in dBm; none without a
    /// signal.
    pub dbm: Option<f64>,
    /// Distance to the serving station, in m.
    pub distance_m: f64,
    /// Uplink rate, in Mbit/s.
    pub up_mbit_s: f64,
    /// Downlink rate, in Mbit/s.
    pub down_mbit_s: f64,
    /// Further signal figures.
    pub quality: Quality,
}

/// Signal figures in addition to the strength, if known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quality {
    /// SINR of a resource element, or SNR of Wi-Fi, in dB.
    pub sinr_db: Option<f64>,
    /// RSRQ, in dB.
    pub rsrq_db: Option<f64>,
    /// Mean PHY rate of the data frames of Wi-Fi, in Mbit/s.
    pub phy_mbit_s: Option<f64>,
    /// RSSI over the whole carrier, in dBm.
    pub carrier_rssi_dbm: Option<f64>,
    /// Index of the serving cell in the file.
    pub cell: Option<u8>,
}

/// The channel between the vehicle and a modelled link.
#[derive(Clone, Debug)]
pub struct Channel {
    model: AccessModel,
    /// Variation of SINR (of Wi-Fi: of the PHY rate) and of the share; none: mean values.
    variations: Option<[Ar1; 2]>,
    track_state: TrackState,
}

/// State that depends on the track.
#[derive(Clone, Debug)]
struct TrackState {
    /// One per station; empty: path loss only.
    shadowings: Vec<Shadowing>,
    memory: Memory,
    /// The serving cell, if any.
    cell: Option<usize>,
    interrupted_until_s: f64,
}

impl Channel {
    /// The channel of the link `name` for a vehicle that starts at `position_m`;
    /// without `seed` there is no shadowing and no variation over time.
    pub fn new(model: &AccessModel, name: &str, seed: Option<u64>, position_m: [f64; 2]) -> Channel {
        let (stations, decorrelation_m, [sinr_s, share_s]) = match model {
            AccessModel::Wifi(_, AccessPoint { curve, .. }) => {
                (1, curve.shadowing_distance_m, [curve.phy.memory_s, curve.share_memory_s])
            }
            AccessModel::Cellular(cells) => {
                let curve = &cells.curve;
                (cells.cells_m.len(), cells.shadowing_distance_m, [curve.sinr_memory_s, curve.share_memory_s])
            }
        };
        let shadowing = |station| {
            let rng = Rng::new(seed?, &format!("shadowing of {name} {station}"));
            Some(Shadowing::new(rng, position_m))
        };
        let variation = |seed, what, memory_s| Ar1::new(Rng::new(seed, &format!("{what} of {name}")), memory_s);
        let track_state = TrackState {
            shadowings: (0..stations).filter_map(shadowing).collect(),
            memory: Memory::new(decorrelation_m),
            cell: None,
            interrupted_until_s: 0.0,
        };
        let variations = seed.map(|seed| [variation(seed, "sinr", sinr_s), variation(seed, "share", share_s)]);
        Channel { model: model.clone(), variations, track_state }
    }

    /// The signal at a time and position; times must not decrease.
    pub fn signal_at(&mut self, t_s: f64, position_m: [f64; 2]) -> ReceivedSignal {
        let variations = self.variations.as_mut();
        let variations = variations.map_or([0.0; 2], |both| both.each_mut().map(|process| process.at(t_s)));
        match &self.model {
            AccessModel::Wifi(band, point) => self.track_state.wifi_signal(*band, point, position_m, variations),
            AccessModel::Cellular(cells) => self.track_state.cellular_signal(cells, t_s, position_m, variations),
        }
    }
}

impl TrackState {
    fn wifi_signal(
        &mut self,
        band: Band,
        point: &AccessPoint,
        position_m: [f64; 2],
        [phy, share]: [f64; 2],
    ) -> ReceivedSignal {
        let distance_m = distance_m(point.position_m, position_m);
        let shadow_db = self.shadow_db(0, position_m, point.curve.shadowing_db);
        let rssi_dbm = point.eirp_dbm - point.curve.loss_db(distance_m) - shadow_db;
        if rssi_dbm < NO_SIGNAL_DBM {
            return ReceivedSignal { distance_m, ..ReceivedSignal::default() };
        }
        let mbit_s = point.curve.mbit_s(rssi_dbm, share);
        let quality = Quality {
            sinr_db: Some(rssi_dbm - band.noise_dbm()),
            phy_mbit_s: Some(point.curve.phy.mbit_s(rssi_dbm, mbit_s, phy)),
            ..Quality::default()
        };
        ReceivedSignal { dbm: Some(rssi_dbm), distance_m, up_mbit_s: mbit_s, down_mbit_s: mbit_s, quality }
    }

    fn cellular_signal(
        &mut self,
        cells: &Cells,
        t_s: f64,
        position_m: [f64; 2],
        [variation, share]: [f64; 2],
    ) -> ReceivedSignal {
        let mut rsrp_dbm = Vec::new();
        for (cell, &at_m) in cells.cells_m.iter().enumerate() {
            let shadow_db = self.shadow_db(cell, position_m, cells.shadowing_db);
            rsrp_dbm.push(cells.rsrp_dbm(distance_m(at_m, position_m)) - shadow_db);
        }
        let cell = self.choose(cells, t_s, &rsrp_dbm);
        let own_dbm = rsrp_dbm[cell];
        let distance_m = distance_m(cells.cells_m[cell], position_m);
        if own_dbm < MIN_RSRP_DBM {
            return ReceivedSignal { distance_m, ..ReceivedSignal::default() };
        }
        let all_mw: f64 = rsrp_dbm.iter().map(|&dbm| decibels(dbm)).sum();
        let others_mw = (all_mw - decibels(own_dbm)).max(0.0);
        let sinr_db = cells.sinr_db(own_dbm, others_mw, variation);
        let interrupted = t_s < self.interrupted_until_s;
        let down_mbit_s = if interrupted { 0.0 } else { cells.mbit_s(own_dbm, sinr_db, share) };
        let quality = Quality {
            sinr_db: Some(sinr_db),
            rsrq_db: Some(cells.rsrq_db(own_dbm, sinr_db)),
            phy_mbit_s: None,
            carrier_rssi_dbm: Some(cells.carrier_rssi_dbm(own_dbm, sinr_db)),
            cell: u8::try_from(cell).ok(),
        };
        ReceivedSignal { dbm: Some(own_dbm), distance_m, up_mbit_s: down_mbit_s * cells.up_ratio, down_mbit_s, quality }
    }

    /// Selects the serving cell: the strongest at first, then another one once it
    /// is stronger by the hysteresis; a handover starts an interruption.
    fn choose(&mut self, cells: &Cells, t_s: f64, rsrp_dbm: &[f64]) -> usize {
        let mut best = self.cell.unwrap_or(0);
        let needed_db = if self.cell.is_some() { cells.hysteresis_db } else { 0.0 };
        let mut threshold_dbm = rsrp_dbm[best] + needed_db;
        for (cell, &dbm) in rsrp_dbm.iter().enumerate() {
            if dbm > threshold_dbm {
                (best, threshold_dbm) = (cell, dbm);
            }
        }
        if self.cell.is_some_and(|before| before != best) {
            self.interrupted_until_s = t_s + cells.interruption_ms / 1000.0;
        }
        self.cell = Some(best);
        best
    }

    fn shadow_db(&mut self, station: usize, position_m: [f64; 2], sigma_db: f64) -> f64 {
        let shadowing = self.shadowings.get_mut(station);
        shadowing.map_or(0.0, |shadowing| shadowing.loss_db(position_m, sigma_db, &mut self.memory))
    }
}
