//! Output: a line for each seed, a table, and a JSON file.

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::beyond::hangs;
use super::jobs::{Attempt, Outcome, Side};
use super::others;
use super::plan::Plan;
use super::programs::Outcome as Ended;
use super::verdict::{CPU_SHARE, Decision, Violation, busiest_second, cpu_share};

/// Share of the connections by which a single seed may be worse than the kernel, since a single
/// run of the kernel includes random variation.
const RANDOM_VARIATION: f64 = 0.1;

/// Maximum number of seeds for which all seeds are rerun if the comparison over all fails.
const MAX_RERUN_SEEDS: usize = 20;

/// Totals of one path manager over all seeds.
#[derive(Debug, Serialize)]
struct Totals {
    connections: usize,
    completed: usize,
    errors: usize,
    hung: usize,
    stuck: usize,
    stall_median_ms: u64,
    stall_p95_ms: u64,
    sockets_gone_worst_s: f64,
    closing_left: usize,
    commands_a_second: f64,
    commands_busiest_second: usize,
    log_bytes_worst: u64,
    cpu_share: f64,
    cpu_share_worst: f64,
    above_cpu_share: usize,
    broken: usize,
}

/// Prints the plan of a seed.
pub fn plan(plan: &Plan) {
    println!("seed {}: {}", plan.seed, plan.describe());
    plan.hardships.iter().for_each(|hardship| println!("    {}", hardship.describe()));
}

/// Prints the number of seeds and missing programs.
pub fn begin(plans: &[Plan]) {
    println!("hardship: {} seeds, each with the agent and with the in-kernel path manager", plans.len());
    let missing = others::missing();
    if !missing.is_empty() {
        println!("hardship: without curl and iperf3: {} not installed", missing.join(", "));
    }
}

/// Prints the seeds that are repeated.
pub fn repeat(plans: &[Plan]) {
    let seeds: Vec<String> = plans.iter().map(|plan| plan.seed.to_string()).collect();
    println!("AGAIN: seeds {}: a rule failed that can fail by chance; a defect fails again", seeds.join(", "));
}

/// Prints one line for a completed seed, and the rules that it broke.
pub fn attempt(plan: &Plan, attempt: &Attempt) {
    let (agent, kernel) = (counts(plan, &attempt.agent), counts(plan, &attempt.kernel));
    let broken = broken(plan, attempt);
    println!(
        "seed {:>3} {} | {} | completed {}/{} (kernel {}), stall {} ms (kernel {})",
        plan.seed,
        if broken.is_empty() { "ok    " } else { "FAILED" },
        plan.describe(),
        agent.completed,
        plan.connections.len(),
        kernel.completed,
        worst_stall(&attempt.agent),
        worst_stall(&attempt.kernel),
    );
    broken.iter().for_each(|one| println!("    {}: {}", one.rule, one.what));
}

/// Prints the table and all broken rules; true if there are none. `rerun` repeats all seeds
/// if only the comparison over all of them fails.
pub fn end(outcomes: &[Outcome], out: Option<&Path>, rerun: impl FnOnce() -> Vec<Attempt>) -> bool {
    let first: Vec<&Attempt> = outcomes.iter().map(|outcome| &outcome.attempts[0]).collect();
    let plans: Vec<&Plan> = outcomes.iter().map(|outcome| &outcome.plan).collect();
    let totals = both(&plans, &first);
    table(&totals);
    let mut worse = worse_in_all(&totals);
    if !worse.is_empty() && outcomes.len() <= MAX_RERUN_SEEDS {
        worse.iter().for_each(|one| println!("over all seeds {}: {}", one.rule, one.what));
        println!("AGAIN: all seeds; the comparison over all of them can fail by chance, a defect fails again");
        let second = rerun();
        let totals = both(&plans, &second.iter().collect::<Vec<_>>());
        table(&totals);
        let rules: Vec<String> = worse.into_iter().map(|one| one.rule).collect();
        worse = worse_in_all(&totals).into_iter().filter(|one| rules.contains(&one.rule)).collect();
    }
    if let Some(folder) = out {
        let document =
            serde_json::json!({ "agent": totals[0], "kernel": totals[1], "worse": worse, "seeds": outcomes });
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("hardship.json"), serde_json::to_string(&document).unwrap()).unwrap();
        println!("all figures: {}", folder.join("hardship.json").display());
    }
    let broken: Vec<usize> = outcomes.iter().map(explain).filter(|&broken| broken > 0).collect();
    worse.iter().for_each(|one| println!("broken over all seeds: {}: {}", one.rule, one.what));
    let repeated = outcomes.iter().filter(|outcome| outcome.attempts.len() > 1).count();
    println!(
        "\nhardship: {} of {} seeds broke no rule; {repeated} were repeated",
        outcomes.len() - broken.len(),
        outcomes.len(),
    );
    broken.is_empty() && worse.is_empty()
}

