//! What must hold after any hardships, and what did not.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::beyond::{hangs, is_wrong};
use super::plan::{Kind, Plan};
use super::programs::{Outcome, Told};

/// Commands a second in the mean that an agent may give, beside those that its
/// connections and their paths' changes need.
pub const COMMANDS_MEAN: f64 = 50.0;
/// Commands that each change of a path may need for each connection: close,
/// open, tell the peer, and one more try.
pub const COMMANDS_A_CHANGE: f64 = 4.0;
/// Up to so many connections nothing is allowed beside the mean.
pub const FEW_CONNECTIONS: usize = 30;
/// Commands in any second.
pub const COMMANDS_A_SECOND: usize = 500;
/// MP_JOINs that the vehicle's kernel may send in any second.
pub const JOINS_A_SECOND: u64 = 500;
/// Bytes of log that a run, shorter than a minute, may leave.
pub const LOG_BYTES: u64 = 1_000_000;
/// Part of a core that an agent should take at most, and that breaks the rule up
/// to [`FEW_BUSY`] connections.
pub const CPU_SHARE: f64 = 0.03;
/// With more of them at work it is known not to reach that (`docs/limitations.md`):
/// it breaks the rule at a tenth of a core, about twice what was measured. Seeds
/// above [`CPU_SHARE`] are counted.
pub const CPU_SHARE_MANY: f64 = 0.1;
/// Few connections, for the processor.
pub const FEW_BUSY: usize = 10;
/// Sockets at the server are gone so long after the vehicle's: a minute, and
/// what a busy machine adds.
pub const SOCKETS_GONE_S: f64 = 62.0;
/// SIGTERM is obeyed so soon.
pub const END_MS: u64 = 100;

/// Rules that can fail by chance, since they compare with another run or with a
/// clock, or depend on when a kernel does what: they are broken once they have
/// failed twice in the same seed. The others count things, and are broken at once.
pub const BY_CHANCE: [&str; 8] = ["closing", "cpu", "hang", "others", "run", "signal", "sockets", "worse"];
/// Attempts of a seed that must fail, or hold, before a rule of [`BY_CHANCE`] is decided.
const ENOUGH: usize = 2;

/// What is to be said of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// All rules hold; some may have failed once.
    Holds,
    /// It must be carried out (again) before anything can be said.
    Open,
    /// These are broken.
    Broken(Vec<Violation>),
}

/// Judges a seed by what each of its attempts broke.
pub fn decide(attempts: &[Vec<Violation>]) -> Decision {
    let fails = |rule: &str| attempts.iter().filter(|broken| broken.iter().any(|one| one.rule == rule)).count();
    let all = || attempts.iter().flatten();
    let is_broken = |one: &&Violation| !BY_CHANCE.contains(&one.rule.as_str()) || fails(&one.rule) >= ENOUGH;
    let is_open = |one: &Violation| attempts.len() - fails(&one.rule) < ENOUGH;
    let broken: Vec<Violation> = all().filter(is_broken).cloned().collect();
    match (attempts.is_empty(), broken.is_empty()) {
        (true, _) => Decision::Open,
        (_, false) => Decision::Broken(broken),
        _ if all().any(is_open) => Decision::Open,
        _ => Decision::Holds,
    }
}

/// What is known of a run's agents.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AgentFacts {
    /// How many were started.
    pub starts: u32,
    /// When each command was given, in s of the run.
    pub commands_at_s: Vec<f64>,
    /// Commands that the kernel refused.
    pub refused: u64,
    /// Events and standard error.
    pub log_bytes: u64,
    /// Processor time of all of them.
    pub cpu_s: f64,
    /// How long there was one.
    pub alive_s: f64,
    /// Longest time from SIGTERM to the end.
    pub longest_end_ms: u64,
    /// What else went wrong, a sentence each.
    pub faults: Vec<String>,
}

