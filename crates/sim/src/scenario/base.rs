//! The catalogue of strategies: what each is, and which commands run it.

use std::fmt;

use serde::Serialize;

use super::metric::Engines;

/// What a strategy is in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// What a machine does without Crosslane.
    Baseline,
    /// Crosslane's agent decides which paths carry.
    Agent,
    /// The traffic goes through Crosslane's tunnel.
    Tunnel,
    /// No strategy, but what one could reach that knows the future.
    Bound,
}

/// A built-in strategy, which a `[[strategy]]` may vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// Plain TCP or UDP over one path.
    Single,
    /// The in-kernel path manager.
    Kernel,
    /// The same with `net.mptcp.stale_loss_cnt = 1`.
    KernelTuned,
    /// Algorithm 1 of Hapanchak & Costa 2023.
    Hapanchak,
    /// Signal with hysteresis and time to trigger, and sudden loss.
    Threshold,
    /// What each path will do is known.
    Oracle,
    /// Algorithm 1 of Nota 2020.
    MpDpa,
    /// Objects in time at the minimum cost.
    Deadline,
    /// The multipath tunnel.
    Tunnel,
    /// The kernel's VXLAN over one path.
    Vxlan,
    /// WireGuard in Go over one path.
    WireguardGo,
}

/// A strategy in the catalogue.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Entry {
    /// Which it is.
    #[serde(skip)]
    pub base: Base,
    /// Its name.
    pub name: &'static str,
    /// What it is in a comparison.
    pub kind: Kind,
    /// Which commands run it.
    pub engines: Engines,
    /// Whether it prefers paths by the deadlines of the traffic, and needs them.
    pub needs_deadlines: bool,
    /// What it does.
    pub what: &'static str,
}

const BASELINE: Entry = Entry {
    base: Base::Single,
    name: "single",
    kind: Kind::Baseline,
    engines: Engines::Both,
    needs_deadlines: false,
    what: "plain TCP or UDP over one path (`path`, by default the preferred one)",
};
const AGENT: Entry = Entry { kind: Kind::Agent, ..BASELINE };

/// All of them, in the order in which messages and pages name them.
pub const CATALOG: [Entry; 11] = [
    BASELINE,
    Entry { base: Base::Kernel, name: "kernel", what: "the in-kernel path manager", ..BASELINE },
    Entry {
        base: Base::KernelTuned,
        name: "kernel-tuned",
        what: "the in-kernel path manager with `net.mptcp.stale_loss_cnt = 1`",
        ..BASELINE
    },
    Entry { base: Base::Hapanchak, name: "hapanchak", what: "Algorithm 1 of Hapanchak & Costa 2023", ..AGENT },
    Entry {
        base: Base::Threshold,
        name: "threshold",
        what: "signal with hysteresis and time to trigger, and sudden loss",
        ..AGENT
    },
    Entry {
        base: Base::Oracle,
        name: "oracle",
        kind: Kind::Bound,
        engines: Engines::Simulate,
        what: "knows what each path will do",
        ..BASELINE
    },
    Entry { base: Base::MpDpa, name: "mp-dpa", needs_deadlines: true, what: "Algorithm 1 of Nota 2020", ..AGENT },
    Entry {
        base: Base::Deadline,
        name: "deadline",
        needs_deadlines: true,
        what: "objects in time at the minimum cost",
        ..AGENT
    },
    Entry {
        base: Base::Tunnel,
        name: "tunnel",
        kind: Kind::Tunnel,
        what: "plain TCP or UDP through the multipath tunnel",
        ..BASELINE
    },
    Entry {
        base: Base::Vxlan,
        name: "vxlan",
        engines: Engines::Drive,
        what: "plain TCP or UDP through the kernel's VXLAN over one path (`path`), in the clear",
        ..BASELINE
    },
    Entry {
        base: Base::WireguardGo,
        name: "wireguard-go",
        engines: Engines::Drive,
        what: "plain TCP or UDP through WireGuard in Go over one path (`path`)",
        ..BASELINE
    },
];

impl Base {
    /// The strategy of this name.
    pub fn find(name: &str) -> Option<Base> {
        CATALOG.iter().find(|entry| entry.name == name).map(|entry| entry.base)
    }

    /// What the catalogue has on it.
    pub fn entry(self) -> &'static Entry {
        // The catalogue is in the order of the variants (see the test).
        &CATALOG[self as usize]
    }

    /// Its name in scenarios, records and on the command line.
    pub fn name(self) -> &'static str {
        self.entry().name
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
    fn each_strategy_is_in_the_catalogue_at_its_own_place() {
        assert!(CATALOG.iter().all(|entry| entry.base.entry().name == entry.name));
        assert!(CATALOG.iter().all(|entry| Base::find(entry.name) == Some(entry.base)));
    }
}
