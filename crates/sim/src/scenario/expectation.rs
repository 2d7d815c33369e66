//! Expectations of a scenario: threshold crossings and bounds on metrics.

use serde::{Deserialize, Serialize};

use super::source_map::did_you_mean;
use super::{Scenario, ScenarioError};

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

impl Scenario {
    /// Checks the metrics of the expectations against all that there are, by their names, in
    /// which `NAME` stands for each path.
    ///
    /// # Errors
    /// Names the first that does not exist, or whose path does not.
    pub fn check_metrics(&self, known: impl Iterator<Item = &'static str> + Clone) -> Result<(), ScenarioError> {
        for (place, expectation) in self.expectations.iter().enumerate() {
            let Expectation::Bound(bound) = expectation else { continue };
            let key = format!("expect.{place}.metric");
            match known.clone().find_map(|name| matches_metric(name, &bound.metric)) {
                Some(Some(path)) => self.known_path(path, &key)?,
                Some(None) => {}
                None => {
                    let what = format!("there is no metric `{}`", bound.metric);
                    return Err(self.lines.error(&key, what, did_you_mean(&bound.metric, known)));
                }
            }
        }
        Ok(())
    }
}

/// Whether `name` is the metric `known`; the path in it, if `known` has one.
fn matches_metric<'a>(known: &str, name: &'a str) -> Option<Option<&'a str>> {
    match known.split_once("NAME") {
        None => (known == name).then_some(None),
        Some((before, after)) => name.strip_prefix(before)?.strip_suffix(after).map(Some),
    }
}
