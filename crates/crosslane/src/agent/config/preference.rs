//! Which path the user prefers: `prefer`, and prices.

use crosslane_core::agent::MAX_PATHS;

use super::checks::Complaint;
use super::{Config, UNITS};

/// Maximum price of 10⁹ bytes, as in scenarios.
const MAX_COST_PER_GB: f64 = 1e6;

/// Either every path has a price or none, and a preferred path costs no more than the next.
pub(super) fn check(config: &Config) -> Result<(), Complaint> {
    let service = &config.service;
    let names = config.names();
    let Some((_, first)) = service.cost_per_gb.iter().next() else { return Ok(()) };
    for (name, cost) in &service.cost_per_gb {
        let (place, cost) = (cost.span().start, cost.get_ref());
        if !names.contains(&name.as_str()) {
            return Err((place, format!("`cost_per_gb` names {name:?}, which is no path"), "name paths of this file"));
        }
        if !(0.0..=MAX_COST_PER_GB).contains(cost) {
            return Err((place, format!("{cost} per GB is outside 0 to {MAX_COST_PER_GB}"), "choose a price inside"));
        }
    }
    let place = first.span().start;
    if let Some(path) = names.iter().find(|name| !service.cost_per_gb.contains_key(**name)) {
        let cause = format!("path {path:?} has no price, but others have");
        return Err((place, cause, "give a price to every path or to none"));
    }
    let order = config.by_preference();
    if let Some(pair) = order.windows(2).find(|pair| config.price(pair[0]) > config.price(pair[1])) {
        let named = service.prefer.iter().find(|name| name.get_ref() == pair[0]);
        let place = named.map_or(place, |name| name.span().start);
        let cause = format!("{:?} is preferred to {:?} and costs more", pair[0], pair[1]);
        return Err((place, cause, "name the cheaper path first"));
    }
    Ok(())
}

impl Config {
    /// The names of the paths, and that of the roadside units after them.
    fn names(&self) -> Vec<&str> {
        let units = self.roadside.iter().map(|_| UNITS);
        self.paths.iter().map(|path| path.get_ref().name.as_str()).chain(units).collect()
    }

    /// The names by preference.
    fn by_preference(&self) -> Vec<&str> {
        let mut names = self.names();
        names.sort_by_key(|name| self.rank(name));
        names
    }

    /// Price of a byte over a path; 0 without prices.
    fn price(&self, name: &str) -> f64 {
        self.service.cost_per_gb.get(name).map_or(0.0, |cost| *cost.get_ref()) / 1e9
    }

    /// Whether a path costs something.
    pub(super) fn is_priced(&self, name: &str) -> bool {
        self.price(name) > 0.0
    }

    /// Its place in the user's preference; those not named follow by price, and of one price in the order of the file.
    fn rank(&self, name: &str) -> u8 {
        let named = self.service.prefer.iter().position(|other| other.get_ref() == name);
        let mut by_price = self.names();
        by_price.sort_by(|one, other| self.price(one).total_cmp(&self.price(other)));
        let place = || by_price.iter().position(|other| *other == name).unwrap_or(by_price.len());
        named.unwrap_or_else(|| self.service.prefer.len() + place()) as u8
    }

    /// Rank of each path in the user's preference, 0 first.
    pub fn ranks(&self) -> Vec<u8> {
        self.paths.iter().map(|path| self.rank(&path.get_ref().name)).collect()
    }

    /// Rank of the roadside units: their place in the user's preference.
    pub fn unit_rank(&self) -> u8 {
        self.rank(UNITS)
    }

    /// Price of a byte over each path, none without prices; every further path is one to a roadside unit.
    pub fn prices(&self) -> Vec<f64> {
        if self.service.cost_per_gb.is_empty() {
            return Vec::new();
        }
        let mut prices: Vec<f64> = self.paths.iter().map(|path| self.price(&path.get_ref().name)).collect();
        if self.roadside.is_some() {
            prices.resize(MAX_PATHS, self.price(UNITS));
        }
        prices
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, parse};

    const DEADLINE: &str = "[[path]]\nname = \"its-g5\"\nrat = \"80211p\"\n[[path]]\nname = \"lte\"\nrat = \"lte\"\n\
        [strategy]\nname = \"deadline\"\n[service]\ndemands = \"@x\"\n";

    fn config(text: &str) -> Config {
        parse(text).unwrap_or_else(|fault| panic!("line {}: {}", fault.line, fault.cause))
    }

    #[test]
    fn prices_are_in_the_order_of_the_paths_and_default_to_the_preference() {
        let of = |keys: &str| config(&format!("{DEADLINE}{keys}"));
        let priced = of("cost_per_gb = { lte = 1, its-g5 = 2.5 }");
        assert_eq!(priced.prices(), [2.5e-9, 1e-9]);
        let without = of("prefer = [\"lte\"]");
        assert_eq!((without.ranks(), without.prices()), (vec![1, 0], vec![]));
    }

    #[test]
    fn paths_that_are_not_named_are_preferred_by_price() {
        let text = DEADLINE.replace("demands = \"@x\"\n", "").replace("\"deadline\"", "\"adaptive\"")
            + "# more\n[[path]]\nname = \"wifi\"\nrat = \"wifi\"\n";
        let ranks = |keys: &str| config(&text.replace("# more", keys)).ranks();
        assert_eq!(ranks(""), [0, 1, 2]);
        assert_eq!(ranks("cost_per_gb = { its-g5 = 1, lte = 5, wifi = 0 }"), [1, 2, 0]);
        assert_eq!(ranks("cost_per_gb = { its-g5 = 1, lte = 0, wifi = 0 }"), [2, 0, 1], "of one price: as in the file");
        assert_eq!(ranks("cost_per_gb = { its-g5 = 1, lte = 0, wifi = 0 }\nprefer = [\"wifi\"]"), [3, 1, 0]);
    }
}
