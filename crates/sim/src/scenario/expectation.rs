//! Expectations of a scenario: threshold crossings and bounds on metrics.

use serde::{Deserialize, Serialize};

/// An expectation.
#[derive(Clone, Debug, PartialEq)]
pub enum Expectation {
    /// The mean signal of a path crosses a threshold.
    Crossing(Crossing),
    /// A metric stays within a bound.
    Bound(Bound),
}

/// A crossing of a threshold by the mean signal.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossing {
    /// Name of the path.
    pub path: String,
    /// Threshold, in dBm.
    pub threshold_dbm: f64,
    /// Direction of the crossing.
    pub direction: CrossingDirection,
    /// Earliest and latest time allowed, in s.
    pub between_s: [f64; 2],
}

/// Direction of a crossing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CrossingDirection {
    /// The signal falls below the threshold.
    Below,
    /// The signal rises above the threshold.
    Above,
}

/// A bound on a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Strategy of the run.
    pub strategy: String,
    /// Name of the metric.
    pub metric: String,
    /// True: the limit is an upper bound; false: a lower bound.
    pub at_most: bool,
    /// The limit.
    pub limit: Limit,
}

/// Limit of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Limit {
    /// A number, in the metric's unit.
    Number(f64),
    /// The same metric of another strategy, times a factor.
    Of {
        /// The other strategy.
        strategy: String,
        /// The factor.
        times: f64,
    },
}
