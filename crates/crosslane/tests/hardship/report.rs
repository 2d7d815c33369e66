//! What people and programs are told: a line a seed, a table, a file of JSON.

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::jobs::{Outcome, Side};
use super::others;
use super::plan::Plan;
use super::programs::Outcome as Ended;
use super::verdict::{busiest_second, cpu_share, hangs};

/// Part of the connections by which a single seed may be worse than the kernel:
/// in one run the other one's luck is part of what is seen.
const LUCK: f64 = 0.1;

/// One manager over all seeds.
#[derive(Debug, Serialize)]
struct Totals {
    connections: usize,
    completed: usize,
    errors: usize,
    hung: usize,
    stall_median_ms: u64,
    stall_p95_ms: u64,
    sockets_gone_worst_s: f64,
    commands_a_second: f64,
    commands_busiest_second: usize,
    log_bytes_worst: u64,
    cpu_share: f64,
    cpu_share_worst: f64,
    broken: usize,
}

/// What a seed stands for.
pub fn plan(plan: &Plan) {
    println!("seed {}: {}", plan.seed, plan.describe());
    plan.hardships.iter().for_each(|hardship| println!("    {}", hardship.describe()));
}

/// What is going to be done.
pub fn begin(plans: &[Plan]) {
    println!("hardship: {} seeds, each with the agent and with the in-kernel path manager", plans.len());
    let missing = others::missing();
    if !missing.is_empty() {
        println!("hardship: without curl and iperf3: {} not installed", missing.join(", "));
    }
}

/// One line when a seed is through, and what it broke.
pub fn seed(outcome: &Outcome) {
    let (agent, kernel) = (counts(&outcome.agent), counts(&outcome.kernel));
    let broken = broken(outcome);
    println!(
        "seed {:>3} {} | {} | completed {}/{} (kernel {}), stall {} ms (kernel {})",
        outcome.plan.seed,
        if broken.is_empty() { "ok    " } else { "BROKEN" },
        outcome.plan.describe(),
        agent.0,
        outcome.plan.connections.len(),
        kernel.0,
        worst_stall(&outcome.agent),
        worst_stall(&outcome.kernel),
    );
    broken.iter().for_each(|what| println!("    {what}"));
}

/// The table, and all that was broken; true if nothing was.
pub fn end(outcomes: &[Outcome], out: Option<&Path>) -> bool {
    let totals = [totals(outcomes, |outcome| &outcome.agent), totals(outcomes, |outcome| &outcome.kernel)];
    let worse = worse_in_all(&totals);
    table(&totals);
    if let Some(folder) = out {
        let whole = serde_json::json!({ "agent": totals[0], "kernel": totals[1], "worse": worse, "seeds": outcomes });
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("hardship.json"), serde_json::to_string(&whole).unwrap()).unwrap();
        println!("all figures: {}", folder.join("hardship.json").display());
    }
    let mut failed = worse.clone();
    for outcome in outcomes {
        let broken = broken(outcome);
        if broken.is_empty() {
            continue;
        }
        println!();
        plan(&outcome.plan);
        broken.iter().for_each(|what| println!("  broken: {what}"));
        println!("  again:  make hardship SEEDS={}", outcome.plan.seed);
        failed.push(format!("seed {}", outcome.plan.seed));
    }
    worse.iter().for_each(|what| println!("broken over all seeds: {what}"));
    println!("\nhardship: {} of {} seeds broke no rule", outcomes.len() - (failed.len() - worse.len()), outcomes.len());
    failed.is_empty()
}

/// What the agent's side broke, and by how much it is worse than the kernel's.
fn broken(outcome: &Outcome) -> Vec<String> {
    let mut all: Vec<String> =
        outcome.agent.broken.iter().map(|violation| format!("{}: {}", violation.rule, violation.what)).collect();
    all.extend(
        outcome
            .kernel
            .broken
            .iter()
            .filter(|violation| violation.rule == "run")
            .map(|violation| violation.what.clone()),
    );
    let number = outcome.plan.connections.len();
    let (agent, kernel) = (counts(&outcome.agent), counts(&outcome.kernel));
    let luck = (LUCK * number as f64).max(1.0) as usize;
    if agent.0 + luck < kernel.0 {
        all.push(format!("worse: completed {} of {number}, the in-kernel path manager {}", agent.0, kernel.0));
    }
    let (ours, theirs) = (outcome.agent.facts.closing_left, outcome.kernel.facts.closing_left);
    if ours > theirs + luck.max(2) {
        all.push(format!("worse: {ours} sockets still closing at the server, the in-kernel path manager {theirs}"));
    }
    all
}

