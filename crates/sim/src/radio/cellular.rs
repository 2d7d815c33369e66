//! The cells of a 4G or 5G network: RSRP from the distance; SINR, RSRQ and RSSI
//! by the definitions of 3GPP; rate from the CQI. Curves and errors:
//! `docs/design/radio.md`, "Cellular".

use crate::radio::ar1::off_median_db;
use crate::radio::wifi::decibels;

/// Maximum number of cells of one link: each is evaluated 100 times a second.
pub const MAX_CELLS: usize = 32;

/// Spectral efficiency, in bit/s/Hz, by CQI (3GPP TS 36.213, table 7.2.3-1).
pub const EFFICIENCY: [f64; 16] = [
    0.0, 0.1523, 0.2344, 0.3770, 0.6016, 0.8770, 1.1758, 1.4766, 1.9141, 2.4063, 2.7305, 3.3223, 3.9023, 4.5234,
    5.1152, 5.5547,
];

/// Minimum RSRP, in dBm, at which a phone stays on a cell (the lowest q-RxLevMin
/// that networks commonly broadcast, TS 36.304, clause 5.2.3.2).
pub const OUT_OF_SERVICE_DBM: f64 = -125.0;

/// Minimum distance of the path-loss model, in m (TR 36.942); the loss is
/// constant below it.
const MIN_DISTANCE_M: f64 = 35.0;

/// Thermal noise, in dBm, over one resource element of 15 kHz, with a noise
/// figure of 7 dB.
const NOISE_DBM: f64 = -125.2;

/// RSRP, in dBm, to which [`Curve::share`] refers.
const PIVOT_DBM: f64 = -90.0;

/// Resource elements per second of one resource block (12 · 14 · 1000), times
/// the fraction that carries data.
const ELEMENTS: f64 = 168_000.0 * 0.75;

/// The cells that serve one link.
#[derive(Clone, Debug, PartialEq)]
pub struct Cells {
    /// Positions of the base stations, in m; at least one.
    pub cells_m: Vec<[f64; 2]>,
    /// Bandwidth of the carrier, in MHz, with five resource blocks per MHz.
    pub bandwidth_mhz: f64,
    /// Spatial layers of the downlink.
    pub layers: f64,
    /// Effective radiated power over the whole carrier, in dBm.
    pub eirp_dbm: f64,
    /// Path loss at 1 km, in dB.
    pub loss_1km_db: f64,
    /// Path loss per decade of distance, in dB.
    pub loss_decade_db: f64,
    /// Standard deviation of shadowing, in dB.
    pub shadowing_db: f64,
    /// Decorrelation distance of shadowing, in m.
    pub shadowing_distance_m: f64,
    /// Fraction of the resource elements in use, 0 to 1.
    pub load: f64,
    /// Median share of the cell's capacity for the vehicle at an RSRP of −90 dBm.
    pub share: f64,
    /// Uplink rate relative to the downlink rate.
    pub up_ratio: f64,
    /// Handover hysteresis, in dB.
    pub hysteresis_db: f64,
    /// Interruption by a handover, in ms.
    pub interruption_ms: f64,
    /// Fitted curve.
    pub curve: Curve,
}

/// Parameters fitted to `uccmisl-5g`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    /// Increase of SINR per dB of RSRP: below 1, because interference rises too.
    pub sinr_slope: f64,
    /// SINR at an RSRP of 0 dBm (extrapolated), in dB.
    pub sinr_offset_db: f64,
    /// Standard deviation of the SINR around this line, in dB.
    pub sinr_db: f64,
    /// Correlation time (to 1/e) of that deviation, in s.
    pub sinr_memory_s: f64,
    /// Increase of CQI per dB of SINR.
    pub cqi_slope: f64,
    /// CQI at a SINR of 0 dB.
    pub cqi_offset: f64,
    /// Load that matches the RSRQ, 0 to 1.
    pub load: f64,
    /// Median share of the cell's capacity for one phone at that load and an RSRP
    /// of −90 dBm.
    pub share: f64,
    /// Increase of the share per dB of RSRP, in dB.
    pub share_slope: f64,
    /// Deviation of the share below its median, in dB.
    pub share_low_db: f64,
    /// Deviation of the share above its median, in dB.
    pub share_high_db: f64,
    /// Correlation time (to 1/e) of that deviation, in s.
    pub share_memory_s: f64,
}

