//! The gap of a cellular handover: for some tens of ms nothing passes, and the queue holds what comes.
//!
//! Distances between handovers, the time from the modem's measurement report to the network's command, and the
//! execution after it (signalling and random access) are those of A. Hassan et al., "Vivisecting Mobility
//! Management in 5G Cellular Networks", SIGCOMM 2022: quantiles over 43,856 handovers in the USA, between which
//! a draw is linear. A link draws its kinds of handover in proportion to their number.

use crate::rng::Rng;
use crate::time::{Duration, Instant};

/// A network of the source, by its architecture and band.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CellularNetwork {
    /// 4G, middle bands; distances as of 5G with a 4G anchor in the middle bands.
    Lte,
    /// 5G with a 4G anchor (NSA), low bands.
    NsaLow,
    /// 5G with a 4G anchor (NSA), middle bands.
    NsaMid,
    /// 5G alone (SA), low bands.
    SaLow,
}

impl CellularNetwork {
    /// All networks, with their names in scenario files.
    pub const ALL: [(&'static str, CellularNetwork); 4] = [
        ("lte", CellularNetwork::Lte),
        ("nsa-low", CellularNetwork::NsaLow),
        ("nsa-mid", CellularNetwork::NsaMid),
        ("sa-low", CellularNetwork::SaLow),
    ];

    /// Metres between handovers (figure 11 of the source).
    fn metres(self) -> &'static Quantiles {
        match self {
            CellularNetwork::NsaLow => &[228.0, 338.0, 533.0, 1007.0, 1460.0, 1771.0, 1966.0],
            CellularNetwork::Lte | CellularNetwork::NsaMid => &[236.0, 318.0, 492.0, 947.0, 1341.0, 1535.0, 1950.0],
            CellularNetwork::SaLow => &[459.0, 747.0, 1269.0, 2310.0, 3245.0, 3632.0, 3932.0],
        }
    }

    fn kinds(self) -> &'static [Kind] {
        match self {
            CellularNetwork::Lte => &LTE,
            CellularNetwork::NsaLow => &NSA_LOW,
            CellularNetwork::NsaMid => &NSA_MID,
            CellularNetwork::SaLow => &SA_LOW,
        }
    }
}

/// Quantiles of [`PROBABILITIES`].
type Quantiles = [f64; 7];
const PROBABILITIES: Quantiles = [0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99];

/// A kind of handover: how many the source has, the preparation, and the execution, both in ms. A preparation
/// above [`MAX_PREPARATION_MS`] belongs to an earlier report than the one obeyed.
struct Kind(u32, Quantiles, Quantiles);

const NONE: f64 = f64::INFINITY;
/// Longest preparation that is drawn, in ms.
const MAX_PREPARATION_MS: f64 = 250.0;
/// Probability that no measurement report precedes a handover.
const UNREPORTED: f64 = 0.09;

const LTE: [Kind; 1] =
    [Kind(4854, [28.0, 43.0, 52.0, 70.0, 94.0, 128.0, 596.0], [27.0, 31.0, 35.0, 40.0, 48.0, 61.0, 95.0])];

/// Master eNB changes, and NR released, which needs no random access: of all bands.
const MASTER: Kind =
    Kind(1805, [48.0, 68.0, 89.0, 365.0, NONE, NONE, NONE], [26.0, 30.0, 33.0, 37.0, 43.0, 53.0, 71.0]);
const RELEASED: Kind =
    Kind(6483, [35.0, 48.0, 60.0, 89.0, 985.0, NONE, NONE], [32.0, 38.0, 43.0, 51.0, 62.0, 72.0, 84.0]);

