//! Traffic with deadlines, and the price of each path.

use crosslane_core::time::Instant;

use super::{Scenario, ScenarioError};

/// Maximum price, per GB.
const MAX_COST_PER_GB: f64 = 1e6;

impl Scenario {
    /// Generation time of the first object, for traffic with deadlines. The
    /// connection starts then: a receiver counts the idle time before the first
    /// data as round-trip time, which would delay the growth of its window.
    pub fn first_object(&self, seed: u64) -> Option<Instant> {
        self.traffic.kind.deadlines()?.starts(self.traffic.span(), seed).next()
    }

    /// Price of a byte over each path, in order of the paths: the scenario's
    /// costs, or else the rank of each path in the user's preference.
    pub fn unit_costs(&self) -> Vec<f64> {
        let costs = &self.service.cost_per_gb;
        if costs.is_empty() {
            return self.ranks().into_iter().map(f64::from).collect();
        }
        self.paths().iter().map(|path| costs.get(path.name).copied().unwrap_or(0.0) / 1e9).collect()
    }

    /// Checks that all paths have a price or none has, and that preferred paths
    /// do not cost more.
    pub(super) fn check_costs(&self) -> Result<(), ScenarioError> {
        let costs = &self.service.cost_per_gb;
        for (name, cost) in costs {
            let key = format!("service.cost_per_gb.{name}");
            self.known_path(name, &key)?;
            let what = format!("{cost} per GB is outside 0 to {MAX_COST_PER_GB}");
            self.lines.require((0.0..=MAX_COST_PER_GB).contains(cost), &key, what, "choose a price in this range")?;
        }
        if costs.is_empty() {
            return Ok(());
        }
        let what = "paths have a price, but the traffic has no deadlines";
        let remedy = "make it traffic of kind `deadline`, or leave `cost_per_gb` out";
        self.lines.require(self.traffic.kind.deadlines().is_some(), "service.cost_per_gb", what, remedy)?;
        if let Some(path) = self.paths().iter().find(|path| !costs.contains_key(path.name)) {
            let what = format!("path `{}` has no price, but other paths have one", path.name);
            return Err(self.lines.error("service.cost_per_gb", what, "give all paths a price, or none"));
        }
        let price = |name: &String| costs.get(name).copied().unwrap_or(0.0);
        for pair in self.service.prefer.windows(2) {
            let what = format!("`{}` is preferred to `{}` and costs more", pair[0], pair[1]);
            let ok = price(&pair[0]) <= price(&pair[1]);
            self.lines.require(ok, "service.prefer", what, "name the cheaper path first")?;
        }
        Ok(())
    }
}
