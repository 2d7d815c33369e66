//! Hardships on real namespaces: rules that must hold after them, with the agent and, for
//! comparison, with the in-kernel path manager. `docs/design/hardship.md` describes the plans and
//! the rules. This is a separate program without a test harness, since a run must be
//! contained before it starts threads.
//!
//! ```text
//! cargo test --release -p crosslane --test hardship -- --seeds 1..100 --out runs/hardship
//! ```

#![allow(clippy::unwrap_used)]
// Without a harness the unit tests of the modules are not compiled; `hardship_rules` runs them.
#![allow(unused_imports, dead_code)]

mod agents;
mod beyond;
mod exchange;
mod hardships;
mod jobs;
mod others;
mod packet;
mod plan;
mod programs;
mod report;
mod router;
mod run;
mod selfcheck;
mod topology;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use jobs::Outcome;
use plan::Plan;
use run::Manager;
use socket2::{Domain, Protocol, Socket, Type};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().and_then(|first| first.strip_prefix("--role=")) {
        Some(role) => run_role(role, &arguments[1..]),
        None => run_seeds(&arguments),
    }
}

/// Runs this program in a role for which a run has started it.
fn run_role(role: &str, arguments: &[String]) -> ExitCode {
    match (role, arguments) {
        ("client", [orders, report]) => programs::client(Path::new(orders), Path::new(report)),
        ("server", [address, origin_ns, report]) => {
            programs::server(address.parse().unwrap(), origin_ns.parse().unwrap(), Path::new(report));
        }
        ("run", [plan, manager, folder, parent]) => {
            let plan: Plan = serde_json::from_str(plan).unwrap();
            let manager = if manager == "agent" { Manager::Agent } else { Manager::Kernel };
            if let Err(error) = run::carry_out(&plan, manager, Path::new(folder), parent.parse().unwrap()) {
                eprintln!("{error}");
                return ExitCode::from(error.exit_code());
            }
        }
        ("probe", _) => {
            if let Err(why) = probe() {
                eprintln!("{why}");
                return ExitCode::from(2);
            }
        }
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

/// Tries the first steps of every run.
fn probe() -> Result<(), String> {
    crosslane::testbed::prepare_privileges().map_err(|error| error.to_string())?;
    let namespace = crosslane::testbed::Namespace::new().map_err(|error| error.to_string())?;
    let mptcp = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).map(drop);
    let opened = namespace.enter(mptcp).map_err(|error| error.to_string())?;
    opened.map_err(|cause| format!("while opening an MPTCP socket: {cause}; use a kernel with CONFIG_MPTCP"))
}

struct Options {
    seeds: Vec<u64>,
    out: Option<PathBuf>,
    jobs: usize,
    plans_only: bool,
}

/// Parses our options; options that `cargo test` passes to every test program are ignored.
fn read(arguments: &[String]) -> Option<Options> {
    let mut options = Options { seeds: plan::SHORT.to_vec(), out: None, jobs: 2, plans_only: false };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--seeds" => options.seeds = seeds(rest.next()?)?,
            "--out" => options.out = Some(rest.next()?.into()),
            "--jobs" => options.jobs = rest.next()?.parse().ok()?,
            "--plans" => options.plans_only = true,
            _ => {}
        }
    }
    options.seeds.sort_unstable();
    options.seeds.dedup();
    Some(options)
}

/// Parses a list such as `1..3,7`; ranges include both bounds.
fn seeds(text: &str) -> Option<Vec<u64>> {
    let mut found = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once("..").unwrap_or((part, part));
        found.extend(from.parse::<u64>().ok()?..=to.parse::<u64>().ok()?);
    }
    Some(found)
}

fn usage() -> ExitCode {
    eprintln!(
        "hardship: while reading the arguments: they are invalid; give --seeds 1..100 --out FOLDER --jobs 2 or --plans"
    );
    ExitCode::from(2)
}

fn run_seeds(arguments: &[String]) -> ExitCode {
    let Some(options) = read(arguments) else { return usage() };
    // A filter that `cargo test NAME` passes to every test program.
    if arguments.first().is_some_and(|first| !first.starts_with("--") && !"hardship".contains(first.as_str())) {
        return ExitCode::SUCCESS;
    }
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let plans: Vec<Plan> = options.seeds.iter().map(|&seed| Plan::draw(seed)).collect();
    if options.plans_only {
        plans.iter().for_each(report::plan);
        return ExitCode::SUCCESS;
    }
    if let Err(why) = jobs::probe() {
        eprintln!("hardship NOT RUN: {}", why.trim());
        return if std::env::var("CI").as_deref() == Ok("true") { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    report::begin(&plans);
    let missed = jobs::self_check(options.jobs);
    if !missed.is_empty() {
        missed.iter().for_each(|what| println!("hardship: {what}"));
        return ExitCode::FAILURE;
    }
    let outcomes: Vec<Outcome> = jobs::run_all(&plans, options.jobs, options.out.as_deref());
    let ok = report::end(&outcomes, options.out.as_deref(), || {
        let all = jobs::run_once(&plans, options.jobs, options.out.as_deref(), jobs::RERUN);
        all.into_iter().map(|(_, attempt)| attempt).collect()
    });
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
