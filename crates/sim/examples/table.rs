#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]
use crosslane_core::time::Instant;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Simulation};
// table FILE strategies seeds congestion
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&a[1]).unwrap();
    let text = text.replacen("duration_s", &format!("congestion = \"{}\"\nduration_s", a[4]), 1);
    let mut scenario = Scenario::parse(&text, &a[1]).unwrap();
    scenario.resolve(&Default::default()).unwrap();
    for name in a[2].split(',') {
        for seed in 1..=a[3].parse::<u64>().unwrap() {
            let mut strategy = scenario.strategy(name.split(':').next().unwrap()).unwrap();
            if let Some((_, path)) = name.split_once(':') {
                strategy.parameters.insert("path".into(), path.into());
            }
            let mut s = Simulation::new(&scenario, &strategy, seed, Detail::METRICS).unwrap();
            s.run_until(Instant::from_secs_f64(scenario.duration_s));
            let rows = s.finish().messages;
            let g = |f: f64, t: f64| {
                rows.iter()
                    .filter(|r| r.received_ns.is_some_and(|at| (f..t).contains(&(at as f64 / 1e9))))
                    .map(|r| u64::from(r.size_bytes))
                    .sum::<u64>() as f64
                    * 8e-6
                    / (t - f)
            };
            println!(
                "{name} s{seed} goodput {:.1} after3 {:.1} | {}",
                g(0.0, scenario.duration_s),
                g(3.0, scenario.duration_s - 1.0),
                (0..(scenario.duration_s as usize) / 2)
                    .map(|i| format!("{:.0}", g(i as f64 * 2.0, i as f64 * 2.0 + 2.0)))
                    .collect::<Vec<_>>()
                    .join(" ")
            );
        }
    }
}
