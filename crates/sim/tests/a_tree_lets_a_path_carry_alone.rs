//! A learned tree may let one path carry alone: with a short send buffer that brings more than both paths where one of
//! them is much slower, since what waits for it holds up the rest.

use std::error::Error;

use crosslane_core::time::Instant;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Simulation};

const DURATION_S: f64 = 20.0;

/// The path with the shorter RTT: alone, or first.
fn tree(is_alone: bool) -> String {
    let leaf = |a_first: u8| format!("{{\"a_first\": {a_first}, \"alone\": {is_alone}}}");
    format!(
        "{{\"format\": \"crosslane-tree\", \"version\": 1, \"strategy\": \"learned\", \"fallback\": \"no-order\",
          \"nodes\": [{{\"feature\": \"a-b.rtt_ms\", \"at_most\": 0, \"yes\": 1, \"no\": 2}}, {}, {}]}}",
        leaf(1),
        leaf(0)
    )
}

/// Delivered in a bulk upload over a fast and a slow path, with the kernel's scheduler, in MB.
fn delivered_mb(is_alone: bool, send_buffer: u32) -> Result<f64, Box<dyn Error>> {
    let text = format!(
        "name = \"alone\"\ntitle = \"A fast and a slow path\"\nduration_s = {DURATION_S}\n\
         [vehicle]\nroute = {{ from_m = [0, 0], to_m = [1, 0], speed_kmh = 1 }}\n\
         [[cellular]]\nname = \"slow\"\nrat = \"lte\"\nrate_mbit_s = 3\ndelay_ms = 40\n\
         [[cellular]]\nname = \"fast\"\nrat = \"nr\"\nrate_mbit_s = 20\ndelay_ms = 12\n\
         [service]\nprefer = [\"slow\", \"fast\"]\n\
         [traffic]\nkind = \"bulk\"\nsend_buffer_bytes = {send_buffer}\n\
         [[strategy]]\nname = \"x\"\nbase = \"learned\"\ntree = \"tree.json\"\ntrials = 0\n"
    );
    let mut scenario = Scenario::parse(&text, "alone.toml")?;
    scenario.resolve(&[("tree.json".to_owned(), tree(is_alone))].into_iter().collect())?;
    let strategy = scenario.strategy("x").ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, 1, Detail::METRICS)?;
    simulation.run_until(Instant::from_secs_f64(DURATION_S));
    let run = simulation.finish();
    let delivered = run.messages.iter().filter(|message| message.received_ns.is_some());
    Ok(delivered.map(|message| f64::from(message.size_bytes)).sum::<f64>() / 1e6)
}

#[test]
fn with_a_short_buffer_the_fast_path_brings_more_alone_than_both() -> Result<(), Box<dyn Error>> {
    let [both, alone] = [delivered_mb(false, 64_000)?, delivered_mb(true, 64_000)?];
    assert!(alone > 1.2 * both, "{alone} MB alone, {both} over both");
    let [both, alone] = [delivered_mb(false, 4_000_000)?, delivered_mb(true, 4_000_000)?];
    assert!(alone < 0.97 * both, "{alone} MB alone, {both} over both, with a long buffer");
    Ok(())
}
