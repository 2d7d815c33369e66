//! Strategy `adaptive` judges what comes down to the vehicle by what a receiver can tell.

use std::collections::BTreeMap;
use std::error::Error;

use crosslane_core::agent::Output;
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Recording, Simulation};

const ENTER_COVERAGE: &str = include_str!("../../../scenarios/enter-coverage.toml");

type Outcome = Result<(), Box<dyn Error>>;

fn run(text: &str, trace: &str, strategy: &str, seed: u64) -> Result<Recording, Box<dyn Error>> {
    let mut scenario = Scenario::parse(text, "down.toml")?;
    if !trace.is_empty() {
        scenario.resolve(&BTreeMap::from([("a.csv".to_owned(), trace.to_owned())]))?;
    }
    let strategy = scenario.strategy(strategy).ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, seed, Detail::METRICS)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    Ok(simulation.finish())
}

/// The worst delay of a message, in ms.
fn worst_ms(run: &Recording) -> f64 {
    let delay = |message: &crosslane_sim::record::rows::MessageRow| {
        message.received_ns.map_or(f64::INFINITY, |received| (received - message.sent_ns) as f64 / 1e6)
    };
    run.messages.iter().map(delay).fold(0.0, f64::max)
}

/// Rules by which the preferred path was left.
fn rules(run: &Recording) -> Vec<&'static str> {
    let of_first = |(_, output): &(Instant, Output)| match output {
        Output::Belief { path: PathId(0), reason, .. } => Some(reason.rule),
        _ => None,
    };
    run.agent_outputs.iter().filter_map(of_first).collect()
}

#[test]
fn a_roadside_unit_is_entered_for_them_no_sooner_than_its_signal_suffices() -> Outcome {
    let text = ENTER_COVERAGE.replace("kind = \"messages\"", "kind = \"messages\"\ndirection = \"down\"");
    let text = text.split("[[expect]]").next().unwrap_or(&text);
    for seed in 1..=6 {
        let run = run(text, "", "adaptive", seed)?;
        assert!(worst_ms(&run) <= 60.0, "seed {seed}: {} ms", worst_ms(&run));
    }
    Ok(())
}

#[test]
fn a_path_that_brings_less_than_is_sent_is_left() -> Outcome {
    let text = "name = \"down\"\ntitle = \"A path that slows down\"\nduration_s = 40\n\
                [vehicle]\nroute = { from_m = [0, 0], to_m = [500, 0], speed_kmh = 30 }\n\
                [[cellular]]\nname = \"a\"\nrat = \"lte\"\ndelay_ms = 25\ntrace = \"a.csv\"\n\
                [[cellular]]\nname = \"b\"\nrat = \"lte\"\nrate_mbit_s = 20\ndelay_ms = 25\n\
                [service]\nprefer = [\"a\", \"b\"]\n\
                [traffic]\nkind = \"messages\"\ndirection = \"down\"\nsize_bytes = 1000\nevery_ms = 20\n";
    let slow = run(text, "t_s,rate_mbit_s\n0,20\n20,0.2\n", "adaptive", 1)?;
    assert!(rules(&slow).contains(&"quality.received"), "{:?}", rules(&slow));
    assert!(worst_ms(&slow) < 400.0, "{} ms", worst_ms(&slow));
    let single = run(text, "t_s,rate_mbit_s\n0,20\n20,0.2\n", "single", 1)?;
    assert!(worst_ms(&single) > 600.0, "one path has {} ms: this tests nothing", worst_ms(&single));
    let fast = run(text, "t_s,rate_mbit_s\n0,20\n20,10\n", "adaptive", 1)?;
    assert!(!rules(&fast).contains(&"quality.received"), "{:?}", rules(&fast));
    Ok(())
}
