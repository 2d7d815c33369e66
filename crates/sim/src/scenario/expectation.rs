//! Expectations of a scenario: threshold crossings and bounds on metrics.

use serde::{Deserialize, Serialize, Serializer};

use super::{Scenario, ScenarioError};
use crate::input::toml_fault::did_you_mean;

/// An expectation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Expectation {
    /// The mean signal of a path crosses a threshold.
    Crossing(Crossing),
    /// A metric stays within a bound.
    Bound(Bound),
}

/// A crossing of a threshold by the mean signal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crossing {
    /// Name of the path.
    #[serde(rename = "crossing")]
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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Strategy of the run.
    pub strategy: String,
    /// Name of the metric.
    pub metric: String,
    /// True: the limit is an upper bound; false: a lower bound.
    #[serde(rename = "bound", serialize_with = "bound_word")]
    pub at_most: bool,
    /// The limit, in the metric's unit; with `of_strategy`, a factor.
    pub limit: f64,
    /// The strategy whose value of the metric, times `limit`, is the limit.
    pub of_strategy: Option<String>,
}

fn bound_word<S: Serializer>(at_most: &bool, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(if *at_most { "at_most" } else { "at_least" })
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
