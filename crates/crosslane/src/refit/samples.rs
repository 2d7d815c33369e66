//! What a tree is fitted to: the features of each row, which path was to be first, and how much is at stake.

use crosslane_core::allocate::learned::Pairs;
use crosslane_core::allocate::learned::features::{Feature, Values};

use crate::trials::Row;

/// Quantities that a tree may ask for: those of `crosslane-lab learn train`.
const QUANTITIES: [&str; 6] = ["signal_dbm", "sinr_db", "rtt_ms", "cwnd", "loss", "delivery_mbit_s"];
/// A feature that is known in a smaller part of the rows is not asked for; rows without another one are left out.
const LEAST_KNOWN: f64 = 0.9;

/// A row that has a label.
#[derive(Clone, Copy, Debug)]
pub struct Labelled {
    /// Its number.
    pub number: u64,
    /// The values of the paths `a` and `b`.
    pub values: [Values; 2],
    /// Whether `a` is first in the user's order.
    pub is_a_preferred: bool,
    /// Whether `a` was to be first.
    pub a_first: bool,
    /// What is at stake.
    pub stake: f32,
}

impl Labelled {
    /// The row, if either order was better.
    pub fn of(row: &Row) -> Option<Labelled> {
        let label = row.trial.label()?;
        let (values, is_a_preferred) = (row.trial.values, row.trial.is_a_preferred);
        Some(Labelled { number: row.number, values, is_a_preferred, a_first: label.a_first, stake: label.stake })
    }
}

/// A sample: its features in 32 bits, as a tree compares them.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The features.
    pub features: Vec<f32>,
    /// Whether `a` was to be first.
    pub a_first: bool,
    /// Its weight.
    pub weight: f32,
}

/// The features that a tree may ask for: those that are known in these rows.
pub fn features(pairs: Pairs, rows: &[Labelled]) -> Vec<Feature> {
    let of: &[&str] = match pairs {
        Pairs::WifiAndCellular => &["a", "b"],
        Pairs::Any => &["a-b"],
    };
    let named =
        of.iter().flat_map(|of| QUANTITIES.iter().filter_map(move |name| Feature::find(&format!("{of}.{name}"))));
    let is_known = |feature: &Feature| {
        let known = rows.iter().filter(|row| !feature.value(&row.values[0], &row.values[1]).is_nan());
        known.count() as f64 >= LEAST_KNOWN * rows.len() as f64
    };
    named.filter(is_known).collect()
}

/// The samples of rows in which all features are known. Of any two paths each may be `a`, so that there are two of a row.
pub fn samples(pairs: Pairs, features: &[Feature], rows: &[Labelled]) -> Vec<Sample> {
    let sample = |[a, b]: [&Values; 2], a_first, weight| {
        let features: Vec<f32> = features.iter().map(|feature| feature.value(a, b)).collect();
        features.iter().all(|value| !value.is_nan()).then_some(Sample { features, a_first, weight })
    };
    let both = |row: &Labelled| {
        let [a, b] = &row.values;
        let swapped = (pairs == Pairs::Any).then(|| sample([b, a], !row.a_first, row.stake)).flatten();
        sample([a, b], row.a_first, row.stake).into_iter().chain(swapped)
    };
    rows.iter().flat_map(both).collect()
}
