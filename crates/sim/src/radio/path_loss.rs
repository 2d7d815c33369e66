//! Path loss at 5.9 GHz. Formulas and sources: `docs/design/radio.md`.

use libm::log10;
use serde::Deserialize;

/// Carrier frequency of ITS-G5, in GHz.
const GHZ: f64 = 5.9;
/// Logarithm of the carrier frequency in GHz.
const LOG10_GHZ: f64 = 0.7708520116421442;
/// Speed of light, in m/s.
const LIGHT_M_S: f64 = 299_792_458.0;
/// Minimum distance of the formulas, in m; the loss is constant below it.
const MIN_DISTANCE_M: f64 = 1.0;

/// A path-loss model, with its shadowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathLoss {
    /// 3GPP TR 37.885, highway, line of sight.
    HighwayLos,
    /// 3GPP TR 37.885, urban, line of sight.
    UrbanLos,
    /// 3GPP TR 37.885, urban, no line of sight.
    UrbanNlos,
    /// A grid city: [`UrbanLos`](PathLoss::UrbanLos) along the two streets of the
    /// RSU, [`UrbanNlos`](PathLoss::UrbanNlos) elsewhere (TR 37.885 §6.2.1).
    /// Streets run along x and y.
    Manhattan,
    /// WINNER+ B1, line of sight, with break point.
    #[serde(rename = "winner-b1")]
    WinnerB1,
    /// Cheng et al. 2007, suburban dual slope.
    Cheng,
}

/// Geometry of a radio path: ground distance and antenna heights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// Ground distance, in m.
    pub distance_m: f64,
    /// Distance of the vehicle from the nearer of the two lines along x and y
    /// through the RSU, in m.
    pub lateral_m: f64,
    /// Height of the vehicle's antenna, in m.
    pub vehicle_m: f64,
    /// Height of the RSU's antenna, in m.
    pub unit_m: f64,
}

impl PathLoss {
    /// Loss, in dB, without shadowing.
    pub fn loss_db(self, geometry: Geometry) -> f64 {
        let rise_m = geometry.unit_m - geometry.vehicle_m;
        let d = libm::hypot(geometry.distance_m, rise_m).max(MIN_DISTANCE_M);
        match self {
            PathLoss::Manhattan => along_street(geometry.lateral_m).loss_db(geometry),
            // TR 37.885 table 6.2.1-1
            PathLoss::HighwayLos => 32.4 + 20.0 * log10(d) + 20.0 * LOG10_GHZ,
            PathLoss::UrbanLos => 38.77 + 16.7 * log10(d) + 18.2 * LOG10_GHZ,
            PathLoss::UrbanNlos => 36.85 + 30.0 * log10(d) + 18.9 * LOG10_GHZ,
            PathLoss::WinnerB1 => winner_b1(d, geometry),
            PathLoss::Cheng => cheng(d),
        }
    }

    /// Standard deviation of shadowing at `distance_m`, in dB.
    pub fn shadowing_db(self, distance_m: f64) -> f64 {
        match self {
            PathLoss::HighwayLos | PathLoss::UrbanLos | PathLoss::WinnerB1 | PathLoss::Manhattan => 3.0,
            PathLoss::UrbanNlos => 4.0,
            PathLoss::Cheng if distance_m < CHENG_BREAK_M => 5.6,
            PathLoss::Cheng => 8.1,
        }
    }

    /// Decorrelation distance of shadowing (to 1/e), in m.
    pub fn decorrelation_m(self) -> f64 {
        match self {
            PathLoss::UrbanNlos => 13.0,
            _ => 10.0,
        }
    }
}

/// Half the distance between the buildings of a street, in m: two lanes of 3.5 m
/// per direction and pavements of 3 m (TR 37.885 §6.1.9).
const HALF_STREET_M: f64 = 10.0;

fn along_street(lateral_m: f64) -> PathLoss {
    if lateral_m <= HALF_STREET_M { PathLoss::UrbanLos } else { PathLoss::UrbanNlos }
}

/// TR 36.885 table A.1.4-1, with effective heights one metre lower.
fn winner_b1(d: f64, geometry: Geometry) -> f64 {
    let effective = |height_m: f64| (height_m - 1.0).max(0.1);
    let (vehicle, unit) = (effective(geometry.vehicle_m), effective(geometry.unit_m));
    let break_m = 4.0 * vehicle * unit * GHZ * 1e9 / LIGHT_M_S;
    if d < break_m {
        return 22.7 * log10(d) + 27.0 + 20.0 * LOG10_GHZ;
    }
    let heights = 17.3 * (log10(vehicle) + log10(unit));
    40.0 * log10(d) + 9.45 - heights + 2.7 * log10(GHZ / 5.0)
}