/// `crosslane-lab calibrate uccmisl-5g`, phones in LTE.
pub const LTE: Curve = Curve {
    sinr_slope: 0.356,
    sinr_offset_db: 36.1,
    sinr_db: 6.9,
    sinr_memory_s: 10.4,
    cqi_slope: 0.259,
    cqi_offset: 7.796,
    load: 0.6,
    share: 0.122,
    share_slope: -0.007,
    share_low_db: 8.0,
    share_high_db: 3.7,
    share_memory_s: 1.3,
};

/// `crosslane-lab calibrate uccmisl-5g`, phones in 5G with its LTE anchor.
pub const NR: Curve = Curve {
    sinr_slope: 0.328,
    sinr_offset_db: 32.5,
    sinr_db: 8.0,
    sinr_memory_s: 3.8,
    cqi_slope: 0.16,
    cqi_offset: 10.548,
    load: 0.6,
    share: 0.032,
    share_slope: 0.113,
    share_low_db: 10.0,
    share_high_db: 7.4,
    share_memory_s: 1.2,
};

impl Cells {
    /// Path loss, in dB. With 128.1 dB at 1 km and 37.6 dB per decade: TR 36.942,
    /// macro cell at 2 GHz.
    pub fn loss_db(&self, distance_m: f64) -> f64 {
        self.loss_1km_db + self.loss_decade_db * libm::log10(distance_m.max(MIN_DISTANCE_M) / 1000.0)
    }

    /// Mean power of one resource element of the reference signal (TS 36.214,
    /// clause 5.1.1), in dBm, without shadowing: the carrier's power over its
    /// subcarriers.
    pub fn rsrp_dbm(&self, distance_m: f64) -> f64 {
        self.eirp_dbm - 10.0 * libm::log10(12.0 * self.blocks()) - self.loss_db(distance_m)
    }

    /// SINR of a resource element, in dB, `variation` standard deviations from its
    /// mean. `others_mw` is the interference of the link's other cells at full
    /// load; the curve includes cells that are not modelled.
    pub fn sinr_db(&self, rsrp_dbm: f64, others_mw: f64, variation: f64) -> f64 {
        let mean_db = self.curve.sinr_slope * rsrp_dbm + self.curve.sinr_offset_db;
        let noise_mw = decibels(rsrp_dbm - mean_db) + decibels(NOISE_DBM) + self.load * others_mw;
        rsrp_dbm - 10.0 * libm::log10(noise_mw) + self.curve.sinr_db * variation
    }

    /// RSSI (TS 36.214, clause 5.1.3), in dBm: the power received over the carrier
    /// in a symbol with reference signals. One element in six is always sent, the
    /// others according to the load.
    pub fn carrier_rssi_dbm(&self, rsrp_dbm: f64, sinr_db: f64) -> f64 {
        let elements = 12.0 * self.blocks();
        let per_element = (1.0 + 5.0 * self.load) / 6.0 + decibels(-sinr_db);
        rsrp_dbm + 10.0 * libm::log10(elements * per_element)
    }

    /// RSRQ (TS 36.214, clause 5.1.3), in dB: blocks · RSRP / RSSI.
    pub fn rsrq_db(&self, rsrp_dbm: f64, sinr_db: f64) -> f64 {
        10.0 * libm::log10(self.blocks()) + rsrp_dbm - self.carrier_rssi_dbm(rsrp_dbm, sinr_db)
    }

    /// Downlink rate, in Mbit/s, `share` deviations from its median.
    pub fn mbit_s(&self, rsrp_dbm: f64, sinr_db: f64, share: f64) -> f64 {
        if rsrp_dbm < OUT_OF_SERVICE_DBM {
            return 0.0;
        }
        let curve = &self.curve;
        let off_db = off_median_db(share, [curve.share_low_db, curve.share_high_db]);
        let share = self.share * decibels(curve.share_slope * (rsrp_dbm - PIVOT_DBM) + off_db);
        self.whole_mbit_s(curve.cqi(sinr_db)) * share.min(1.0)
    }

    /// Median downlink rate, in Mbit/s, at the best CQI and an RSRP of −90 dBm.
    pub fn nominal_mbit_s(&self) -> f64 {
        self.whole_mbit_s(15) * self.share.min(1.0)
    }

