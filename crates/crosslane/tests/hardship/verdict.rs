//! Rules that must hold after all hardships, and their evaluation.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::beyond::{hangs, is_wrong};
use super::plan::{Kind, Plan};
use super::programs::{ConnectionReport, Outcome};

/// Mean number of commands a second that an agent may send, in addition to those that its
/// connections need for changes of their paths.
pub const COMMANDS_MEAN: f64 = 50.0;
/// Commands that each change of a path may need for each connection: close, open, notify the
/// peer, and one retry.
pub const COMMANDS_A_CHANGE: f64 = 4.0;
/// Up to this number of connections no commands are allowed in addition to the mean.
pub const FEW_CONNECTIONS: usize = 30;
/// Maximum number of commands in any second.
pub const COMMANDS_A_SECOND: usize = 500;
/// Maximum number of MP_JOINs that the kernel of the vehicle may send in any second.
pub const JOINS_A_SECOND: u64 = 500;
/// Maximum log size of a run, which is shorter than a minute.
pub const LOG_BYTES: u64 = 1_000_000;
/// Maximum share of a core that an agent should use; the limit of the rule up to [`FEW_BUSY`]
/// connections.
pub const CPU_SHARE: f64 = 0.03;
/// Limit of the rule with more connections, for which [`CPU_SHARE`] is known not to be met
/// (`docs/limitations.md`): about twice the measured share. Seeds above [`CPU_SHARE`] are
/// counted.
pub const CPU_SHARE_MANY: f64 = 0.1;
/// Maximum number of connections for [`CPU_SHARE`].
pub const FEW_BUSY: usize = 10;
/// Maximum time from the end of the client to the end of the sockets of the server: a minute,
/// and a margin for a busy machine.
pub const SOCKETS_GONE_S: f64 = 62.0;
/// Maximum time from SIGTERM to the exit of the agent.
pub const END_MS: u64 = 100;

/// Rules that can fail by chance, since they compare with another run or with a clock, or
/// depend on the timing of a kernel: they are broken if they fail twice in the same seed.
/// The other rules count events and are broken at once.
pub const BY_CHANCE: [&str; 8] = ["closing", "cpu", "hang", "others", "run", "signal", "sockets", "worse"];
/// Number of attempts that must fail, or hold, to decide a rule of [`BY_CHANCE`].
const DECIDING_ATTEMPTS: usize = 2;

/// Decision about a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// All rules hold; some may have failed once.
    Holds,
    /// It must be carried out (again) for a decision.
    Open,
    /// These are broken.
    Broken(Vec<Violation>),
}

/// Decides about a seed from the rules that each of its attempts broke.
pub fn decide(attempts: &[Vec<Violation>]) -> Decision {
    let fails = |rule: &str| attempts.iter().filter(|broken| broken.iter().any(|one| one.rule == rule)).count();
    let all = || attempts.iter().flatten();
    let is_broken = |one: &&Violation| !BY_CHANCE.contains(&one.rule.as_str()) || fails(&one.rule) >= DECIDING_ATTEMPTS;
    let is_open = |one: &Violation| attempts.len() - fails(&one.rule) < DECIDING_ATTEMPTS;
    let broken: Vec<Violation> = all().filter(is_broken).cloned().collect();
    match (attempts.is_empty(), broken.is_empty()) {
        (true, _) => Decision::Open,
        (_, false) => Decision::Broken(broken),
        _ if all().any(is_open) => Decision::Open,
        _ => Decision::Holds,
    }
}

/// Measurements of the agents of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AgentFacts {
    /// Number of agents started.
    pub starts: u32,
    /// Time of each command, in s of the run.
    pub commands_at_s: Vec<f64>,
    /// Commands that the kernel rejected.
    pub refused: u64,
    /// Size of events and standard error.
    pub log_bytes: u64,
    /// Processor time of all agents.
    pub cpu_s: f64,
    /// Time during which an agent was running.
    pub alive_s: f64,
    /// Longest time from SIGTERM to the exit.
    pub longest_end_ms: u64,
    /// Other faults, a message each.
    pub faults: Vec<String>,
}

