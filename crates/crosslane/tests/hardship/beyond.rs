//! Connections that no path manager can save (`docs/design/hardship.md`): they are counted and break no rule.

use super::plan::{Kind, Plan};
use super::programs::{ConnectionReport, Outcome};
use super::verdict::Facts;

/// True if the bytes of a connection are wrong. Data that an MPTCP endpoint retransmits over the same
/// subflow arrives twice at an endpoint that has fallen back to plain TCP; these duplicates are caused
/// by the kernels and do not count.
pub fn is_wrong(facts: &Facts, report: &ConnectionReport) -> bool {
    let both = || facts.client.iter().chain(&facts.server).filter(|other| other.id == report.id);
    let is_split = report.fallback && both().any(|other| !other.fallback);
    report.outcome == Outcome::Wrong || report.outcome == Outcome::Repeated && !is_split
}

/// True if a connection hangs that a path manager could have saved. Not counted are connections that
/// have fallen back to plain TCP at an endpoint, connections whose kernel accepts no data any more, and
/// half-closed connections without a usable subflow, which accept no further ones.
pub fn hangs(plan: &Plan, facts: &Facts, report: &ConnectionReport) -> bool {
    let is_lost = |other: &ConnectionReport| other.id == report.id && (other.fallback || other.full);
    let is_closed_here = report.why.starts_with("verdict")
        && plan.connections.iter().any(|traffic| traffic.id == report.id && traffic.kind == Kind::HalfClosed);
    report.outcome == Outcome::Hung
        && !facts.client.iter().chain(&facts.server).any(is_lost)
        && !(is_closed_here && facts.cut_off.contains(&report.local))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::AgentFacts;
    use crate::verdict::tests::broken;

    #[test]
    fn connections_that_cannot_be_saved_are_not_counted_as_hanging() {
        let plain = |_: &mut Plan, facts: &mut Facts, _: &mut AgentFacts| {
            facts.client[0].outcome = Outcome::Hung;
            facts.client[0].fallback = true;
        };
        assert_eq!(broken(plain), [] as [&str; 0]);
        let full = |place: usize| {
            move |_: &mut Plan, facts: &mut Facts, _: &mut AgentFacts| {
                facts.client[0].outcome = Outcome::Hung;
                facts.server[place].full = true;
            }
        };
        assert_eq!(broken(full(0)), [] as [&str; 0]);
        assert_eq!(broken(full(1)), ["hang"], "another connection is affected");
        let cut_off = |kind, place: usize| {
            move |plan: &mut Plan, facts: &mut Facts, _: &mut AgentFacts| {
                plan.connections[0].kind = kind;
                (facts.client[0].outcome, facts.client[0].why) = (Outcome::Hung, "verdict: for 11 s".into());
                facts.cut_off.push(facts.client[place].local);
            }
        };
        assert_eq!(broken(cut_off(Kind::HalfClosed, 0)), [] as [&str; 0]);
        assert_eq!(broken(cut_off(Kind::HalfClosed, 1)), ["hang"], "another connection is affected");
        assert_eq!(broken(cut_off(Kind::Up, 0)), ["hang"], "it accepts further subflows");
    }

    #[test]
    fn duplicate_bytes_are_wrong_unless_only_the_receiver_is_plain_tcp() {
        let repeated = |client: bool, server: bool| {
            move |_: &mut Plan, facts: &mut Facts, _: &mut AgentFacts| {
                (facts.client[0].outcome, facts.client[0].fallback) = (Outcome::Repeated, client);
                facts.server[0].fallback = server;
            }
        };
        assert_eq!(broken(repeated(true, false)), [] as [&str; 0]);
        for (client, server) in [(false, false), (true, true), (false, true)] {
            assert_eq!(broken(repeated(client, server)), ["bytes"]);
        }
    }
}
