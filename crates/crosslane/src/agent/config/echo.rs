//! The table `[echo]`: echo requests over paths that carry nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crosslane_sim::scenario::EchoPeriod;
use serde::Deserialize;
use toml::Spanned;

use super::checks::Complaint;
use super::{Config, PathConfig};

/// The table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EchoConfig {
    /// Where they go: an address that every path reaches.
    pub address: Spanned<IpAddr>,
    /// Their period over every path, in ms (20 to 60000), or "off".
    #[serde(default)]
    pub period_ms: EchoPeriod,
    /// The same over these paths.
    #[serde(default)]
    pub paths: BTreeMap<String, Spanned<EchoPeriod>>,
}

/// Checks the address, and that there is something to send for.
pub(super) fn check(config: &Config) -> Result<(), Complaint> {
    let Some(section) = &config.echo else { return Ok(()) };
    let (place, echo) = (section.span().start, section.get_ref());
    if !config.strategy.as_ref().is_some_and(|strategy| strategy.uses_echoes()) {
        let cause = format!("strategy `{}` uses no echo requests", config.strategy_name().unwrap_or("none"));
        return Err((place, cause, "remove [echo], or choose strategy `adaptive`"));
    }
    let (place, address) = (echo.address.span().start, *echo.address.get_ref());
    let is_unusable = match address {
        IpAddr::V4(address) => address.is_broadcast(),
        IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
    };
    if address.is_unspecified() || address.is_multicast() || address.is_loopback() || is_unusable {
        let cause = format!("the echo address {address} is not reached over a path");
        return Err((place, cause, "give the address of a machine that answers echo requests, as your gateway"));
    }
    let is_path = |name: &str| config.paths.iter().any(|path| path.get_ref().name == name);
    if let Some((name, period)) = echo.paths.iter().find(|(name, _)| !is_path(name)) {
        let cause = format!("`echo.paths` names {name:?}, which is no path");
        return Err((period.span().start, cause, "name paths of this file"));
    }
    let is_other = |(path, period): &(&Spanned<PathConfig>, Option<Duration>)| {
        let own = path.get_ref().address;
        period.is_some() && own.is_some_and(|own| own.is_ipv4() != address.is_ipv4())
    };
    if let Some((path, _)) = config.paths.iter().zip(config.echo_periods()).find(is_other) {
        let version = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        let cause = format!("the echo address {address} is {version}, and path {:?} is not", path.get_ref().name);
        return Err((place, cause, "give an address of the same version, or the period \"off\" to that path"));
    }
    Ok(())
}

