//! Strategies that send the traffic through the multipath tunnel.

use crosslane_core::time::Instant;
use serde::{Deserialize, Serialize};

use super::base::{Base, catalog};
use super::schema::integer;
use super::{Scenario, Strategy};

/// Settings of all tunnels of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tunnel {
    /// MTU of every path, in bytes (576 to 1500).
    #[serde(deserialize_with = "integer::<_, 576, 1500>")]
    pub mtu: u32,
}

impl Default for Tunnel {
    fn default() -> Tunnel {
        Tunnel { mtu: 1500 }
    }
}

impl Strategy {
    /// True if it sends the traffic through the tunnel.
    pub fn is_tunnel(&self) -> bool {
        self.base == Base::Tunnel
    }

    /// True if it uses a single path ([`Scenario::single_path`]).
    pub fn keeps_to_one_path(&self) -> bool {
        self.base == Base::Single || self.base.is_peer_tunnel()
    }
}

impl Scenario {
    /// Time at which the vehicle connects through the tunnel: the tunnel has
    /// measured its paths by then, or the traffic starts.
    pub fn tunnel_stands(&self) -> Instant {
        TUNNEL_STANDS.min(Instant::from_secs_f64(self.traffic.start_s))
    }

    /// Names of the selectable strategies: the built-in ones, then those that
    /// the file defines.
    pub fn strategy_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = built_in_names().collect();
        names.extend(self.strategies.iter().map(|entry| entry.name.as_str()));
        names
    }
}

/// See [`Scenario::tunnel_stands`].
const TUNNEL_STANDS: Instant = Instant::from_millis(500);

/// Variants of a base that need no `[[strategy]]` entry.
const VARIANTS: [(&str, Base, &str, &str); 3] = [
    ("tunnel-adaptive", Base::Tunnel, "mode", "adaptive"),
    ("tunnel-redundant", Base::Tunnel, "mode", "redundant"),
    ("tunnel-plain", Base::Tunnel, "encryption", "none"),
];

/// Names of the strategies that need no `[[strategy]]` entry.
pub(super) fn built_in_names() -> impl Iterator<Item = &'static str> {
    catalog().map(Base::name).chain(VARIANTS.into_iter().map(|(name, ..)| name))
}

/// The built-in strategy with this name.
pub(super) fn built_in(name: &str) -> Option<Strategy> {
    let variant = VARIANTS
        .into_iter()
        .find(|(variant, ..)| *variant == name)
        .map(|(_, base, key, value)| (base, toml::Table::from_iter([(key.to_string(), value.into())])));
    let base = Base::find(name).map(|base| (base, toml::Table::new()));
    let (base, parameters) = variant.or(base)?;
    Some(Strategy { name: name.into(), base, parameters })
}

#[cfg(test)]
mod tests {
    use super::super::base;
    use super::super::params::TunnelParams;
    use super::*;
    use crosslane_core::tunnel::{Encryption, Mode};

    fn params(of: &Strategy) -> TunnelParams {
        base::read::<TunnelParams>(&of.parameters).unwrap_or_else(|fault| panic!("{fault}"))
    }

    #[test]
    fn built_in_tunnels_differ_in_mode_and_encryption() {
        let of = |name: &str| params(&built_in(name).unwrap());
        assert_eq!(of("tunnel"), TunnelParams::default());
        assert_eq!(of("tunnel-redundant"), TunnelParams { mode: Mode::Redundant, ..TunnelParams::default() });
        assert_eq!(of("tunnel-adaptive"), TunnelParams { mode: Mode::Adaptive, ..TunnelParams::default() });
        assert_eq!(of("tunnel-plain"), TunnelParams { encryption: Encryption::None, ..TunnelParams::default() });
        assert!(built_in_names().all(|name| built_in(name).is_some()));
        assert!(built_in("tunnel-secret").is_none());
    }

    #[test]
    fn every_mode_has_the_word_of_the_formats() {
        for (word, mode) in [
            ("aggregate", Mode::Aggregate),
            ("redundant", Mode::Redundant),
            ("standby", Mode::Standby),
            ("cheapest-first", Mode::CheapestFirst),
            ("per-flow", Mode::PerFlow),
            ("adaptive", Mode::Adaptive),
        ] {
            let table = toml::Table::from_iter([("mode".to_string(), word.into())]);
            assert_eq!(base::read::<TunnelParams>(&table).map(|params| params.mode), Ok(mode));
        }
    }

    #[test]
    fn the_strategy_that_selects_the_paths_has_the_tree_and_the_trials_of_the_tunnel() {
        let given = [("mode", "standby".into()), ("tree", "t.json".into()), ("trials", 0.into())];
        let parameters = toml::Table::from_iter(given.map(|(key, value): (_, toml::Value)| (key.to_string(), value)));
        let tunnel = Strategy { name: "x".into(), base: Base::Tunnel, parameters };
        let steering = tunnel.steering(&crosslane_core::strategy::learned::ENTRY);
        assert_eq!(steering.parameters.keys().collect::<Vec<_>>(), ["tree", "trials"]);
        assert_eq!(steering.tree_file(), Some("t.json"));
    }

    #[test]
    fn a_steering_strategy_that_needs_deadlines_is_refused() {
        for (steer, fits) in [("hapanchak", true), ("deadline-mptcp", false), ("tunnel", false)] {
            let table = toml::Table::from_iter([("steer".to_string(), steer.into())]);
            assert_eq!(base::read::<TunnelParams>(&table).is_ok(), fits, "{steer}");
        }
    }
}