/// What is known of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// What the client says of each connection.
    pub client: Vec<Told>,
    /// What the server says of each that it heard of.
    pub server: Vec<Told>,
    /// Of the agent; `None` with the in-kernel path manager.
    pub agent: Option<AgentFacts>,
    /// Most MP_JOINs that the vehicle's kernel sent within a second.
    pub joins_a_second: u64,
    /// How long the server's sockets outlived the client; `None`: to the end.
    pub sockets_gone_s: Option<f64>,
    /// What was left then.
    pub sockets_left: Vec<String>,
    /// Sockets that the server's kernel had closed, or not quite opened, 10 s after the client's
    /// end or later, and of which the peer's last word is missing: TCP's timers end them.
    pub closing_left: usize,
    /// Connections that had no subflow from an address that there was, shortly before the
    /// deadline, by their addresses at the client.
    pub cut_off: Vec<SocketAddr>,
    /// Programs of others: name, and what is wrong, if anything is.
    pub others: Vec<(String, Option<String>)>,
    /// How long the run took.
    pub took_s: f64,
}

/// One rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Name of the rule.
    pub rule: String,
    /// With the figures.
    pub what: String,
}

/// All rules that a run broke.
pub fn judge(plan: &Plan, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut broken = |rule: &str, what: String| found.push(Violation { rule: rule.into(), what });
    judge_connections(plan, facts, &mut broken);
    match facts.sockets_gone_s {
        Some(gone_s) if gone_s <= SOCKETS_GONE_S => {}
        _ => {
            broken("sockets", format!("{} left at the server: {}", facts.sockets_left.len(), some(&facts.sockets_left)))
        }
    }
    let allowed = closing_allowed(plan);
    if facts.closing_left > allowed {
        broken("closing", format!("{} sockets closing at the server, allowed are {allowed}", facts.closing_left));
    }
    if facts.joins_a_second > JOINS_A_SECOND {
        broken("joins", format!("{} MP_JOINs in a second, the limit is {JOINS_A_SECOND}", facts.joins_a_second));
    }
    for (name, wrong) in &facts.others {
        wrong.iter().for_each(|wrong| broken("others", format!("{name}: {wrong}")));
    }
    if let Some(agent) = &facts.agent {
        judge_agent(plan, facts, agent, &mut broken);
    }
    found
}

fn judge_connections(plan: &Plan, facts: &Facts, broken: &mut impl FnMut(&str, String)) {
    let of = |told: &Told| {
        let kind = plan.connections.iter().find(|traffic| traffic.id == told.id).map(|traffic| traffic.kind);
        format!("{} ({:?}) {}", told.id, kind.unwrap_or(Kind::Up), told.why)
    };
    if facts.client.len() != plan.connections.len() {
        broken("bytes", format!("the client told of {} of {}", facts.client.len(), plan.connections.len()));
    }
    let both = || facts.client.iter().chain(&facts.server);
    let wrong: Vec<String> = both().filter(|told| is_wrong(facts, told)).map(of).collect();
    if !wrong.is_empty() {
        broken("bytes", format!("{} with wrong bytes: {}", wrong.len(), some(&wrong)));
    }
    let done_here = |told: &&Told| told.outcome == Outcome::Done;
    let not_there: Vec<String> = facts
        .client
        .iter()
        .filter(done_here)
        .filter(|told| !facts.server.iter().filter(done_here).any(|other| other.id == told.id))
        .map(of)
        .collect();
    // The last FIN of an end that has read all may be lost with its connection.
    let unknown =
        not_there.iter().filter(|text| !facts.server.iter().any(|other| text.starts_with(&format!("{} ", other.id))));
    let unknown: Vec<String> = unknown.cloned().collect();
    if !unknown.is_empty() {
        broken("bytes", format!("done at the client, unknown at the server: {}", some(&unknown)));
    }
    let hung: Vec<String> = facts.client.iter().filter(|told| hangs(plan, facts, told)).map(of).collect();
    if !hung.is_empty() {
        broken("hang", format!("{} after 10 s of calm: {}", hung.len(), some(&hung)));
    }
}

