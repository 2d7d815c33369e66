//! An 802.11n access point: RSSI from the distance, goodput from the RSSI, PHY rate from both. Curves
//! and errors: `docs/design/radio.md`, "Wi-Fi".

use serde::Deserialize;

use crate::radio::ar1::off_median_db;

/// Minimum RSSI, in dBm, at which a client receives beacons and reports a signal.
pub const NO_SIGNAL_DBM: f64 = -95.0;

/// Band of an access point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Band {
    /// 2.4 GHz, 20 MHz wide.
    #[serde(rename = "2.4")]
    Ghz2_4,
    /// 5 GHz, 40 MHz wide.
    #[serde(rename = "5")]
    Ghz5,
}

/// An access point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessPoint {
    /// Position, in m.
    pub position_m: [f64; 2],
    /// Effective radiated power, in dBm.
    pub eirp_dbm: f64,
    /// Path loss and goodput.
    pub curve: Curve,
}

/// Parameters fitted to `feup-wifi`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    /// Loss at 1 m, in dB, extrapolated from beyond `near_m`.
    pub loss_1m_db: f64,
    /// Loss per decade of distance, in 10 dB.
    pub exponent: f64,
    /// Minimum distance of the path loss, in m: the antenna is overhead.
    pub near_m: f64,
    /// Standard deviation of shadowing, in dB.
    pub shadowing_db: f64,
    /// Decorrelation distance of shadowing, in m.
    pub shadowing_distance_m: f64,
    /// Median goodput at the knee and above, in Mbit/s.
    pub peak_mbit_s: f64,
    /// Maximum goodput, in Mbit/s.
    pub max_mbit_s: f64,
    /// RSSI, in dBm, above which the median is constant.
    pub knee_dbm: f64,
    /// RSSI, in dBm, at which the attenuated Shannon capacity is one bit.
    pub floor_dbm: f64,
    /// RSSI, in dBm, below which no data passes.
    pub sensitivity_dbm: f64,
    /// Deviation of the goodput below its median, in dB.
    pub share_low_db: f64,
    /// Deviation of the goodput above its median, in dB.
    pub share_high_db: f64,
    /// Correlation time (to 1/e) of that deviation, in s.
    pub share_memory_s: f64,
    /// The PHY rate.
    pub phy: PhyRate,
}

/// The mean PHY rate of the data frames, by RSSI and goodput: rate control follows what arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhyRate {
    /// That of 1 Mbit/s at 0 dBm, in dB of 1 Mbit/s (extrapolated).
    pub base_db: f64,
    /// Gain per dB of RSSI, in dB.
    pub per_db: f64,
    /// Gain per dB of goodput, in dB.
    pub per_goodput: f64,
    /// Standard deviation of the rest, in dB.
    pub sigma_db: f64,
    /// Correlation time (to 1/e) of the rest, in s.
    pub memory_s: f64,
    /// Lowest rate, in Mbit/s.
    pub min_mbit_s: f64,
    /// Highest rate, in Mbit/s.
    pub max_mbit_s: f64,
}

/// `crosslane-lab calibrate feup-wifi`, 2.4 GHz.
pub const BAND_2_4: Curve = Curve {
    loss_1m_db: 47.0,
    exponent: 2.22,
    near_m: 15.0,
    shadowing_db: 6.2,
    shadowing_distance_m: 22.0,
    peak_mbit_s: 19.8,
    max_mbit_s: 26.2,
    knee_dbm: -48.0,
    floor_dbm: -71.0,
    sensitivity_dbm: -85.0,
    share_low_db: 3.9,
    share_high_db: 2.6,
    share_memory_s: 2.5,
    phy: PhyRate {
        base_db: 18.8,
        per_db: 0.064,
        per_goodput: 0.21,
        sigma_db: 1.3,
        memory_s: 2.0,
        min_mbit_s: 6.5,
        max_mbit_s: 70.2,
    },
};

/// `crosslane-lab calibrate feup-wifi`, 5 GHz.
pub const BAND_5: Curve = Curve {
    loss_1m_db: 37.0,
    exponent: 2.8,
    near_m: 35.0,
    shadowing_db: 4.5,
    shadowing_distance_m: 20.0,
    peak_mbit_s: 42.8,
    max_mbit_s: 62.8,
    knee_dbm: -57.0,
    floor_dbm: -71.0,
    sensitivity_dbm: -82.0,
    share_low_db: 8.3,
    share_high_db: 3.6,
    share_memory_s: 6.0,
    phy: PhyRate {
        base_db: 14.9,
        per_db: 0.081,
        per_goodput: 0.58,
        sigma_db: 2.4,
        memory_s: 2.0,
        min_mbit_s: 6.5,
        max_mbit_s: 205.1,
    },
};