    /// Downlink rate of the whole cell at a CQI, in Mbit/s.
    pub fn whole_mbit_s(&self, cqi: usize) -> f64 {
        EFFICIENCY[cqi.min(15)] * ELEMENTS * self.blocks() * self.layers / 1e6
    }

    /// Number of resource blocks.
    fn blocks(&self) -> f64 {
        5.0 * self.bandwidth_mhz
    }
}

impl Curve {
    /// Median share of a cell's capacity for one phone at a load; it decreases as
    /// the load increases.
    pub fn share_at(&self, load: f64) -> f64 {
        (self.share * (1.0 - load) / (1.0 - self.load)).min(1.0)
    }

    /// CQI (1 to 15) that a phone reports at a SINR.
    pub fn cqi(&self, sinr_db: f64) -> usize {
        let cqi = libm::floor(self.cqi_slope * sinr_db + self.cqi_offset + 0.5);
        cqi.clamp(1.0, 15.0) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells() -> Cells {
        Cells {
            cells_m: vec![[0.0, 0.0]],
            bandwidth_mhz: 10.0,
            layers: 1.0,
            eirp_dbm: 61.0,
            loss_1km_db: 128.1,
            loss_decade_db: 37.6,
            shadowing_db: 8.0,
            shadowing_distance_m: 50.0,
            load: 0.6,
            share: 0.122,
            up_ratio: 0.5,
            hysteresis_db: 3.0,
            interruption_ms: 40.0,
            curve: LTE,
        }
    }

    /// 50 blocks, one layer, calculated from the table: efficiency · 168 · 1000 ·
    /// 50 · 0.75.
    #[test]
    fn the_rate_of_the_whole_cell_matches_the_cqi_table() {
        for (cqi, mbit_s) in [(0, 0.0), (1, 0.96), (4, 3.79), (7, 9.30), (10, 17.20), (15, 34.99), (99, 34.99)] {
            let rate = cells().whole_mbit_s(cqi);
            assert!((rate - mbit_s).abs() < 0.01, "CQI {cqi}: {rate}");
        }
    }

    #[test]
    fn the_macro_path_loss_is_that_of_tr_36_942() {
        for (distance_m, loss_db) in [(1000.0, 128.1), (10_000.0, 165.7), (100.0, 90.5), (0.0, 73.36)] {
            assert!((cells().loss_db(distance_m) - loss_db).abs() < 0.01, "{distance_m} m");
        }
        // 61 dBm over 600 subcarriers are 33.2 dBm each.
        assert!((cells().rsrp_dbm(1000.0) - (33.22 - 128.1)).abs() < 0.01);
    }

    #[test]
    fn the_rsrq_of_an_empty_and_of_a_full_cell_are_those_of_its_definition() {
        for (load, rsrq_db) in [(0.0, -3.01), (1.0, -10.79)] {
            let cells = Cells { load, ..cells() };
            let found = cells.rsrq_db(-80.0, 100.0);
            assert!((found - rsrq_db).abs() < 0.01, "load {load}: {found}");
        }
        // Noise equal to the signal in a full cell: 3 dB less.
        let full = Cells { load: 1.0, ..cells() };
        assert!((full.rsrq_db(-80.0, 0.0) + 13.80).abs() < 0.01);
    }

    #[test]
    fn load_reduces_the_rate_and_other_cells_reduce_the_sinr() {
        assert!((LTE.share_at(0.1) / LTE.share_at(0.9) - 9.0).abs() < 1e-9);
        assert_eq!((LTE.share_at(1.0), LTE.share_at(0.6)), (0.0, 0.122));
        let whole = Cells { share: 1.0, ..cells() };
        assert_eq!(whole.mbit_s(-90.0, 60.0, 3.0), whole.whole_mbit_s(15));
        assert!(cells().sinr_db(-90.0, decibels(-90.0), 0.0) < cells().sinr_db(-90.0, 0.0, 0.0) - 1.0);
        assert_eq!(cells().mbit_s(OUT_OF_SERVICE_DBM - 0.1, 10.0, 0.0), 0.0);
    }

    #[test]
    fn the_phones_cqi_grows_with_the_sinr() {
        assert_eq!([-60.0, 0.0, 12.0, 60.0].map(|sinr_db| LTE.cqi(sinr_db)), [1, 8, 11, 15]);
    }
}
