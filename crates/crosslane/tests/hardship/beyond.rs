//! What no path manager can save (`docs/hardship.md`): it is counted, and breaks no rule.

use super::plan::{Kind, Plan};
use super::programs::{Outcome, Told};
use super::verdict::Facts;

/// What one end of MPTCP repeats over the same subflow comes twice to an end that has become
/// plain TCP. That is the kernels' affair; all else that is wrong is not.
pub fn is_wrong(facts: &Facts, told: &Told) -> bool {
    let ends = || facts.client.iter().chain(&facts.server).filter(|other| other.id == told.id);
    let is_split = told.fallback && ends().any(|other| !other.fallback);
    told.outcome == Outcome::Wrong || told.outcome == Outcome::Repeated && !is_split
}

/// Some connections are nobody's to save, and their program gave up at its time, as it should:
/// one that has become plain TCP at either end, one whose kernel takes nothing any more, and one
/// that its client has closed on its side, which takes no further subflow, and that has none left.
pub fn hangs(plan: &Plan, facts: &Facts, told: &Told) -> bool {
    let is_lost = |other: &Told| other.id == told.id && (other.fallback || other.full);
    let is_closed_here = told.why.starts_with("verdict")
        && plan.connections.iter().any(|traffic| traffic.id == told.id && traffic.kind == Kind::HalfClosed);
    told.outcome == Outcome::Hung
        && !facts.client.iter().chain(&facts.server).any(is_lost)
        && !(is_closed_here && facts.cut_off.contains(&told.local))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::AgentFacts;
    use crate::verdict::tests::broken;

    #[test]
    fn what_nobody_can_save_is_no_hang() {
        let plain = |_: &mut Plan, facts: &mut Facts, _: &mut AgentFacts| {
            facts.client[0].outcome = Outcome::Hung;
            facts.client[0].fallback = true;
        };
        assert_eq!(broken(plain), [] as [&str; 0]);
        let full = |told: usize| {
            move |_: &mut Plan, facts: &mut Facts, _: &mut AgentFacts| {
                facts.client[0].outcome = Outcome::Hung;
                facts.server[told].full = true;
            }
        };
        assert_eq!(broken(full(0)), [] as [&str; 0]);
        assert_eq!(broken(full(1)), ["hang"], "another connection's");
        let cut_off = |kind, told: usize| {
            move |plan: &mut Plan, facts: &mut Facts, _: &mut AgentFacts| {
                plan.connections[0].kind = kind;
                (facts.client[0].outcome, facts.client[0].why) = (Outcome::Hung, "verdict: for 11 s".into());
                facts.cut_off.push(facts.client[told].local);
            }
        };
        assert_eq!(broken(cut_off(Kind::HalfClosed, 0)), [] as [&str; 0]);
        assert_eq!(broken(cut_off(Kind::HalfClosed, 1)), ["hang"], "another connection's");
        assert_eq!(broken(cut_off(Kind::Up, 0)), ["hang"], "it takes further subflows");
    }

    #[test]
    fn what_comes_twice_is_wrong_unless_one_end_alone_is_plain_tcp() {
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