impl Band {
    /// The fitted curve of the band.
    pub fn curve(self) -> Curve {
        match self {
            Band::Ghz2_4 => BAND_2_4,
            Band::Ghz5 => BAND_5,
        }
    }

    /// Thermal noise, in dBm, over the channel's width with a noise figure of 7 dB.
    pub fn noise_dbm(self) -> f64 {
        match self {
            Band::Ghz2_4 => -94.0,
            Band::Ghz5 => -91.0,
        }
    }
}

impl Curve {
    /// Path loss, in dB.
    pub fn loss_db(&self, distance_m: f64) -> f64 {
        self.loss_1m_db + 10.0 * self.exponent * libm::log10(distance_m.max(self.near_m))
    }

    /// Median goodput, in Mbit/s, at an RSSI.
    pub fn median_mbit_s(&self, rssi_dbm: f64) -> f64 {
        if rssi_dbm < self.sensitivity_dbm {
            return 0.0;
        }
        let bits = |dbm: f64| libm::log2(1.0 + decibels(dbm - self.floor_dbm));
        self.peak_mbit_s * bits(rssi_dbm.min(self.knee_dbm)) / bits(self.knee_dbm)
    }

    /// Goodput, in Mbit/s, at an RSSI, `share` deviations from its median.
    pub fn mbit_s(&self, rssi_dbm: f64, share: f64) -> f64 {
        let off = decibels(off_median_db(share, [self.share_low_db, self.share_high_db]));
        (self.median_mbit_s(rssi_dbm) * off).min(self.max_mbit_s)
    }
}

impl PhyRate {
    /// The rate, in Mbit/s, at an RSSI and a goodput in Mbit/s, `rest` standard deviations off.
    pub fn mbit_s(&self, rssi_dbm: f64, goodput_mbit_s: f64, rest: f64) -> f64 {
        let goodput_db = 10.0 * libm::log10(goodput_mbit_s);
        let db = self.base_db + self.per_db * rssi_dbm + self.per_goodput * goodput_db + self.sigma_db * rest;
        decibels(db).clamp(self.min_mbit_s, self.max_mbit_s)
    }
}

/// Power ratio of a level in dB.
pub(crate) fn decibels(db: f64) -> f64 {
    libm::pow(10.0, db / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the fit with medians of the recording.
    #[test]
    fn the_medians_follow_the_loss_and_rate_of_the_recording() {
        for (curve, distance_m, dbm) in [(BAND_2_4, 30.0, -60.0), (BAND_5, 75.0, -69.0), (BAND_5, 135.0, -76.0)] {
            let rssi = 20.0 - curve.loss_db(distance_m);
            assert!((rssi - dbm).abs() < 2.0, "{distance_m} m: {rssi}");
        }
        assert_eq!(BAND_5.loss_db(1.0), BAND_5.loss_db(35.0));
    }

    /// Compares the fit with medians of the recording: of seconds at this RSSI, their goodput and PHY rate.
    #[test]
    fn the_phy_rate_follows_that_of_the_recording_and_stays_within_its_range() {
        let seconds = [
            (BAND_2_4, -62.5, 7.4, 45.0),
            (BAND_2_4, -72.5, 1.2, 27.0),
            (BAND_5, -62.5, 26.2, 89.0),
            (BAND_5, -77.5, 2.0, 9.0),
        ];
        for (curve, rssi_dbm, goodput, recorded) in seconds {
            let rate = curve.phy.mbit_s(rssi_dbm, goodput, 0.0);
            assert!((rate / recorded).log2().abs() < 0.5, "{rssi_dbm} dBm: {rate}");
            assert_eq!(curve.phy.mbit_s(rssi_dbm, 0.0, 0.0), curve.phy.min_mbit_s, "nothing arrives");
            assert_eq!(curve.phy.mbit_s(-20.0, 60.0, 9.0), curve.phy.max_mbit_s);
        }
    }

    #[test]
    fn a_stronger_signal_never_carries_less_and_none_passes_below_the_sensitivity() {
        for curve in [BAND_2_4, BAND_5] {
            let mut before = 0.0;
            for dbm in -100..0 {
                let rate = curve.median_mbit_s(f64::from(dbm));
                assert!(rate >= before, "{dbm} dBm");
                before = rate;
            }
            assert_eq!(before, curve.peak_mbit_s);
            assert_eq!(curve.median_mbit_s(curve.sensitivity_dbm - 0.1), 0.0);
            assert!(curve.median_mbit_s(curve.sensitivity_dbm) > 0.0);
            assert_eq!(curve.mbit_s(-40.0, 9.0), curve.max_mbit_s);
        }
    }
}
