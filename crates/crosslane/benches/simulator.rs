//! Speed of the simulator: `cargo bench --bench simulator`.
//!
//! Simulated seconds per second of CPU time, as in the comparison with ns-3 (11
//! to 15, two plain TCP flows) and htsim (3,300, without receive window and
//! reordering): one MPTCP connection, bulk, over two paths of 10 Mbit/s, without
//! packet records; and a drive with an agent, as in regression suites.

use crosslane_core::time::{Duration, Instant};
use crosslane_sim::scenario::{Scenario, ScenarioError};
use crosslane_sim::simulation::{Detail, Simulation};
use nix::sys::resource::{UsageWho, getrusage};

const BULK: &str = r#"
name = "bulk"
duration_s = 600
[vehicle]
route = { from_m = [0, 0], to_m = [100, 0], speed_kmh = 20 }
[[cellular]]
name = "a"
rat = "lte"
rate_mbit_s = 10
delay_ms = 20
[[cellular]]
name = "b"
rat = "lte"
rate_mbit_s = 10
delay_ms = 20
[traffic]
kind = "bulk"
"#;
const DRIVE: &str = include_str!("../../../scenarios/leave-coverage.toml");
/// Simulated seconds per second of CPU time, bulk.
const TARGET: f64 = 500.0;
const ROUNDS: usize = 3;

/// CPU time and results of one run.
struct Run {
    cpu_s: f64,
    events: u64,
    delivered_mb: f64,
}

fn main() {
    // `cargo test --benches` passes no --bench: only the build is tested.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    if let Err(error) = all() {
        eprintln!("{error}");
        std::process::exit(2);
    }
}

fn all() -> Result<(), ScenarioError> {
    println!("{:<52} {:>9} {:>9} {:>10}", "simulator", "sim-s/s", "target", "events/s");
    print("bulk over 2 × 10 Mbit/s, kernel, no records", BULK, "kernel", Some(TARGET))?;
    print("the same with the agent (threshold)", BULK, "threshold", None)?;
    print("leave-coverage, kernel, no records", DRIVE, "kernel", None)?;
    print("leave-coverage, agent (threshold)", DRIVE, "threshold", None)
}

/// Prints the median of some runs, each of at least ten minutes.
fn print(what: &str, text: &str, strategy: &str, target: Option<f64>) -> Result<(), ScenarioError> {
    let scenario = Scenario::parse(text, "bench.toml")?;
    let mut rates: Vec<(f64, f64)> = Vec::new();
    let mut delivered_mb = 0.0;
    for round in 0..ROUNDS {
        let runs = (600.0 / scenario.duration_s).ceil() as u64;
        let (mut cpu_s, mut events) = (0.0, 0);
        for seed in 1..=runs {
            let run = run(&scenario, strategy, round as u64 * runs + seed)?;
            (cpu_s, events) = (cpu_s + run.cpu_s, events + run.events);
            delivered_mb = run.delivered_mb;
        }
        rates.push((scenario.duration_s * runs as f64 / cpu_s, events as f64 / cpu_s));
    }
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (rate, events) = rates[ROUNDS / 2];
    let missed = if target.is_some_and(|target| rate < target) { " !" } else { "" };
    let target = target.map_or(String::new(), |target| format!("{target:.0}"));
    println!("{what:<52} {rate:>9.0} {target:>9} {:>8.2} M{missed}   ({delivered_mb:.0} MB delivered)", events / 1e6);
    Ok(())
}

fn run(scenario: &Scenario, strategy: &str, seed: u64) -> Result<Run, ScenarioError> {
    let strategy = scenario.strategy(strategy).ok_or_else(|| ScenarioError {
        file: scenario.name.clone(),
        line: None,
        what: format!("there is no strategy `{strategy}`"),
        remedy: "name another".into(),
    })?;
    let before = cpu();
    let mut simulation = Simulation::new(scenario, &strategy, seed, Detail::METRICS)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    let recording = simulation.finish();
    let bytes: u64 = recording.sums.delivered_payload_bytes.iter().sum();
    Ok(Run { cpu_s: (cpu() - before).as_secs_f64(), events: recording.events, delivered_mb: bytes as f64 / 1e6 })
}

/// CPU time of this process, user and system.
fn cpu() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let time = |t: nix::sys::time::TimeVal| Duration::from_micros(t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64);
    time(usage.user_time()) + time(usage.system_time())
}