/// LTE anchor changes, NR added, NR changed, and those of all bands.
const NSA_LOW: [Kind; 5] = [
    Kind(9746, [33.0, 54.0, 69.0, 101.0, 376.0, NONE, NONE], [28.0, 36.0, 50.0, 57.0, 65.0, 69.0, 79.0]),
    Kind(5559, [41.0, 52.0, 67.0, 87.0, 183.0, 250.0, 513.0], [24.0, 29.0, 37.0, 52.0, 59.0, 62.0, 73.0]),
    Kind(3534, [29.0, 43.0, 57.0, 75.0, 92.0, 104.0, 220.0], [26.0, 29.0, 33.0, 39.0, 45.0, 51.0, 59.0]),
    MASTER,
    RELEASED,
];
const NSA_MID: [Kind; 5] = [
    Kind(2522, [35.0, 51.0, 62.0, 77.0, 137.0, 208.0, NONE], [29.0, 48.0, 53.0, 57.0, 61.0, 63.0, 69.0]),
    Kind(2490, [1.0, 40.0, 42.0, 61.0, 88.0, 208.0, 364.0], [24.0, 36.0, 52.0, 56.0, 60.0, 64.0, 74.0]),
    Kind(1263, [27.0, 43.0, 52.0, 63.0, 73.0, 91.0, 438.0], [24.0, 29.0, 34.0, 40.0, 44.0, 46.0, 50.0]),
    MASTER,
    RELEASED,
];
const SA_LOW: [Kind; 1] =
    [Kind(461, [21.0, 32.0, 45.0, 104.0, 128.0, 157.0, 391.0], [61.0, 64.0, 66.0, 68.0, 69.0, 70.0, 74.0])];

/// A handover.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Handover {
    /// When the modem reports the measurement that leads to it; none: without a report.
    pub reported: Option<Instant>,
    /// When the network commands it: from then on nothing passes.
    pub begins: Instant,
    /// When packets pass again.
    pub ends: Instant,
}

/// The handovers of a link of a moving vehicle.
#[derive(Clone, Debug)]
pub struct Handovers {
    network: CellularNetwork,
    /// Metres travelled at the next handover's report.
    next_m: f64,
    last: Option<Handover>,
    rng: Rng,
}

impl Handovers {
    /// The handovers of the link `name` in the run with this seed; the first comes at a random part of a distance.
    pub fn new(seed: u64, name: &str, network: CellularNetwork) -> Handovers {
        let mut rng = Rng::new(seed, &alloc::format!("handovers {name}"));
        let next_m = rng.uniform() * draw(&mut rng, network.metres(), f64::MAX);
        Handovers { network, next_m, last: None, rng }
    }

    /// The last handover of a vehicle that has travelled so far, in m, at `now`; neither ever decreases.
    pub fn at(&mut self, now: Instant, travelled_m: f64) -> Option<Handover> {
        let is_over = self.last.is_none_or(|last| last.ends <= now);
        if is_over && travelled_m >= self.next_m {
            self.next_m = travelled_m + draw(&mut self.rng, self.network.metres(), f64::MAX);
            self.last = Some(self.draw(now));
        }
        self.last
    }

    fn draw(&mut self, now: Instant) -> Handover {
        let kinds = self.network.kinds();
        let mut place = self.rng.below(kinds.iter().map(|kind| kind.0).sum());
        let mut chosen = &kinds[0];
        for kind in kinds {
            chosen = kind;
            if place < kind.0 {
                break;
            }
            place -= kind.0;
        }
        let is_reported = !self.rng.chance(UNREPORTED);
        let preparation_ms = draw(&mut self.rng, &chosen.1, MAX_PREPARATION_MS);
        let execution_ms = draw(&mut self.rng, &chosen.2, f64::MAX);
        let begins = now + millis(preparation_ms);
        Handover { reported: is_reported.then_some(now), begins, ends: begins + millis(execution_ms) }
    }
}

impl Handover {
    /// Whether the modem has reported it, and it is not over.
    pub fn is_announced(&self, now: Instant) -> bool {
        self.reported.is_some_and(|reported| (reported..self.ends).contains(&now))
    }

    /// Whether nothing passes at `now`.
    pub fn is_gap(&self, now: Instant) -> bool {
        (self.begins..self.ends).contains(&now)
    }
}

