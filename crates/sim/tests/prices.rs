//! Prices of paths: the order of the paths, how soon a cheaper one returns, and what a run cost.

use std::error::Error;

use crosslane_core::agent::Output;
use crosslane_core::path::{PathId, PathState};
use crosslane_core::time::Instant;
use crosslane_sim::record::metrics::{Context, metrics};
use crosslane_sim::record::rows::RunRecords;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Recording, Simulation};

/// Two cellular paths, of which the second one fails from 20 to 21 s.
fn scenario(service: &str) -> Result<Scenario, Box<dyn Error>> {
    let link = |name: &str, keys: &str| {
        format!("[[cellular]]\nname = \"{name}\"\nrat = \"lte\"\nrate_mbit_s = 20\ndelay_ms = 20\n{keys}\n")
    };
    let text = format!(
        "name = \"prices\"\nduration_s = 90\n\
         [vehicle]\nroute = {{ from_m = [0, 0], to_m = [900, 0], speed_kmh = 30 }}\n\
         {}{}[service]\nmode = \"backup\"\n{service}\n\
         [traffic]\nkind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20\n",
        link("a", ""),
        link("b", "outages_s = [[20, 21]]"),
    );
    Ok(Scenario::parse(&text, "prices.toml")?)
}

fn run(scenario: &Scenario) -> Result<Recording, Box<dyn Error>> {
    let strategy = scenario.strategy("adaptive").ok_or("no such strategy")?;
    let mut simulation = Simulation::new(scenario, &strategy, 1, Detail::METRICS)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    Ok(simulation.finish())
}

/// When a path became active, in s.
fn active_s(run: &Recording, of: PathId) -> Vec<f64> {
    let is_active = |(_, output): &&(Instant, Output)| matches!(output, Output::Decision { path, state: PathState::Active, .. } if *path == of);
    run.agent_outputs.iter().filter(is_active).map(|(at, _)| at.as_secs_f64()).collect()
}

#[test]
fn without_prefer_the_cheapest_path_is_preferred() -> Result<(), Box<dyn Error>> {
    for (service, ranks, first) in [
        ("", [0, 1], 0),
        ("cost_per_gb = { a = 3, b = 1 }", [1, 0], 1),
        ("cost_per_gb = { a = 1, b = 1 }", [0, 1], 0),
        ("cost_per_gb = { a = 1, b = 1 }\nprefer = [\"b\"]", [1, 0], 1),
    ] {
        let scenario = scenario(service)?;
        assert_eq!((scenario.ranks(), scenario.preferred_path()), (ranks.to_vec(), PathId(first)), "{service}");
    }
    Ok(())
}

#[test]
fn a_cheaper_path_that_was_left_carries_again_sooner() -> Result<(), Box<dyn Error>> {
    for (service, pause_s) in [
        ("prefer = [\"b\"]", 60.0),
        ("cost_per_gb = { a = 1, b = 1 }\nprefer = [\"b\"]", 60.0),
        ("cost_per_gb = { a = 3, b = 1 }", 10.0),
    ] {
        let active = active_s(&run(&scenario(service)?)?, PathId(1));
        let returned_s = active.last().copied().unwrap_or_default() - 20.0;
        assert!((returned_s - pause_s).abs() < 2.0, "{service}: {active:?}");
    }
    Ok(())
}

#[test]
fn the_cost_is_the_price_of_what_each_path_delivered() -> Result<(), Box<dyn Error>> {
    let cost = |service: &str| -> Result<Option<f64>, Box<dyn Error>> {
        let scenario = scenario(service)?;
        let (run, names) = (run(&scenario)?, ["a".to_string(), "b".to_string()]);
        let records = RunRecords { messages: &run.messages, ..RunRecords::default() };
        let found = metrics(&records, &run.sums, &Context::of(&scenario, &names));
        let of = |path: &str| found.get(&format!("path.{path}.bytes")).copied().unwrap_or_default() / 1e9;
        if let Some(cost) = found.get("cost") {
            assert!((cost - 3.0 * of("a") - of("b")).abs() < 1e-12, "{found:?}");
        }
        Ok(found.get("cost").copied())
    };
    assert_eq!(cost("")?, None);
    assert!(cost("cost_per_gb = { a = 3, b = 1 }")?.is_some_and(|cost| cost > 0.0));
    Ok(())
}

#[test]
fn the_limit_of_late_messages_is_that_of_the_service() -> Result<(), Box<dyn Error>> {
    let late = |service: &str, strategy: &str| -> Result<_, Box<dyn Error>> {
        let scenario = scenario(service)?;
        let own = scenario.strategy(strategy).and_then(|found| found.parameters.get("late_ms")?.as_integer());
        let names = ["a".to_string(), "b".to_string()];
        Ok((Context::of(&scenario, &names).late_ms, own))
    };
    assert_eq!(late("", "adaptive")?, (200.0, None));
    assert_eq!(late("late_ms = 60", "adaptive")?, (60.0, Some(60)));
    assert_eq!(late("late_ms = 60", "tunnel-adaptive")?, (60.0, Some(60)));
    assert_eq!(late("late_ms = 60", "kernel")?, (60.0, None));
    let own = "late_ms = 60\n[[strategy]]\nname = \"own\"\nbase = \"adaptive\"\nlate_ms = 150";
    assert_eq!(late(own, "own")?, (60.0, Some(150)));
    let fault = scenario("late_ms = 0").err().map(|fault| fault.to_string()).unwrap_or_default();
    assert!(fault.contains("`late_ms`: 0 is outside 1 to 60000"), "{fault}");
    Ok(())
}
