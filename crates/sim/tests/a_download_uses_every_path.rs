//! What the vehicle receives fills a path too: a download for which one path does not suffice goes over all of them, and
//! messages do not.

use std::error::Error;

use crosslane_core::agent::Output;
use crosslane_core::path::PathState;
use crosslane_core::time::Instant;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Simulation};

const DURATION_S: f64 = 15.0;

/// Mbit/s delivered over 8 and 12 Mbit/s by strategy `adaptive`, and whether both paths ever carried.
fn run(mode: &str, traffic: &str) -> Result<(f64, bool), Box<dyn Error>> {
    let text = format!(
        "name = \"download\"\ntitle = \"A download over two cellular paths\"\nduration_s = {DURATION_S}\n\
         [vehicle]\nroute = {{ from_m = [0, 0], to_m = [1, 0], speed_kmh = 1 }}\n\
         [[cellular]]\nname = \"a\"\nrat = \"lte\"\nrate_mbit_s = 8\ndelay_ms = 20\n\
         [[cellular]]\nname = \"b\"\nrat = \"nr\"\nrate_mbit_s = 12\ndelay_ms = 15\n\
         [service]\nprefer = [\"a\", \"b\"]\nmode = \"{mode}\"\n[traffic]\ndirection = \"down\"\n{traffic}\n"
    );
    let scenario = Scenario::parse(&text, "download.toml")?;
    let strategy = scenario.strategy("adaptive").ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, 1, Detail::METRICS)?;
    simulation.run_until(Instant::from_secs_f64(DURATION_S));
    let run = simulation.finish();
    let delivered = run.messages.iter().filter(|message| message.received_ns.is_some());
    let mbit: f64 = delivered.map(|message| f64::from(message.size_bytes) * 8e-6).sum();
    let shares = run.agent_outputs.iter().any(|(_, output)| match output {
        Output::Decision { reason, state, .. } => {
            *state == PathState::Active && matches!(reason.rule, "adaptive.share" | "cost-first.spill")
        }
        _ => false,
    });
    Ok((mbit / DURATION_S, shares))
}

#[test]
fn a_download_that_fills_a_path_goes_over_all() -> Result<(), Box<dyn Error>> {
    for mode in ["aggregate", "cost-first"] {
        let (mbit_s, shares) = run(mode, "kind = \"bulk\"")?;
        assert!(shares && mbit_s > 14.0, "{mode}: {mbit_s} Mbit/s");
    }
    let (_, shares) = run("aggregate", "kind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20")?;
    assert!(!shares, "messages");
    Ok(())
}