/// Prints the rules that a seed broke; returns their number.
fn explain(outcome: &Outcome) -> usize {
    let Decision::Broken(broken) = outcome.decision() else { return 0 };
    println!();
    plan(&outcome.plan);
    broken.iter().for_each(|one| println!("  broken: {}: {}", one.rule, one.what));
    println!("  in {} attempts; again:  make hardship SEEDS={}", outcome.attempts.len(), outcome.plan.seed);
    broken.len()
}

/// The rules that the run with the agent broke, including `worse`.
pub fn broken(plan: &Plan, attempt: &Attempt) -> Vec<Violation> {
    let mut all = attempt.agent.broken.clone();
    all.extend(attempt.kernel.broken.iter().filter(|one| one.rule == "run").cloned());
    let number = plan.connections.len();
    let (agent, kernel) = (counts(plan, &attempt.agent), counts(plan, &attempt.kernel));
    let margin = (RANDOM_VARIATION * number as f64).max(1.0) as usize;
    if agent.completed + margin < kernel.completed {
        let (ours, kernels) = (agent.completed, kernel.completed);
        let what = format!("completed {ours} of {number}, the in-kernel path manager {kernels}");
        all.push(Violation { rule: "worse".into(), what });
    }
    all
}

fn worse_in_all([agent, kernel]: &[Totals; 2]) -> Vec<Violation> {
    let mut all = Vec::new();
    let mut worse = |rule: &str, what| all.push(Violation { rule: rule.into(), what });
    if agent.completed < kernel.completed {
        worse("completed", format!("{}, the in-kernel path manager {}", agent.completed, kernel.completed));
    }
    if agent.hung > kernel.hung {
        worse("hung", format!("{}, with the in-kernel path manager {}", agent.hung, kernel.hung));
    }
    if agent.stall_median_ms > kernel.stall_median_ms + 50 {
        let (ours, kernels) = (agent.stall_median_ms, kernel.stall_median_ms);
        worse("stall", format!("median of the worst {ours} ms, with the in-kernel path manager {kernels}"));
    }
    all
}

/// Connections by how they ended.
#[derive(Debug, Default)]
struct Counts {
    completed: usize,
    errors: usize,
    hung: usize,
    /// They hung or received duplicate bytes, and no path manager can prevent it.
    stuck: usize,
}

fn counts(plan: &Plan, side: &Side) -> Counts {
    let of = |outcome| side.facts.client.iter().filter(|report| report.outcome == outcome).count();
    let hung = side.facts.client.iter().filter(|report| hangs(plan, &side.facts, report)).count();
    let (completed, errors) = (of(Ended::Done), of(Ended::Error));
    Counts { completed, errors, hung, stuck: side.facts.client.len() - completed - errors - hung }
}

/// Longest stall of each completed connection, at either endpoint.
fn stalls(side: &Side) -> Vec<u64> {
    let done = side.facts.client.iter().filter(|report| report.outcome == Ended::Done);
    let of_server =
        |id| side.facts.server.iter().filter(move |report| report.id == id).map(|report| report.stall_ms).max();
    done.map(|report| report.stall_ms.max(of_server(report.id).unwrap_or(0))).collect()
}

fn worst_stall(side: &Side) -> u64 {
    stalls(side).into_iter().max().unwrap_or(0)
}

/// Totals of both path managers.
fn both(plans: &[&Plan], attempts: &[&Attempt]) -> [Totals; 2] {
    [totals(plans, attempts, |attempt| &attempt.agent), totals(plans, attempts, |attempt| &attempt.kernel)]
}

