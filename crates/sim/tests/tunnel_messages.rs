//! Messages through the multipath tunnel: the second path does not delay them.

use std::error::Error;

use crosslane_core::time::Instant;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Simulation};

/// Rate in Mbit/s, one-way delay in ms, loss.
type Path = (f64, f64, f64);

/// Messages of 1 Mbit/s over TCP.
fn scenario(paths: &[Path]) -> String {
    let mut text = "name = \"pair\"\nduration_s = 20\n".to_string();
    text += "[vehicle]\nroute = { from_m = [0, 0], to_m = [1, 0], speed_kmh = 1 }\n";
    text += "[traffic]\nkind = \"messages\"\nsize_bytes = 1250\nevery_ms = 10\n";
    for (name, (rate, delay, loss)) in ["a", "b"].iter().zip(paths) {
        text += &format!("[[cellular]]\nname = \"{name}\"\nrat = \"lte\"\nrate_mbit_s = {rate}\n");
        text += &format!("delay_ms = {delay}\nloss = {loss}\n");
    }
    text
}

/// 99th percentile of the delays, in ms, the median of three seeds.
fn p99(paths: &[Path], strategy: &str) -> Result<f64, Box<dyn Error>> {
    let mut scenario = Scenario::parse(&scenario(paths), "test.toml")?;
    scenario.resolve(&std::collections::BTreeMap::new())?;
    let strategy = scenario.strategy(strategy).ok_or("no such strategy")?;
    let mut p99s = [0; 3];
    for (p99, seed) in p99s.iter_mut().zip(1..) {
        let mut simulation = Simulation::new(&scenario, &strategy, seed, Detail::METRICS)?;
        simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
        let received = simulation.finish().messages.into_iter().map(|row| row.received_ns.map(|at| at - row.sent_ns));
        let mut delays: Vec<u64> = received.map(|delay| delay.unwrap_or(u64::MAX)).collect();
        delays.sort_unstable();
        *p99 = delays[delays.len() * 99 / 100];
    }
    p99s.sort_unstable();
    Ok(p99s[1] as f64 / 1e6)
}

/// The other path is faster and has more delay, also loses packets, or has less delay and loses packets.
#[test]
fn messages_take_the_better_path_whatever_its_rate() -> Result<(), Box<dyn Error>> {
    for (better, other) in [
        ((3.4, 3.0, 0.0), (153.0, 41.0, 0.0)),
        ((3.8, 24.0, 0.0), (40.0, 74.0, 0.005)),
        ((10.0, 30.0, 0.0), (10.0, 25.0, 0.02)),
    ] {
        let (tunnel, alone) = (p99(&[other, better], "tunnel")?, p99(&[better], "single")?);
        println!("{tunnel:.1} ms, the better path alone {alone:.1}");
        assert!(tunnel <= alone + 5.0, "{better:?} beside {other:?}: {tunnel} ms, the better path alone {alone}");
    }
    Ok(())
}
