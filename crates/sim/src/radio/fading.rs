//! Fading: variation of the power of single frames around the mean.

use std::collections::BTreeMap;

use crosslane_core::link::ieee80211p::{self, PhyRate};
use crosslane_core::rng::Rng;

/// Nakagami m up to each distance (Cheng et al. 2007, suburban).
const M_BY_DISTANCE: [(f64, f64); 6] =
    [(4.7, 3.01), (11.7, 1.18), (28.9, 1.94), (71.6, 1.86), (177.3, 0.45), (f64::INFINITY, 0.32)];

/// Fading of each frame around the mean signal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Fading {
    /// No fading.
    None,
    /// Nakagami with m by distance (Cheng et al. 2007).
    #[default]
    Nakagami,
    /// Nakagami with this m (0.3 to 100); Rayleigh is m = 1.
    M(f64),
}

impl Fading {
    /// Nakagami m at a distance; infinity for none.
    pub fn m(self, distance_m: f64) -> f64 {
        match self {
            Fading::None => f64::INFINITY,
            Fading::M(m) => m,
            Fading::Nakagami => M_BY_DISTANCE.iter().find(|(to_m, _)| distance_m <= *to_m).map_or(0.32, |(_, m)| *m),
        }
    }
}

/// Power of one frame relative to the mean, in dB.
pub fn gain_db(rng: &mut Rng, m: f64) -> f64 {
    if m.is_infinite() { 0.0 } else { 10.0 * libm::log10(rng.gamma_mean_one(m)) }
}

/// Packet error rate averaged over fading, from a fixed sample of gains, so that
/// equal inputs give equal results and records are smooth. Cached in steps of
/// 0.1 dB, which is its resolution.
#[derive(Clone, Debug)]
pub struct MeanError {
    rate: PhyRate,
    ip_bytes: u32,
    /// By the bits of m; [`Fading`] has at most seven values of m.
    by_m: BTreeMap<u64, Mean>,
}

/// The mean for one m.
#[derive(Clone, Debug)]
struct Mean {
    gains_db: Vec<f64>,
    /// Cache by SNR in 0.1 dB, within [`SNR_TENTHS`].
    known: BTreeMap<i32, f64>,
}

/// Range of the cached signal-to-noise ratios, in 0.1 dB; the rate is constant
/// beyond it.
const SNR_TENTHS: [f64; 2] = [-1000.0, 2000.0];

impl MeanError {
    /// For packets of `ip_bytes`.
    pub fn new(rate: PhyRate, ip_bytes: u32) -> MeanError {
        MeanError { rate, ip_bytes, by_m: BTreeMap::new() }
    }

    /// Probability (0 to 1) that one attempt is lost at this mean SNR and fading.
    pub fn of(&mut self, mean_snr_db: f64, m: f64) -> f64 {
        let mean = self.by_m.entry(m.to_bits()).or_insert_with(|| Mean::new(m));
        let [low, high] = SNR_TENTHS;
        let tenths = libm::round(mean_snr_db * 10.0).clamp(low, high) as i32;
        let (rate, ip_bytes, gains_db) = (self.rate, self.ip_bytes, &mean.gains_db);
        *mean.known.entry(tenths).or_insert_with(|| {
            let snr_db = f64::from(tenths) / 10.0;
            let error = |gain: &f64| ieee80211p::packet_error_rate(rate, snr_db + gain, ip_bytes);
            gains_db.iter().map(error).sum::<f64>() / gains_db.len() as f64
        })
    }
}

impl Mean {
    fn new(m: f64) -> Mean {
        let mut rng = Rng::new(0, "mean-error");
        let draws = if m.is_infinite() { 1 } else { 64 };
        Mean { gains_db: (0..draws).map(|_| gain_db(&mut rng, m)).collect(), known: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_falls_with_distance_as_measured_by_cheng() {
        for (distance_m, m) in [(0.0, 3.01), (50.0, 1.86), (100.0, 0.45), (1e6, 0.32)] {
            assert_eq!(Fading::Nakagami.m(distance_m), m);
        }
        assert_eq!(Fading::None.m(10.0), f64::INFINITY);
    }

    #[test]
    fn fading_makes_a_good_link_worse_and_a_bad_one_better() {
        let mut mean = MeanError::new(PhyRate::Mbit6, 1500);
        let none = f64::INFINITY;
        assert!(mean.of(12.0, 1.0) > mean.of(12.0, none) + 0.1);
        assert!(mean.of(5.0, 1.0) < mean.of(5.0, none) - 0.1);
        assert!(mean.of(-100.0, 1.0) > 0.999);
    }
}