/// Measurements of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Reports of the client, one for each connection.
    pub client: Vec<ConnectionReport>,
    /// Reports of the server, one for each connection that it accepted.
    pub server: Vec<ConnectionReport>,
    /// Measurements of the agents; `None` with the in-kernel path manager.
    pub agent: Option<AgentFacts>,
    /// Maximum number of MP_JOINs that the kernel of the vehicle sent within a second.
    pub joins_a_second: u64,
    /// Time from the end of the client to the end of the server's sockets; `None` if some were left.
    pub sockets_gone_s: Option<f64>,
    /// Sockets that were left.
    pub sockets_left: Vec<String>,
    /// Sockets that the kernel of the server has closed, or whose handshake is incomplete, and whose
    /// last segment is unacknowledged 10 s after the end of the client or later: TCP timers end them.
    pub closing_left: usize,
    /// Connections without a subflow from an existing address shortly before the deadline, by
    /// their addresses at the client.
    pub cut_off: Vec<SocketAddr>,
    /// Third-party programs: name, and the fault if there is one.
    pub others: Vec<(String, Option<String>)>,
    /// Duration of the run.
    pub took_s: f64,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Name of the rule.
    pub rule: String,
    /// Description with figures.
    pub what: String,
}

/// All rules that a run broke.
pub fn evaluate(plan: &Plan, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut broken = |rule: &str, what: String| found.push(Violation { rule: rule.into(), what });
    evaluate_connections(plan, facts, &mut broken);
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
        evaluate_agent(plan, facts, agent, &mut broken);
    }
    found
}

fn evaluate_connections(plan: &Plan, facts: &Facts, broken: &mut impl FnMut(&str, String)) {
    let of = |report: &ConnectionReport| {
        let kind = plan.connections.iter().find(|traffic| traffic.id == report.id).map(|traffic| traffic.kind);
        format!("{} ({:?}) {}", report.id, kind.unwrap_or(Kind::Up), report.why)
    };
    if facts.client.len() != plan.connections.len() {
        broken("bytes", format!("the client reported {} of {}", facts.client.len(), plan.connections.len()));
    }
    let both = || facts.client.iter().chain(&facts.server);
    let wrong: Vec<String> = both().filter(|report| is_wrong(facts, report)).map(of).collect();
    if !wrong.is_empty() {
        broken("bytes", format!("{} with wrong bytes: {}", wrong.len(), some(&wrong)));
    }
    let is_done = |report: &&ConnectionReport| report.outcome == Outcome::Done;
    let not_at_server: Vec<String> = facts
        .client
        .iter()
        .filter(is_done)
        .filter(|report| !facts.server.iter().filter(is_done).any(|other| other.id == report.id))
        .map(of)
        .collect();
    // The server may not learn of the end: the last FIN of a client that has read everything may be lost.
    let unknown = not_at_server
        .iter()
        .filter(|text| !facts.server.iter().any(|other| text.starts_with(&format!("{} ", other.id))));
    let unknown: Vec<String> = unknown.cloned().collect();
    if !unknown.is_empty() {
        broken("bytes", format!("done at the client, unknown at the server: {}", some(&unknown)));
    }
    let hung: Vec<String> = facts.client.iter().filter(|report| hangs(plan, facts, report)).map(of).collect();
    if !hung.is_empty() {
        broken("hang", format!("{} after 10 s of calm: {}", hung.len(), some(&hung)));
    }
}

