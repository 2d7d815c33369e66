//! What a scenario promises: crossings of a threshold and bounds on metrics.

use serde::Deserialize;

/// What must come out.
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
    /// Which way the signal goes.
    pub direction: CrossingDirection,
    /// First and last moment allowed, in s.
    pub between_s: [f64; 2],
}

/// Which way a signal crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CrossingDirection {
    /// It falls below.
    Below,
    /// It rises above.
    Above,
}

/// A bound on a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Strategy whose metric it is.
    pub strategy: String,
    /// Name of the metric.
    pub metric: String,
    /// True if the metric must not exceed the limit, false if not fall short.
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