fn totals(plans: &[&Plan], attempts: &[&Attempt], side: fn(&Attempt) -> &Side) -> Totals {
    let sides = plans.iter().copied().zip(attempts.iter().map(|&attempt| side(attempt)));
    let sides: Vec<(&Plan, &Side)> = sides.collect();
    let ended: Vec<Counts> = sides.iter().map(|(plan, side)| counts(plan, side)).collect();
    let all = |number: fn(&Counts) -> usize| ended.iter().map(number).sum();
    // Seeds in which an agent manages the connections all the time.
    let throughout = sides.iter().filter(|(plan, _)| plan.is_managed_throughout());
    let mut worst: Vec<u64> = throughout.map(|(_, side)| worst_stall(side)).collect();
    worst.sort_unstable();
    let at = |part: f64| worst.get(((worst.len() as f64 - 1.0) * part) as usize).copied().unwrap_or(0);
    let agents: Vec<_> = sides.iter().filter_map(|(_, side)| side.facts.agent.as_ref()).collect();
    let took_s: f64 = sides.iter().map(|(_, side)| side.facts.took_s).sum();
    let commands: usize = agents.iter().map(|agent| agent.commands_at_s.len()).sum();
    let (cpu_s, alive_s) = agents.iter().fold((0.0, 0.0), |sum, agent| (sum.0 + agent.cpu_s, sum.1 + agent.alive_s));
    let gone = sides.iter().map(|(_, side)| side.facts.sockets_gone_s.unwrap_or(f64::INFINITY));
    Totals {
        connections: sides.iter().map(|(plan, _)| plan.connections.len()).sum(),
        completed: all(|ended| ended.completed),
        errors: all(|ended| ended.errors),
        hung: all(|ended| ended.hung),
        stuck: all(|ended| ended.stuck),
        stall_median_ms: at(0.5),
        stall_p95_ms: at(0.95),
        sockets_gone_worst_s: gone.fold(0.0, f64::max),
        closing_left: sides.iter().map(|(_, side)| side.facts.closing_left).sum(),
        commands_a_second: commands as f64 / took_s.max(0.001),
        commands_busiest_second: agents.iter().map(|agent| busiest_second(&agent.commands_at_s)).max().unwrap_or(0),
        log_bytes_worst: agents.iter().map(|agent| agent.log_bytes).max().unwrap_or(0),
        cpu_share: cpu_s / f64::max(alive_s, 0.001),
        cpu_share_worst: agents.iter().map(|agent| cpu_share(agent)).fold(0.0, f64::max),
        above_cpu_share: agents.iter().filter(|agent| cpu_share(agent) > CPU_SHARE).count(),
        broken: sides.iter().filter(|(_, side)| !side.broken.is_empty()).count(),
    }
}

fn table([agent, kernel]: &[Totals; 2]) {
    let row = |what: &str, agent: String, kernel: String| println!("{what:<44}{agent:>12}{kernel:>12}");
    println!();
    row("", "agent".into(), "kernel".into());
    row("connections", agent.connections.to_string(), kernel.connections.to_string());
    row("  completed", agent.completed.to_string(), kernel.completed.to_string());
    row("  ended with an explicit error", agent.errors.to_string(), kernel.errors.to_string());
    row("  hung", agent.hung.to_string(), kernel.hung.to_string());
    row("  lost, not preventable", agent.stuck.to_string(), kernel.stuck.to_string());
    row(
        "worst stall, agent present all the time, ms",
        agent.stall_median_ms.to_string(),
        kernel.stall_median_ms.to_string(),
    );
    row("  95th percentile", agent.stall_p95_ms.to_string(), kernel.stall_p95_ms.to_string());
    let seconds = |value: f64| format!("{value:.1}");
    row("server's sockets gone, maximum, s", seconds(agent.sockets_gone_worst_s), seconds(kernel.sockets_gone_worst_s));
    row("server's sockets closing 10 s later", agent.closing_left.to_string(), kernel.closing_left.to_string());
    row("commands a second", seconds(agent.commands_a_second), "-".into());
    row("commands in the busiest second", agent.commands_busiest_second.to_string(), "-".into());
    row("log of a run, maximum, kB", (agent.log_bytes_worst / 1000).to_string(), "-".into());
    row("agent's share of a core, %", seconds(agent.cpu_share * 100.0), "-".into());
    row("  maximum", seconds(agent.cpu_share_worst * 100.0), "-".into());
    row("  seeds above 3 % (docs/limitations.md)", agent.above_cpu_share.to_string(), "-".into());
    row("seeds that failed at first", agent.broken.to_string(), kernel.broken.to_string());
}
