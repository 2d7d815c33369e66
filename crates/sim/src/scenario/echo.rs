//! Echo requests of our own over paths that carry nothing.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crosslane_core::echo::{DEFAULT_PERIOD, METERED_FACTOR};
use serde::{Deserialize, Serialize, Serializer};

use super::{Scenario, ScenarioError};

/// Valid periods, in ms. Below, the requests and answers would take more than 10 MB an hour.
const PERIODS_MS: RangeInclusive<i64> = 20..=60_000;
/// What to write.
const REMEDY: &str = "give 20 to 60000 ms, or \"off\" for no echo requests";

/// The period of the echo requests over a path, if there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct EchoPeriod(Option<u32>);

impl EchoPeriod {
    /// The period; `None`: no requests.
    pub fn duration(self) -> Option<Duration> {
        self.0.map(|ms| Duration::from_millis(ms.into()))
    }

    /// The period over a path with a price or a data volume, if this is that of the others.
    #[must_use]
    pub fn metered(self) -> EchoPeriod {
        EchoPeriod(self.0.map(|ms| ms * METERED_FACTOR))
    }
}

impl Default for EchoPeriod {
    fn default() -> EchoPeriod {
        EchoPeriod(Some(DEFAULT_PERIOD.as_millis() as u32))
    }
}

impl TryFrom<toml::Value> for EchoPeriod {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<EchoPeriod, String> {
        match value {
            toml::Value::Integer(ms) if PERIODS_MS.contains(&ms) => Ok(EchoPeriod(Some(ms as u32))),
            toml::Value::String(word) if word == "off" => Ok(EchoPeriod(None)),
            other => Err(format!("the period of echo requests is {other}; {REMEDY}")),
        }
    }
}

impl Serialize for EchoPeriod {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(ms) => to.serialize_u32(ms),
            None => to.serialize_str("off"),
        }
    }
}

/// The table `[echo]`: strategies that use them send echo requests to the server.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Echo {
    /// Over every path.
    pub period_ms: EchoPeriod,
    /// Over these paths instead.
    pub paths: BTreeMap<String, EchoPeriod>,
}

impl Scenario {
    /// The period of the echo requests over each path, in the order of the paths; `None`: none over it. Paths that
    /// share a radio have none unless they are named: frames to a station that is gone hold up those to the others.
    /// Roadside units in slots are probed in another way.
    pub fn echo_periods(&self) -> Vec<Option<Duration>> {
        let Some(echo) = &self.echo else { return vec![None; self.paths().len()] };
        let links = self.links();
        let is_priced = |name: &str| self.service.cost_per_gb.get(name).is_some_and(|cost| *cost > 0.0);
        let period = |path: super::PathEntry<'_>| {
            let place = usize::from(path.id.0);
            let link = links.iter().find(|link| link.paths.contains(&place));
            match echo.paths.get(path.name) {
                _ if link.is_some_and(|link| link.slots.is_some()) => None,
                Some(period) => period.duration(),
                None if link.is_some_and(|link| link.is_shared_by(place)) => None,
                None if is_priced(path.name) => echo.period_ms.metered().duration(),
                None => echo.period_ms.duration(),
            }
        };
        self.paths().into_iter().map(period).collect()
    }

    pub(super) fn check_echo(&self) -> Result<(), ScenarioError> {
        let names = self.echo.iter().flat_map(|echo| echo.paths.keys());
        names.into_iter().try_for_each(|name| self.known_path(name, &format!("echo.paths.{name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = "name = \"x\"\nduration_s = 10\n[vehicle]\nroute = { from_m = [0, 0], to_m = [10, 0], speed_kmh = 30 }\n\
        [[cellular]]\nname = \"a\"\nrat = \"lte\"\nrate_mbit_s = 20\ndelay_ms = 20\n\
        [[cellular]]\nname = \"b\"\nrat = \"nr\"\nrate_mbit_s = 20\ndelay_ms = 20\n\
        [traffic]\nkind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20\n";

    fn periods(keys: &str) -> Vec<Option<u128>> {
        let scenario =
            Scenario::parse(&format!("{SCENARIO}{keys}"), "x.toml").unwrap_or_else(|fault| panic!("{fault}"));
        scenario.echo_periods().into_iter().map(|period| Some(period?.as_millis())).collect()
    }

    #[test]
    fn the_period_of_each_path_is_that_of_all_or_its_own() {
        assert_eq!(periods(""), [None, None]);
        assert_eq!(periods("[echo]\n"), [Some(200), Some(200)]);
        assert_eq!(periods("[echo]\nperiod_ms = 50\npaths = { b = \"off\" }"), [Some(50), None]);
        assert_eq!(periods("[echo]\nperiod_ms = \"off\"\npaths = { b = 1000 }"), [None, Some(1000)]);
    }

    #[test]
    fn a_path_with_a_price_has_a_period_ten_times_as_long() {
        let keys = "[service]\nprefer = [\"a\", \"b\"]\ncost_per_gb = { a = 0, b = 3 }\n[echo]\n";
        let text = format!("{SCENARIO}{keys}").replace(
            "kind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20",
            "kind = \"deadline\"\nobject_bytes = 50000\nperiod_s = 2\ndeadline_s = 1",
        );
        let scenario = Scenario::parse(&text, "x.toml").unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(scenario.echo_periods(), [200, 2000].map(|ms| Some(Duration::from_millis(ms))));
    }

    #[test]
    fn a_bad_period_or_path_is_one_sentence() {
        for (keys, what) in [
            ("period_ms = 0", "period of echo requests is 0"),
            ("period_ms = 19", "is 19"),
            ("period_ms = 60001", "60001"),
            ("period_ms = \"never\"", "never"),
            ("paths = { a = 10 }", "is 10"),
            ("paths = { c = 100 }", "there is no path `c`"),
            ("address = \"10.0.0.1\"", "address"),
        ] {
            let fault = Scenario::parse(&format!("{SCENARIO}[echo]\n{keys}\n"), "x.toml").err();
            let sentence = fault.map(|fault| fault.to_string()).unwrap_or_default();
            assert!(sentence.contains(what) && !sentence.contains('\n'), "{keys}: {sentence}");
        }
    }
}
