//! Keepalives of the tunnel's paths: `keepalive_s` of `[[path]]`, and prices.

use std::time::Duration;

use crosslane_core::tunnel::{Keepalive, NAT_TIMEOUT};
use serde::Deserialize;
use toml::Spanned;

use super::checks::Complaint;
use super::{Config, PathConfig};

/// Valid intervals, in s. Below, keepalives would take more than 14 MB an hour.
const INTERVALS_S: std::ops::RangeInclusive<f64> = 0.1..=3600.0;
const REMEDY: &str = "give 0.1 to 3600 seconds, or \"off\" for no keepalives";

/// The interval in s; `None`: no keepalives.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct KeepaliveSetting(Option<f64>);

impl TryFrom<toml::Value> for KeepaliveSetting {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<KeepaliveSetting, String> {
        match value {
            toml::Value::Integer(seconds) => Ok(KeepaliveSetting(Some(seconds as f64))),
            toml::Value::Float(seconds) => Ok(KeepaliveSetting(Some(seconds))),
            toml::Value::String(word) if word == "off" => Ok(KeepaliveSetting(None)),
            other => Err(format!("keepalive_s is {other}; {REMEDY}")),
        }
    }
}

/// Checks the intervals, and that there is a tunnel to keep alive.
pub(super) fn check(config: &Config) -> Result<(), Complaint> {
    let tunnel = config.tunnel.as_ref().map(Spanned::get_ref);
    let has_keepalives = tunnel.is_some_and(|tunnel| tunnel.gateway.is_some() && !tunnel.rfc8086_only);
    for setting in config.paths.iter().filter_map(|path| path.get_ref().keepalive_s.as_ref()) {
        let place = setting.span().start;
        if let Some(seconds) = setting.get_ref().0.filter(|seconds| !INTERVALS_S.contains(seconds)) {
            return Err((place, format!("keepalive_s is {seconds}"), REMEDY));
        }
        if !has_keepalives {
            let cause = "`keepalive_s` without a tunnel to a gateway that is Crosslane too".into();
            return Err((place, cause, "remove it: only a vehicle with `[tunnel]` sends keepalives"));
        }
    }
    Ok(())
}

impl Config {
    /// Keepalives of each path in the tunnel.
    pub fn keepalives(&self) -> Vec<Keepalive> {
        let keepalive = |path: &PathConfig| match path.keepalive_s.as_ref().map(|setting| setting.get_ref().0) {
            Some(Some(seconds)) => Keepalive::every(Duration::from_secs_f64(seconds)),
            Some(None) => Keepalive::OFF,
            None if self.is_priced(&path.name) => Keepalive::PRICED,
            None => Keepalive::DEFAULT,
        };
        self.paths.iter().map(|path| keepalive(path.get_ref())).collect()
    }

    /// A sentence for each path whose keepalives are too rare for some NATs.
    pub fn rare_keepalives(&self) -> impl Iterator<Item = String> {
        let nat_timeout_s = NAT_TIMEOUT.as_secs_f64();
        self.paths.iter().map(Spanned::get_ref).filter_map(move |path| {
            let seconds = path.keepalive_s.as_ref()?.get_ref().0.filter(|seconds| *seconds > nat_timeout_s)?;
            let name = &path.name;
            Some(format!(
                "path {name:?} has keepalive_s = {seconds}: a NAT may drop its mapping after {nat_timeout_s} s, and the gateway \
                 then reaches nothing over it until the vehicle sends; give {nat_timeout_s} or less"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const VEHICLE: &str = r#"
[[path]]
name = "wifi"
rat = "other"
[[path]]
name = "lte"
rat = "lte"
[service]
prefer = ["wifi", "lte"]
[strategy]
name = "threshold"
[tunnel]
address = ["10.77.0.2/24"]
gateway = "192.0.2.1:4760"
encryption = "none"
"#;

    fn keepalives_of(text: &str) -> (Vec<Keepalive>, usize) {
        let config = parse(text).unwrap_or_else(|fault| panic!("line {}: {}", fault.line, fault.cause));
        (config.keepalives(), config.rare_keepalives().count())
    }

    #[test]
    fn the_keepalive_of_a_path_is_chosen_by_the_user_or_by_its_price() {
        let priced = VEHICLE.replace("prefer", "cost_per_gb = { wifi = 0, lte = 3 }\nprefer");
        assert_eq!(keepalives_of(VEHICLE), (vec![Keepalive::DEFAULT; 2], 0));
        assert_eq!(keepalives_of(&priced), (vec![Keepalive::DEFAULT, Keepalive::PRICED], 0));
        let chosen = [
            ("5", Keepalive::every(Duration::from_secs(5)), 0),
            ("0.1", Keepalive::every(Duration::from_millis(100)), 0),
            ("30", Keepalive::every(Duration::from_secs(30)), 0),
            ("30.5", Keepalive::every(Duration::from_millis(30_500)), 1),
            ("\"off\"", Keepalive::OFF, 0),
        ];
        for (value, keepalive, warnings) in chosen {
            let text = priced.replace("rat = \"lte\"", &format!("rat = \"lte\"\nkeepalive_s = {value}"));
            assert_eq!(keepalives_of(&text), (vec![Keepalive::DEFAULT, keepalive], warnings), "{value}");
        }
    }
}