fn judge_agent(plan: &Plan, facts: &Facts, agent: &AgentFacts, broken: &mut impl FnMut(&str, String)) {
    agent.faults.iter().for_each(|fault| broken("agent", fault.clone()));
    let (commands, most) = (agent.commands_at_s.len(), busiest_second(&agent.commands_at_s));
    let allowed = commands_allowed(plan, facts.took_s);
    if commands as f64 > allowed {
        let refused = agent.refused;
        broken(
            "commands",
            format!("{commands} in {:.0} s ({refused} refused), allowed are {allowed:.0}", facts.took_s),
        );
    }
    if most > COMMANDS_A_SECOND {
        broken("commands", format!("{most} in one second, the limit is {COMMANDS_A_SECOND}"));
    }
    if agent.log_bytes > LOG_BYTES {
        broken("log", format!("{} kB, allowed are {} a minute", agent.log_bytes / 1000, LOG_BYTES / 1000));
    }
    let limit = if plan.connections.len() <= FEW_BUSY { CPU_SHARE } else { CPU_SHARE_MANY };
    if cpu_share(agent) > limit {
        broken("cpu", format!("{:.1} % of a core, the limit is {:.0} %", cpu_share(agent) * 100.0, limit * 100.0));
    }
    if agent.longest_end_ms > END_MS {
        broken("signal", format!("SIGTERM was obeyed after {} ms", agent.longest_end_ms));
    }
}

/// A subflow for each connection and change of a path: what the server closes
/// because it was told that the address is gone, its kernel sends a FIN to that
/// address for 100 s. A manager that recovers from more changes leaves more.
pub fn closing_allowed(plan: &Plan) -> usize {
    let changes: u64 = plan.hardships.iter().map(|hardship| hardship.kind.changes().div_ceil(2)).sum();
    plan.connections.len() * (changes as usize).max(1)
}

/// The mean; with many connections, what their paths' changes need beside it.
pub fn commands_allowed(plan: &Plan, took_s: f64) -> f64 {
    let mean = COMMANDS_MEAN * took_s;
    if plan.connections.len() <= FEW_CONNECTIONS {
        return mean;
    }
    let changes = 2 + plan.hardships.iter().map(|hardship| hardship.kind.changes()).sum::<u64>();
    mean + COMMANDS_A_CHANGE * (changes * plan.connections.len() as u64) as f64
}

/// Part of a core that the agents took while there was one.
pub fn cpu_share(agent: &AgentFacts) -> f64 {
    agent.cpu_s / agent.alive_s.max(0.001)
}

/// Most moments within any second.
pub fn busiest_second(moments_s: &[f64]) -> usize {
    let mut sorted = moments_s.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut from = 0;
    let mut most = 0;
    for (place, moment_s) in sorted.iter().enumerate() {
        while moment_s - sorted[from] >= 1.0 {
            from += 1;
        }
        most = most.max(place + 1 - from);
    }
    most
}