fn worse_in_all([agent, kernel]: &[Totals; 2]) -> Vec<String> {
    let mut worse = Vec::new();
    if agent.completed < kernel.completed {
        worse.push(format!("completed {}, the in-kernel path manager {}", agent.completed, kernel.completed));
    }
    if agent.hung > kernel.hung {
        worse.push(format!("{} hung, with the in-kernel path manager {}", agent.hung, kernel.hung));
    }
    if agent.stall_median_ms > kernel.stall_median_ms + 50 {
        let (ours, theirs) = (agent.stall_median_ms, kernel.stall_median_ms);
        worse.push(format!("median of the worst stall {ours} ms, with the in-kernel path manager {theirs}"));
    }
    worse
}

/// Completed, errors, hung.
fn counts(side: &Side) -> (usize, usize, usize) {
    let completed = side.facts.client.iter().filter(|told| told.outcome == Ended::Done).count();
    let hung = side.facts.client.iter().filter(|told| hangs(&side.facts, told)).count();
    (completed, side.facts.client.len() - completed - hung, hung)
}

/// Longest stall of each connection that completed, as either end saw it.
fn stalls(side: &Side) -> Vec<u64> {
    let done = side.facts.client.iter().filter(|told| told.outcome == Ended::Done);
    let of_server = |id| side.facts.server.iter().filter(move |told| told.id == id).map(|told| told.stall_ms).max();
    done.map(|told| told.stall_ms.max(of_server(told.id).unwrap_or(0))).collect()
}

fn worst_stall(side: &Side) -> u64 {
    stalls(side).into_iter().max().unwrap_or(0)
}

fn totals(outcomes: &[Outcome], side: fn(&Outcome) -> &Side) -> Totals {
    let sides: Vec<(&Plan, &Side)> = outcomes.iter().map(|outcome| (&outcome.plan, side(outcome))).collect();
    let all = sides.iter().map(|(_, side)| counts(side));
    let (completed, errors, hung) = all.fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
    // An agent that is not there, or not asked, cannot help.
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
        completed,
        errors,
        hung,
        stall_median_ms: at(0.5),
        stall_p95_ms: at(0.95),
        sockets_gone_worst_s: gone.fold(0.0, f64::max),
        commands_a_second: commands as f64 / took_s.max(0.001),
        commands_busiest_second: agents.iter().map(|agent| busiest_second(&agent.commands_at_s)).max().unwrap_or(0),
        log_bytes_worst: agents.iter().map(|agent| agent.log_bytes).max().unwrap_or(0),
        cpu_share: cpu_s / f64::max(alive_s, 0.001),
        cpu_share_worst: agents.iter().map(|agent| cpu_share(agent)).fold(0.0, f64::max),
        broken: sides.iter().filter(|(_, side)| !side.broken.is_empty()).count(),
    }
}

fn table([agent, kernel]: &[Totals; 2]) {
    let row = |what: &str, ours: String, theirs: String| println!("{what:<44}{ours:>12}{theirs:>12}");
    println!();
    row("", "agent".into(), "kernel".into());
    row("connections", agent.connections.to_string(), kernel.connections.to_string());
    row("  completed", agent.completed.to_string(), kernel.completed.to_string());
    row("  ended with an honest error", agent.errors.to_string(), kernel.errors.to_string());
    row("  hung", agent.hung.to_string(), kernel.hung.to_string());
    row(
        "worst stall, agent there all the time, ms",
        agent.stall_median_ms.to_string(),
        kernel.stall_median_ms.to_string(),
    );
    row("  95th percentile", agent.stall_p95_ms.to_string(), kernel.stall_p95_ms.to_string());
    let seconds = |value: f64| format!("{value:.1}");
    row(
        "server's sockets gone, at worst, s",
        seconds(agent.sockets_gone_worst_s),
        seconds(kernel.sockets_gone_worst_s),
    );
    row("commands a second", seconds(agent.commands_a_second), "-".into());
    row("commands in the busiest second", agent.commands_busiest_second.to_string(), "-".into());
    row("log of a run, at worst, kB", (agent.log_bytes_worst / 1000).to_string(), "-".into());
    row("agent's share of a core, %", seconds(agent.cpu_share * 100.0), "-".into());
    row("  at worst", seconds(agent.cpu_share_worst * 100.0), "-".into());
    row("seeds with a broken rule", agent.broken.to_string(), kernel.broken.to_string());
}
