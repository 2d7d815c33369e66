//! Fading: how the power of a single frame differs from the mean.

use crosslane_core::link::ieee80211p::{self, PhyRate};
use crosslane_core::rng::Rng;

use crate::scenario::Fading;

/// Nakagami m up to each distance (Cheng et al. 2007, suburban).
const M_BY_DISTANCE: [(f64, f64); 6] = [
    (4.7, 3.01),
    (11.7, 1.18),
    (28.9, 1.94),
    (71.6, 1.86),
    (177.3, 0.45),
    (f64::INFINITY, 0.32),
];

impl Fading {
    /// Nakagami m at a distance; infinity for none.
    pub fn m(self, distance_m: f64) -> f64 {
        match self {
            Fading::None => f64::INFINITY,
            Fading::M(m) => m,
            Fading::Nakagami => {
                let found = M_BY_DISTANCE
                    .iter()
                    .find(|(upto_m, _)| distance_m <= *upto_m);
                found.map_or(0.32, |(_, m)| *m)
            }
        }
    }
}

/// Power of one frame relative to the mean, in dB.
pub fn gain_db(rng: &mut Rng, m: f64) -> f64 {
    if m.is_infinite() {
        return 0.0;
    }
    10.0 * libm::log10(rng.gamma_mean_one(m))
}

/// Packet error rate averaged over fading, from a fixed sample of gains: the
/// same for every call, so that a record of it is smooth.
#[derive(Clone, Debug, Default)]
pub struct MeanError {
    m: f64,
    gains_db: Vec<f64>,
}

impl MeanError {
    /// Chance (0 to 1) that one try of `ip_bytes` is lost at this mean SNR.
    pub fn of(&mut self, rate: PhyRate, mean_snr_db: f64, m: f64, ip_bytes: u32) -> f64 {
        if m.is_infinite() {
            return ieee80211p::packet_error_rate(rate, mean_snr_db, ip_bytes);
        }
        if self.m != m {
            let mut rng = Rng::new(0, "mean-error");
            self.m = m;
            self.gains_db = (0..64).map(|_| gain_db(&mut rng, m)).collect();
        }
        let error = |gain: &f64| ieee80211p::packet_error_rate(rate, mean_snr_db + gain, ip_bytes);
        self.gains_db.iter().map(error).sum::<f64>() / self.gains_db.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_falls_with_distance_as_cheng_measured_it() {
        for (distance_m, m) in [(0.0, 3.01), (50.0, 1.86), (100.0, 0.45), (1e6, 0.32)] {
            assert_eq!(Fading::Nakagami.m(distance_m), m);
        }
        assert_eq!(Fading::None.m(10.0), f64::INFINITY);
    }

    #[test]
    fn fading_makes_a_good_link_worse_and_a_bad_one_better() {
        let rate = PhyRate::Mbit6;
        let mut mean = MeanError::default();
        let none = f64::INFINITY;
        assert!(mean.of(rate, 12.0, 1.0, 1500) > mean.of(rate, 12.0, none, 1500) + 0.1);
        assert!(mean.of(rate, 5.0, 1.0, 1500) < mean.of(rate, 5.0, none, 1500) - 0.1);
        assert!(mean.of(rate, -100.0, 1.0, 1500) > 0.999);
    }
}