const CHENG_BREAK_M: f64 = 100.0;

/// Free-space loss up to 100 m, then the fourth power of the distance.
fn cheng(d: f64) -> f64 {
    if d <= CHENG_BREAK_M {
        return 32.4 + 20.0 * log10(d) + 20.0 * LOG10_GHZ;
    }
    // The logarithm of the break-point distance is 2.
    32.4 + 20.0 * 2.0 + 20.0 * LOG10_GHZ + 40.0 * log10(d / CHENG_BREAK_M)
}

#[cfg(test)]
mod tests {
    use super::*;
    use PathLoss::{Cheng, HighwayLos, Manhattan, UrbanLos, UrbanNlos, WinnerB1};

    const ALL: [PathLoss; 6] = [HighwayLos, UrbanLos, UrbanNlos, Manhattan, WinnerB1, Cheng];

    /// Antennas of equal height, so the distance equals that of the formulas.
    fn level(distance_m: f64) -> Geometry {
        Geometry { distance_m, lateral_m: 0.0, vehicle_m: 1.5, unit_m: 1.5 }
    }

    /// Distance at which the mean signal at 23 dBm falls to `dbm`.
    fn range_m(model: PathLoss, dbm: f64) -> f64 {
        let (mut near, mut far) = (1.0, 1e5);
        for _ in 0..80 {
            let middle = (near + far) / 2.0;
            if 23.0 - model.loss_db(level(middle)) > dbm {
                near = middle;
            } else {
                far = middle;
            }
        }
        near
    }

    #[test]
    fn ranges_are_those_of_the_published_models() {
        // Noise −97 dBm and the SNR for PER 10 %: 7.0, 13.5, 22.6 dB.
        let golden =
            [(HighwayLos, [1817.0, 860.0, 302.0]), (UrbanNlos, [113.0, 69.0, 35.0]), (Cheng, [426.0, 293.0, 174.0])];
        for (model, ranges) in golden {
            for (snr_db, expected) in [7.0, 13.5, 22.6].into_iter().zip(ranges) {
                let range = range_m(model, -97.0 + snr_db);
                assert!((range - expected).abs() < 0.01 * expected + 0.6, "{model:?}: {range:.0} m");
            }
        }
        let crossings = [(HighwayLos, 723.0), (UrbanLos, 1336.0), (UrbanNlos, 61.3), (Cheng, 268.0)];
        for (model, expected) in crossings {
            let crossing = range_m(model, -82.0);
            assert!((crossing / expected - 1.0).abs() < 0.006, "{model:?}: {crossing:.1} m");
        }
    }

    #[test]
    fn in_a_grid_city_the_loss_rises_at_the_corner() {
        let at = |lateral_m| Geometry { lateral_m, ..level(120.0) };
        assert_eq!(Manhattan.loss_db(at(9.0)), UrbanLos.loss_db(level(120.0)));
        assert_eq!(Manhattan.loss_db(at(11.0)), UrbanNlos.loss_db(level(120.0)));
        assert!(Manhattan.loss_db(at(11.0)) > Manhattan.loss_db(at(9.0)) + 20.0);
    }

    #[test]
    fn the_slopes_of_winner_b1_meet_at_its_break_point() {
        let at = |distance_m| {
            let geometry = Geometry { distance_m, lateral_m: 0.0, vehicle_m: 1.5, unit_m: 1.5 };
            WinnerB1.loss_db(geometry)
        };
        let break_m = 4.0 * 0.25 * GHZ * 1e9 / LIGHT_M_S;
        let step = at(break_m * 1.0001) - at(break_m * 0.9999);
        assert!(step.abs() < 0.3, "a step of {step:.2} dB");
    }

    #[test]
    fn no_loss_decreases_with_distance_and_all_are_finite_at_the_antenna() {
        for model in ALL {
            let mut before = model.loss_db(level(0.0));
            assert!(before.is_finite());
            for metre in 1..3000 {
                let loss = model.loss_db(level(f64::from(metre)));
                assert!(loss >= before - 0.3, "{model:?} at {metre} m");
                before = loss;
            }
        }
    }

    #[test]
    fn the_logarithm_constants_are_correct() {
        assert_eq!(log10(GHZ), LOG10_GHZ);
        assert_eq!(log10(CHENG_BREAK_M), 2.0);
    }
}
