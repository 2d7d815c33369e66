//! A path that its operator throttles does not hold up the others.

use std::error::Error;

use crosslane_core::time::Instant;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Recording, Simulation};

const SCENARIO: &str = include_str!("../../../scenarios/throttled.toml");
const THROTTLED_BEFORE: &str = include_str!("../../../scenarios/throttled-before.toml");
const THROTTLED: &str = "[[cellular]]\nname = \"throttled\"\nrat = \"lte\"\nrate_mbit_s = 20\ndelay_ms = 20                   # \
                         one way\npolicer = { after_mb = 15, rate_mbit_s = 1 }\n\n";

type Outcome = Result<(), Box<dyn Error>>;

fn with(text: &str, key: &str, value: &str) -> String {
    assert!(text.contains(key), "{key}");
    text.replace(key, value)
}

fn record(text: &str, strategy: &str) -> Result<Recording, Box<dyn Error>> {
    let scenario = Scenario::parse(text.split("[[expect]]").next().unwrap_or(text), "test.toml")?;
    let strategy = scenario.strategy(strategy).ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, 1, Detail::METRICS)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    Ok(simulation.finish())
}

/// Goodput from a time to the end, in Mbit/s.
fn goodput(text: &str, strategy: &str, from_s: f64, to_s: f64) -> Result<f64, Box<dyn Error>> {
    let messages = record(text, strategy)?.messages;
    let is_read = |at: u64| (from_s..to_s).contains(&(at as f64 / 1e9));
    let read = messages.iter().filter(|row| row.received_ns.is_some_and(is_read));
    Ok(read.map(|row| f64::from(row.size_bytes)).sum::<f64>() * 8e-6 / (to_s - from_s))
}

fn others_alone() -> String {
    with(&with(SCENARIO, THROTTLED, ""), "\"throttled\", \"lte\"", "\"lte\"")
}

#[test]
fn a_path_that_is_throttled_rests_and_the_others_carry_what_they_carry_alone() -> Outcome {
    let shaped =
        with(SCENARIO, "policer = { after_mb = 15, rate_mbit_s = 1 }", "policer = { after_mb = 0, rate_mbit_s = 1 }");
    let bound = goodput(&others_alone(), "kernel", 1.0, 39.0)?;
    for strategy in ["threshold", "adaptive"] {
        let carried = goodput(SCENARIO, strategy, 1.0, 39.0)? / bound;
        assert!(carried >= 0.95, "{strategy}: {carried:.3} of what the others carry alone");
        // From the start it has never carried more: only the comparison with the others tells.
        let before = goodput(&shaped, strategy, 5.0, 39.0)? / bound;
        assert!(before >= 0.95, "{strategy}, throttled before the start: {before:.3}");
        let queued = goodput(THROTTLED_BEFORE, strategy, 3.0, 37.0)? / bound;
        assert!(queued >= 0.95, "{strategy}, throttled before, with a queue: {queued:.3}");
    }
    let kernel = goodput(SCENARIO, "kernel", 1.0, 39.0)? / bound;
    assert!(kernel < 0.8, "the kernel's path manager has {kernel:.3} of it: the scenario tests nothing");
    Ok(())
}

#[test]
fn a_download_leaves_a_path_that_is_throttled() -> Outcome {
    let down = |text: &str| with(text, "kind = \"bulk\"", "kind = \"bulk\"\ndirection = \"down\"");
    let bound = goodput(&down(&others_alone()), "kernel", 1.0, 39.0)?;
    let before = with(SCENARIO, "after_mb = 15", "after_mb = 0");
    for strategy in ["threshold", "adaptive"] {
        for text in [SCENARIO, &before] {
            let carried = goodput(&down(text), strategy, 1.0, 39.0)? / bound;
            println!("{strategy}: {carried:.3} of what the others carry alone");
            assert!(carried >= 0.9, "{strategy}: {carried:.3} of what the others carry alone");
        }
    }
    Ok(())
}

#[test]
fn messages_leave_a_throttled_path_that_carries_less_than_they_need() -> Outcome {
    let policed = with(SCENARIO, "after_mb = 15, rate_mbit_s = 1", "after_mb = 0.5, rate_mbit_s = 0.064");
    let messages = with(&policed, "kind = \"bulk\"", "kind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20");
    for mode in ["aggregate", "backup"] {
        let text = with(&messages, "[service]\n", &format!("[service]\nmode = \"{mode}\"\n"));
        for strategy in ["threshold", "adaptive"] {
            let recording = record(&text, strategy)?;
            let late = |row: &&crosslane_sim::record::rows::MessageRow| {
                row.received_ns.is_none_or(|at| at > row.sent_ns + 500_000_000)
            };
            let late = recording.messages.iter().filter(late).count();
            println!("{mode}, {strategy}: {late} of {} messages are late", recording.messages.len());
            assert!(late < 200, "{mode}, {strategy}: {late} of {}", recording.messages.len());
        }
    }
    Ok(())
}
