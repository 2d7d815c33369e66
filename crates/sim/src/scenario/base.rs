//! The catalogue of strategies: those of the agent, and what they are compared with.

use std::fmt;

use crosslane_core::parameters::{self, Field, List, ParameterError, Table, Value};
use crosslane_core::strategy;
use serde::Serialize;

use super::params::{NoParams, OracleParams, SinglePathParams, TunnelParams};

/// Which commands run a strategy, or measure a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engines {
    /// `crosslane drive` and `crosslane simulate`.
    Both,
    /// `crosslane drive` only.
    Drive,
    /// `crosslane simulate` only.
    Simulate,
}

/// What a strategy is in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// What a machine does without Crosslane.
    Baseline,
    /// Crosslane's agent decides which paths carry.
    Agent,
    /// The traffic has a TCP connection for each path, as `crosslane send` has.
    Transfer,
    /// The traffic goes through Crosslane's tunnel.
    Tunnel,
    /// No strategy, but what one could reach that knows the future.
    Bound,
}

/// A built-in strategy, which a `[[strategy]]` may vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Plain TCP or UDP over one path.
    Single,
    /// The in-kernel path manager.
    Kernel,
    /// The same with `net.mptcp.stale_loss_cnt = 1`.
    KernelTuned,
    /// The transfer over a TCP connection for each path.
    Deadline,
    /// A strategy of the agent.
    Agent(&'static strategy::Entry),
    /// What each path will do is known.
    Oracle,
    /// The multipath tunnel.
    Tunnel,
    /// The kernel's VXLAN over one path.
    Vxlan,
    /// WireGuard in Go over one path.
    WireguardGo,
}

/// A strategy in the catalogue.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Its name in scenarios, records and on the command line.
    pub name: &'static str,
    /// What it is in a comparison.
    pub kind: Kind,
    /// Which commands run it.
    pub engines: Engines,
    /// Whether it prefers paths by the deadlines of the traffic, and needs them.
    pub needs_deadlines: bool,
    /// What it does.
    pub what: &'static str,
    /// Its parameters.
    pub parameters: List,
}

/// All of them, in the order in which messages and pages name them.
pub fn catalog() -> impl Iterator<Item = Base> {
    [Base::Single, Base::Kernel, Base::KernelTuned, Base::Deadline]
        .into_iter()
        .chain(strategy::CATALOG.iter().map(Base::Agent))
        .chain([Base::Oracle, Base::Tunnel, Base::Vxlan, Base::WireguardGo])
}

/// Reads the parameters of a strategy.
///
/// # Errors
/// The first parameter that `P` does not have, or whose value is invalid.
pub fn read<P: Field>(given: &toml::Table) -> Result<P, ParameterError> {
    parameters::read(values(given))
}

/// The values of a table.
pub fn values(given: &toml::Table) -> Table {
    given.iter().map(|(key, given)| (key.clone(), value(given))).collect()
}

fn value(given: &toml::Value) -> Value {
    let number = |given: &toml::Value| given.as_float().or(given.as_integer().map(|integer| integer as f64));
    match given {
        toml::Value::String(text) => Value::Text(text.clone()),
        toml::Value::Array(values) => {
            values.iter().map(number).collect::<Option<_>>().map_or(Value::Other, Value::Numbers)
        }
        toml::Value::Table(table) => Value::Table(values(table)),
        other => number(other).map_or(Value::Other, Value::Number),
    }
}

impl Base {
    /// The strategy of this name.
    pub fn find(name: &str) -> Option<Base> {
        catalog().find(|base| base.name() == name)
    }

    /// Checks the parameters of a strategy with this base.
    ///
    /// # Errors
    /// As [`read`].
    pub fn check(self, given: &toml::Table) -> Result<(), ParameterError> {
        match self {
            Base::Kernel | Base::KernelTuned | Base::Deadline => read::<NoParams>(given).map(drop),
            Base::Single | Base::Vxlan | Base::WireguardGo => read::<SinglePathParams>(given).map(drop),
            Base::Agent(entry) => entry.read(values(given)).map(drop),
            Base::Oracle => read::<OracleParams>(given).map(drop),
            Base::Tunnel => read::<TunnelParams>(given).map(drop),
        }
    }

    /// What the catalogue has on it.
    pub fn entry(self) -> Entry {
        use {Engines::*, Kind::*};
        let none = parameters::list::<NoParams>;
        let one_path = parameters::list::<SinglePathParams>;
        let (kind, engines, what, parameters) = match self {
            Base::Single => (Baseline, Both, "plain TCP or UDP over one path", one_path()),
            Base::Kernel => (Baseline, Both, "the in-kernel path manager", none()),
            Base::KernelTuned => {
                (Baseline, Both, "the in-kernel path manager with `net.mptcp.stale_loss_cnt = 1`", none())
            }
            Base::Deadline => {
                (Transfer, Both, "objects in time at the minimum cost, over a TCP connection for each path", none())
            }
            Base::Agent(entry) => (Agent, Both, entry.what, (entry.parameters)()),
            Base::Oracle => (Bound, Simulate, "knows what each path will do", parameters::list::<OracleParams>()),
            Base::Tunnel => {
                (Tunnel, Both, "plain TCP or UDP through the multipath tunnel", parameters::list::<TunnelParams>())
            }
            Base::Vxlan => {
                let what = "plain TCP or UDP through the kernel's VXLAN over one path, in the clear";
                (Baseline, Drive, what, one_path())
            }
            Base::WireguardGo => {
                (Baseline, Drive, "plain TCP or UDP through WireGuard in Go over one path", one_path())
            }
        };
        Entry { name: self.name(), kind, engines, needs_deadlines: self.needs_deadlines(), what, parameters }
    }

    /// Its name in scenarios, records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Base::Single => "single",
            Base::Kernel => "kernel",
            Base::KernelTuned => "kernel-tuned",
            Base::Deadline => "deadline",
            Base::Agent(entry) => entry.name,
            Base::Oracle => "oracle",
            Base::Tunnel => "tunnel",
            Base::Vxlan => "vxlan",
            Base::WireguardGo => "wireguard-go",
        }
    }

    /// Whether it prefers paths by the deadlines of the traffic, and needs them.
    pub fn needs_deadlines(self) -> bool {
        self == Base::Deadline || matches!(self, Base::Agent(entry) if entry.needs_deadlines())
    }

    /// Whether it is a tunnel that is not Crosslane's.
    pub fn is_peer_tunnel(self) -> bool {
        matches!(self, Base::Vxlan | Base::WireguardGo)
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_strategy_is_found_by_its_name_and_takes_the_parameters_that_it_lists() {
        for base in catalog() {
            assert_eq!(Base::find(base.name()), Some(base));
            let entry = base.entry();
            for parameter in &entry.parameters {
                let names: Vec<&str> = parameter.name.split('.').collect();
                let wrong = toml::Value::Boolean(true);
                let table = names
                    .iter()
                    .rev()
                    .fold(wrong, |value, name| toml::Value::Table(toml::Table::from_iter([(name.to_string(), value)])));
                let fault = base.check(table.as_table().unwrap()).err().map(|fault| fault.key);
                assert_eq!(fault.as_ref(), Some(&parameter.name), "{base}");
            }
        }
    }
}
