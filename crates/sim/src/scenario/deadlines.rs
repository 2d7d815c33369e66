//! The price of each path, and traffic with deadlines.

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
        self.prices().unwrap_or_else(|| self.ranks().into_iter().map(f64::from).collect())
    }

    /// Price of a byte over each path, in order of the paths; `None` without prices.
    pub fn prices(&self) -> Option<Vec<f64>> {
        let costs = &self.service.cost_per_gb;
        let price = |name: &str| costs.get(name).copied().unwrap_or(0.0) / 1e9;
        (!costs.is_empty()).then(|| self.paths().iter().map(|path| price(path.name)).collect())
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
        let mut paths = self.paths();
        if let Some(path) = paths.iter().find(|path| !costs.contains_key(path.name)) {
            let what = format!("path `{}` has no price, but other paths have one", path.name);
            return Err(self.lines.error("service.cost_per_gb", what, "give all paths a price, or none"));
        }
        if let Some(radio) = self.radios.iter().find(|radio| radio.slots.is_some() || radio.tunnel.is_some()) {
            let what = format!("paths have a price, but those of radio `{}` come and go", radio.name);
            return Err(self.lines.error("service.cost_per_gb", what, "leave it out, or `slots` and `tunnel`"));
        }
        let ranks = self.ranks();
        paths.sort_by_key(|path| ranks[usize::from(path.id.0)]);
        for pair in paths.windows(2) {
            let what = format!("`{}` is preferred to `{}` and costs more", pair[0].name, pair[1].name);
            let ok = costs.get(pair[0].name) <= costs.get(pair[1].name);
            self.lines.require(ok, "service.prefer", what, "name the cheaper path first")?;
        }
        Ok(())
    }
}
