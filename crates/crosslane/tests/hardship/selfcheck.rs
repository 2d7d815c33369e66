//! Planted faults, which every invocation must find.

use super::hardships::{Hardship, Kind};
use super::jobs::Side;
use super::plan::{FIRST_MS, PathPlan, Plan, Topology, Traffic};
use super::{plan, verdict};

/// A plan, and the rule that it must break.
pub struct Planted {
    /// The plan that is carried out.
    pub plan: Plan,
    rule: &'static str,
}

/// The planted faults.
pub fn planted() -> [Planted; 2] {
    let silent = |path| Hardship { at_ms: FIRST_MS, for_ms: 4_500, kind: Kind::Silent { path, up: true, down: true } };
    let (hang, bytes) = (ping_pong(false, vec![silent(0), silent(1)]), ping_pong(true, Vec::new()));
    [Planted { plan: hang, rule: "hang" }, Planted { plan: bytes, rule: "bytes" }]
}

fn ping_pong(spoiled: bool, hardships: Vec<Hardship>) -> Plan {
    let path = || PathPlan { delay_ms: 5, rate_mbit_s: 20, nat: false };
    let traffic = Traffic {
        id: 0,
        kind: plan::Kind::PingPong,
        begin_ms: 0,
        bytes: 0,
        chunk: 200,
        tick_ms: 50,
        until_ms: 3_000,
        spoiled,
    };
    Plan {
        seed: u64::from(spoiled),
        topology: Topology::Routed,
        ipv6: false,
        backup: false,
        default_limits: false,
        late_agent: false,
        paths: vec![path(), path()],
        connections: vec![traffic],
        others: false,
        hardships,
        deadline_ms: 5_000,
    }
}

/// A message if the planted fault was not found.
pub fn complaint(planted: &Planted, side: &Side) -> Option<String> {
    let found: Vec<&verdict::Violation> = side.broken.iter().collect();
    let is_found = found.iter().any(|violation| violation.rule == planted.rule);
    (!is_found).then(|| format!("a planted fault of the rule `{}` was not found, only {found:?}", planted.rule))
}