impl Config {
    /// The period of the echo requests over each path; `None`: none over it. A path with a price or a data volume has a
    /// longer one by default, and one that shares a radio none: frames to a station that is gone hold up the others.
    pub fn echo_periods(&self) -> Vec<Option<Duration>> {
        let Some(echo) = self.echo.as_ref().map(Spanned::get_ref) else { return vec![None; self.paths.len()] };
        let period = |path: &PathConfig| match echo.paths.get(&path.name) {
            Some(period) => period.get_ref().duration(),
            None if path.radio.is_some() => None,
            None if path.volume.is_some() || self.is_priced(&path.name) => echo.period_ms.metered().duration(),
            None => echo.period_ms.duration(),
        };
        self.paths.iter().map(|path| period(path.get_ref())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    const VEHICLE: &str = "[[path]]\nname = \"wifi\"\nrat = \"other\"\n[[path]]\nname = \"lte\"\nrat = \"lte\"\n\
        [service]\nprefer = [\"wifi\", \"lte\"]\n[strategy]\nname = \"adaptive\"\n[echo]\naddress = \"192.0.2.1\"\n";

    fn periods(text: &str) -> Vec<Option<u128>> {
        let config = parse(text).unwrap_or_else(|fault| panic!("line {}: {}", fault.line, fault.cause));
        config.echo_periods().into_iter().map(|period| Some(period?.as_millis())).collect()
    }

    #[test]
    fn the_period_of_a_path_is_chosen_by_the_user_or_by_what_it_costs() {
        assert_eq!(periods(VEHICLE), [Some(200), Some(200)]);
        assert_eq!(periods(&VEHICLE.replace("[echo]\naddress = \"192.0.2.1\"\n", "")), [None, None]);
        assert_eq!(periods(&format!("{VEHICLE}period_ms = 50\npaths = {{ lte = \"off\" }}\n")), [Some(50), None]);
        let priced = VEHICLE.replace("prefer =", "cost_per_gb = { wifi = 0, lte = 3 }\nprefer =");
        assert_eq!(periods(&priced), [Some(200), Some(2000)]);
        let limited = VEHICLE.replace("rat = \"lte\"\n", "rat = \"lte\"\n[path.volume]\nmonth_mb = 100\n");
        assert_eq!(periods(&limited), [Some(200), Some(2000)]);
        assert_eq!(periods(&format!("{limited}paths = {{ lte = 100 }}\n")), [Some(200), Some(100)]);
        let shared = VEHICLE.replace("rat = \"other\"", "rat = \"other\"\nradio = 1");
        assert_eq!(periods(&shared), [None, Some(200)]);
    }

    #[test]
    fn a_bad_echo_address_period_or_path_is_one_sentence_with_its_line() {
        let cases = [
            ("\"192.0.2.1\"", "\"gateway\"", 12, "IP address"),
            ("\"192.0.2.1\"", "\"0.0.0.0\"", 12, "not reached over a path"),
            ("\"192.0.2.1\"", "\"127.0.0.1\"", 12, "not reached over a path"),
            ("\"192.0.2.1\"", "\"224.0.0.1\"", 12, "not reached over a path"),
            ("\"192.0.2.1\"", "\"192.0.2.1\"\nperiod_ms = 0", 13, "period of echo requests is 0"),
            ("\"192.0.2.1\"", "\"192.0.2.1\"\nperiod_ms = 19", 13, "is 19"),
            ("\"192.0.2.1\"", "\"192.0.2.1\"\nperiod_ms = -200", 13, "is -200"),
            ("\"192.0.2.1\"", "\"192.0.2.1\"\nperiod_ms = 0.5", 13, "is 0.5"),
            ("\"192.0.2.1\"", "\"192.0.2.1\"\npaths = { lte = \"no\" }", 13, "\"no\""),
            ("\"192.0.2.1\"", "\"192.0.2.1\"\npaths = { nr = 200 }", 13, "\"nr\", which is no path"),
            ("name = \"adaptive\"", "name = \"threshold\"", 11, "`threshold` uses no echo requests"),
            ("address =", "adress =", 12, "adress"),
        ];
        for (good, bad, line, word) in cases {
            let text = VEHICLE.replacen(good, bad, 1);
            let fault = parse(&text).err().unwrap_or_else(|| panic!("{bad} was accepted"));
            assert!(fault.cause.contains(word) && !fault.cause.contains('\n'), "{bad}: {}", fault.cause);
            assert_eq!(fault.line, line, "{bad}: {}", fault.cause);
        }
    }

    #[test]
    fn an_echo_address_of_another_version_than_that_of_a_path_is_refused() {
        let with = |own: &str, keys: &str| {
            let text = VEHICLE.replace("rat = \"lte\"\n", &format!("rat = \"lte\"\naddress = \"{own}\"\n"));
            parse(&format!("{text}{keys}")).err().map(|fault| fault.cause)
        };
        assert_eq!(with("10.0.0.2", ""), None);
        let cause = with("2001:db8::2", "").unwrap_or_default();
        assert!(cause.contains("192.0.2.1 is IPv4, and path \"lte\" is not"), "{cause}");
        assert_eq!(with("2001:db8::2", "paths = { lte = \"off\" }\n"), None);
    }
}