fn evaluate_agent(plan: &Plan, facts: &Facts, agent: &AgentFacts, broken: &mut impl FnMut(&str, String)) {
    agent.faults.iter().for_each(|fault| broken("agent", fault.clone()));
    let (commands, peak) = (agent.commands_at_s.len(), busiest_second(&agent.commands_at_s));
    let allowed = commands_allowed(plan, facts.took_s);
    if commands as f64 > allowed {
        let rejected = agent.refused;
        broken(
            "commands",
            format!("{commands} in {:.0} s ({rejected} rejected), allowed are {allowed:.0}", facts.took_s),
        );
    }
    if peak > COMMANDS_A_SECOND {
        broken("commands", format!("{peak} in one second, the limit is {COMMANDS_A_SECOND}"));
    }
    if agent.log_bytes > LOG_BYTES {
        broken("log", format!("{} kB, allowed are {} a minute", agent.log_bytes / 1000, LOG_BYTES / 1000));
    }
    let limit = if plan.connections.len() <= FEW_BUSY { CPU_SHARE } else { CPU_SHARE_MANY };
    if cpu_share(agent) > limit {
        broken("cpu", format!("{:.1} % of a core, the limit is {:.0} %", cpu_share(agent) * 100.0, limit * 100.0));
    }
    if agent.longest_end_ms > END_MS {
        broken("signal", format!("the exit took {} ms after SIGTERM", agent.longest_end_ms));
    }
}

/// One subflow for each connection and change of a path: if the server closes a subflow because
/// its remote address was withdrawn, its kernel repeats the FIN to that address for 100 s. A path
/// manager that recovers from more changes leaves more of them.
pub fn closing_allowed(plan: &Plan) -> usize {
    let changes: u64 = plan.hardships.iter().map(|hardship| hardship.kind.changes().div_ceil(2)).sum();
    plan.connections.len() * (changes as usize).max(1)
}

/// Allowed number of commands: the mean, and with many connections those for changes of paths.
pub fn commands_allowed(plan: &Plan, took_s: f64) -> f64 {
    let mean = COMMANDS_MEAN * took_s;
    if plan.connections.len() <= FEW_CONNECTIONS {
        return mean;
    }
    let changes = 2 + plan.hardships.iter().map(|hardship| hardship.kind.changes()).sum::<u64>();
    mean + COMMANDS_A_CHANGE * (changes * plan.connections.len() as u64) as f64
}

/// Share of a core that the agents used while one was running.
pub fn cpu_share(agent: &AgentFacts) -> f64 {
    agent.cpu_s / agent.alive_s.max(0.001)
}

/// Maximum number of times within any second.
pub fn busiest_second(times_s: &[f64]) -> usize {
    let mut sorted = times_s.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut from = 0;
    let mut max = 0;
    for (place, time_s) in sorted.iter().enumerate() {
        while time_s - sorted[from] >= 1.0 {
            from += 1;
        }
        max = max.max(place + 1 - from);
    }
    max
}

/// The first four, for a message.
fn some(all: &[String]) -> String {
    let shown = all.iter().take(4).cloned().collect::<Vec<_>>().join("; ");
    if all.len() > 4 { shown + "; …" } else { shown }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A run that breaks no rule.
    fn good() -> (Plan, Facts) {
        let mut plan = Plan::draw(1);
        plan.connections.truncate(5);
        plan.hardships.clear();
        let report = |id| ConnectionReport {
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
        let all: Vec<ConnectionReport> = plan.connections.iter().map(|traffic| report(traffic.id)).collect();
        let agent =
            AgentFacts { starts: 1, commands_at_s: vec![1.0; 9], cpu_s: 0.1, alive_s: 10.0, ..AgentFacts::default() };
        let (server, agent) = (all.clone(), Some(agent));
        let facts = Facts { client: all, server, agent, sockets_gone_s: Some(1.0), took_s: 10.0, ..Facts::default() };
        (plan, facts)
    }

    /// The rules that are broken after the change by `spoil`.
    pub fn broken(spoil: impl FnOnce(&mut Plan, &mut Facts, &mut AgentFacts)) -> Vec<String> {
        let (mut plan, mut facts) = good();
        let mut agent = facts.agent.take().unwrap();
        spoil(&mut plan, &mut facts, &mut agent);
        facts.agent = Some(agent);
        evaluate(&plan, &facts).into_iter().map(|violation| violation.rule).collect()
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
    fn a_rule_is_broken_at_once_or_after_two_failures() {
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
    fn the_busiest_second_may_start_at_any_time() {
        assert_eq!(busiest_second(&[]), 0);
        assert_eq!(busiest_second(&[0.9, 1.1, 1.2, 1.95, 5.0]), 3);
        assert_eq!(busiest_second(&[3.0, 1.0, 2.0]), 1);
    }
}