/// A draw from the part of a distribution up to `most`, linear between its quantiles and constant outside them.
fn draw(rng: &mut Rng, quantiles: &Quantiles, most: f64) -> f64 {
    let known = quantiles.iter().filter(|value| **value <= most).count();
    let top = PROBABILITIES[known - 1];
    let share = rng.uniform() * if known == quantiles.len() { 1.0 } else { top };
    let above = PROBABILITIES[..known].iter().position(|probability| *probability >= share);
    match above {
        None => quantiles[known - 1],
        Some(0) => quantiles[0],
        Some(place) => {
            let (low, high) = (PROBABILITIES[place - 1], PROBABILITIES[place]);
            quantiles[place - 1] + (quantiles[place] - quantiles[place - 1]) * (share - low) / (high - low)
        }
    }
}

fn millis(ms: f64) -> Duration {
    Duration::from_nanos((ms * 1e6) as u64)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Handovers of a vehicle at 30 m/s in 20 hours, asked every 10 ms.
    fn handovers(network: CellularNetwork) -> Vec<Handover> {
        let mut all = Handovers::new(5, "lte", network);
        let mut found: Vec<Handover> = Vec::new();
        for tick in 0..7_200_000_u64 {
            let last = all.at(Instant::from_millis(tick * 10), tick as f64 * 0.3);
            found.extend(last.filter(|last| found.last() != Some(last)));
        }
        found
    }

    fn quantile(mut values: Vec<f64>, probability: f64) -> f64 {
        values.sort_by(f64::total_cmp);
        values[(probability * values.len() as f64) as usize]
    }

    fn execution_ms(handover: &Handover) -> f64 {
        handover.ends.since(handover.begins).as_secs_f64() * 1000.0
    }

    #[test]
    fn gaps_and_distances_have_the_published_quantiles() {
        // A minute at 30 m/s, by the source: 2.5 (mean of 707 m), 2.8 (649 m), 1.1 (1588 m). The gaps are
        // those of the kinds mixed in proportion to their number.
        let published = [
            (CellularNetwork::Lte, 2.8, [31.0, 35.0, 48.0]),
            (CellularNetwork::NsaLow, 2.5, [33.0, 41.0, 62.0]),
            (CellularNetwork::NsaMid, 2.8, [35.0, 43.0, 60.0]),
            (CellularNetwork::SaLow, 1.1, [64.0, 66.0, 69.0]),
        ];
        for (network, a_minute, gaps_ms) in published {
            let found = handovers(network);
            let rate = found.len() as f64 / 1200.0;
            assert!((rate / a_minute - 1.0).abs() < 0.12, "{network:?}: {rate} a minute");
            for (probability, expected) in [0.25, 0.5, 0.9].into_iter().zip(gaps_ms) {
                let ms = quantile(found.iter().map(execution_ms).collect(), probability);
                assert!((ms - expected).abs() <= 2.5, "{network:?}: {ms} ms at {probability}, not {expected}");
            }
        }
    }

    #[test]
    fn most_handovers_are_reported_at_least_30_ms_before_the_gap_and_some_not_at_all() {
        let found = handovers(CellularNetwork::NsaLow);
        let unreported = found.iter().filter(|handover| handover.reported.is_none()).count() as f64;
        assert!((0.07..0.11).contains(&(unreported / found.len() as f64)));
        let lead_ms = |handover: &Handover| {
            handover.reported.map(|reported| handover.begins.since(reported).as_secs_f64() * 1000.0)
        };
        let leads: Vec<f64> = found.iter().filter_map(lead_ms).collect();
        assert!(leads.iter().all(|ms| *ms <= MAX_PREPARATION_MS));
        let early = leads.iter().filter(|ms| **ms >= 30.0).count() as f64 / leads.len() as f64;
        assert!((0.9..=1.0).contains(&early), "{early}");
    }

    #[test]
    fn a_vehicle_at_rest_has_no_handover() {
        let mut all = Handovers::new(5, "lte", CellularNetwork::Lte);
        assert_eq!(all.at(Instant::from_millis(3_600_000), 0.0), None);
    }
}