/// The first few.
fn some(all: &[String]) -> String {
    let shown = all.iter().take(4).cloned().collect::<Vec<_>>().join("; ");
    if all.len() > 4 { shown + "; …" } else { shown }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A run in which all went well.
    fn good() -> (Plan, Facts) {
        let mut plan = Plan::draw(1);
        plan.connections.truncate(5);
        plan.hardships.clear();
        let told = |id| Told {
            id,
            local: ([10, 1, 0, 2], 1_000 + id as u16).into(),
            outcome: Outcome::Done,
            why: String::new(),
            end_ms: 9_000,
            stall_ms: 100,
            bytes: 1_000,
            fallback: false,
            full: false,
        };
        let all: Vec<Told> = plan.connections.iter().map(|traffic| told(traffic.id)).collect();
        let agent =
            AgentFacts { starts: 1, commands_at_s: vec![1.0; 9], cpu_s: 0.1, alive_s: 10.0, ..AgentFacts::default() };
        let (server, agent) = (all.clone(), Some(agent));
        let facts = Facts { client: all, server, agent, sockets_gone_s: Some(1.0), took_s: 10.0, ..Facts::default() };
        (plan, facts)
    }

    /// The rules that `spoil` breaks.
    pub fn broken(spoil: impl FnOnce(&mut Plan, &mut Facts, &mut AgentFacts)) -> Vec<String> {
        let (mut plan, mut facts) = good();
        let mut agent = facts.agent.take().unwrap();
        spoil(&mut plan, &mut facts, &mut agent);
        facts.agent = Some(agent);
        judge(&plan, &facts).into_iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn a_good_run_breaks_no_rule() {
        assert_eq!(broken(|_, _, _| {}), [] as [&str; 0]);
    }

    #[test]
    fn every_rule_can_be_broken() {
        assert_eq!(broken(|_, facts, _| facts.client[0].outcome = Outcome::Wrong), ["bytes"]);
        assert_eq!(broken(|_, facts, _| facts.server[0].outcome = Outcome::Wrong), ["bytes"]);
        assert_eq!(broken(|_, facts, _| drop(facts.client.pop())), ["bytes"]);
        assert_eq!(broken(|_, facts, _| drop(facts.server.remove(0))), ["bytes"]);
        assert_eq!(broken(|_, facts, _| facts.client[0].outcome = Outcome::Hung), ["hang"]);
        assert_eq!(broken(|_, facts, _| facts.sockets_gone_s = None), ["sockets"]);
        assert_eq!(broken(|_, facts, _| facts.sockets_gone_s = Some(63.0)), ["sockets"]);
        assert_eq!(broken(|_, facts, _| facts.closing_left = 6), ["closing"]);
        assert_eq!(broken(|_, facts, _| facts.joins_a_second = 501), ["joins"]);
        assert_eq!(broken(|_, facts, _| facts.others.push(("curl".into(), Some("wrong".into())))), ["others"]);
        assert_eq!(broken(|_, _, agent| agent.commands_at_s = (0..1_000).map(f64::from).collect()), ["commands"]);
        assert_eq!(broken(|_, _, agent| agent.commands_at_s = vec![1.0; 501]), ["commands", "commands"]);
        assert_eq!(broken(|_, _, agent| agent.log_bytes = 1_000_001), ["log"]);
        assert_eq!(broken(|_, _, agent| agent.cpu_s = 0.31), ["cpu"]);
        assert_eq!(broken(|_, _, agent| agent.longest_end_ms = 101), ["signal"]);
        assert_eq!(broken(|_, _, agent| agent.faults.push("it ended".into())), ["agent"]);
    }

    #[test]
    fn chance_fails_once_and_a_defect_twice() {
        let violation = |rule: &str| Violation { rule: rule.into(), what: "figures".into() };
        let (none, hang, cpu, bytes) =
            (vec![], vec![violation("hang")], vec![violation("cpu")], vec![violation("bytes")]);
        let of = |attempts: &[&Vec<Violation>]| decide(&attempts.iter().map(|&one| one.clone()).collect::<Vec<_>>());
        assert_eq!(of(&[]), Decision::Open);
        assert_eq!(of(&[&none]), Decision::Holds);
        assert_eq!(of(&[&bytes]), Decision::Broken(bytes.clone()));
        assert_eq!(of(&[&hang]), Decision::Open);
        assert_eq!(of(&[&hang, &none]), Decision::Open);
        assert_eq!(of(&[&hang, &cpu]), Decision::Open);
        assert_eq!(of(&[&hang, &none, &none]), Decision::Holds);
        assert_eq!(of(&[&hang, &none, &cpu]), Decision::Holds);
        assert_eq!(of(&[&hang, &none, &bytes]), Decision::Broken(bytes.clone()));
        let twice = vec![violation("hang"), violation("hang")];
        assert_eq!(of(&[&hang, &hang]), Decision::Broken(twice.clone()));
        assert_eq!(of(&[&hang, &none, &hang]), Decision::Broken(twice));
    }

    #[test]
    fn the_busiest_second_is_any_second() {
        assert_eq!(busiest_second(&[]), 0);
        assert_eq!(busiest_second(&[0.9, 1.1, 1.2, 1.95, 5.0]), 3);
        assert_eq!(busiest_second(&[3.0, 1.0, 2.0]), 1);
    }
}
