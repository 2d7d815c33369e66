//! Echo requests over paths that carry nothing: strategy `adaptive` knows a dead reserve before it needs it.

use std::error::Error;

use crosslane_core::agent::Output;
use crosslane_core::assess::Belief;
use crosslane_core::path::{PathId, PathState};
use crosslane_core::time::Instant;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Recording, Simulation};

/// Three cellular paths in this order of preference: `a` fails at 30 s, `b` from 10 to 50 s.
fn run(echo: &str, seed: u64) -> Result<Recording, Box<dyn Error>> {
    let link = |name: &str, keys: &str| {
        format!("[[cellular]]\nname = \"{name}\"\nrat = \"lte\"\nrate_mbit_s = 20\ndelay_ms = 20\n{keys}\n")
    };
    let text = format!(
        "name = \"reserve\"\nduration_s = 60\n\
         [vehicle]\nroute = {{ from_m = [0, 0], to_m = [900, 0], speed_kmh = 30 }}\n\
         {}{}{}[service]\nmode = \"backup\"\nprefer = [\"a\", \"b\", \"c\"]\n{echo}\n\
         [traffic]\nkind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20\n",
        link("a", "outages_s = [[30, 40]]"),
        link("b", "outages_s = [[10, 50]]"),
        link("c", ""),
    );
    let scenario = Scenario::parse(&text, "reserve.toml")?;
    let strategy = scenario.strategy("adaptive").ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, seed, Detail::METRICS)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    Ok(simulation.finish())
}

/// When and why a path was believed to be something.
fn beliefs(run: &Recording, of: PathId) -> Vec<(f64, Belief, &'static str)> {
    let of_path = |(at, output): &(Instant, Output)| match output {
        Output::Belief { path, belief, reason } if *path == of => Some((at.as_secs_f64(), *belief, reason.rule)),
        _ => None,
    };
    run.agent_outputs.iter().filter_map(of_path).collect()
}

fn worst_ms(run: &Recording) -> f64 {
    let delays = run
        .messages
        .iter()
        .map(|message| message.received_ns.map_or(f64::INFINITY, |received| (received - message.sent_ns) as f64 / 1e6));
    delays.fold(0.0, f64::max)
}

#[test]
fn a_dead_reserve_is_known_and_does_not_take_over() -> Result<(), Box<dyn Error>> {
    for seed in 1..=5 {
        let (with, without) = (run("[echo]", seed)?, run("", seed)?);
        let left = beliefs(&with, PathId(1)).into_iter().find(|(_, _, rule)| *rule == "quality.echo");
        assert!(left.is_some_and(|(at, belief, _)| (10.0..10.4).contains(&at) && belief == Belief::Fading), "{left:?}");
        let all = beliefs(&with, PathId(1));
        let returned = all.iter().rfind(|(_, belief, _)| *belief == Belief::Good);
        assert!(
            returned.is_some_and(|(at, _, rule)| (50.0..51.5).contains(at) && *rule == "quality.return"),
            "{all:?}"
        );
        let [worst, worst_without] = [worst_ms(&with), worst_ms(&without)];
        // The kernel sends the data of the closed path again over any reserve, also over the dead one. A sampling interval more is
        // chance.
        assert!(worst <= worst_without + 10.0, "{worst} ms, without requests {worst_without} ms");
        let carries = |run: &Recording| {
            let active = |(_, output): &&(Instant, Output)| {
                matches!(output, Output::Decision { path: PathId(1), state: PathState::Active, .. })
            };
            run.agent_outputs.iter().find(active).map(|(at, _)| *at)
        };
        let early = |at: Option<Instant>| at.is_some_and(|at| at < Instant::from_millis(45_000));
        assert_eq!((early(carries(&with)), early(carries(&without))), (false, true));
    }
    Ok(())
}

#[test]
fn requests_and_answers_are_counted_and_cost_little() -> Result<(), Box<dyn Error>> {
    let bytes = |echo: &str| run(echo, 1).map(|run| run.echo_bytes);
    assert_eq!(bytes("")?, None);
    // Two idle paths, 5 requests and answers a second of 28 bytes each; those of `b` are lost for 40 s.
    let two = 2.0 * 60.0 * 5.0 * 56.0;
    let all = bytes("[echo]")?.unwrap_or_default() as f64;
    assert!((0.7 * two..1.1 * two).contains(&all), "{all} of {two}");
    let rare = bytes("[echo]\nperiod_ms = 2000")?.unwrap_or_default() as f64;
    assert!((0.07 * two..0.12 * two).contains(&rare), "{rare} of {two}");
    assert_eq!(bytes("[echo]\nperiod_ms = \"off\"")?, Some(0));
    Ok(())
}

#[test]
fn strategies_that_do_not_use_them_send_none() -> Result<(), Box<dyn Error>> {
    let text = include_str!("../../../scenarios/sudden-loss.toml");
    let with = format!("{text}\n[echo]\n");
    for name in ["kernel", "kernel-tuned", "threshold"] {
        let of = |text: &str| -> Result<_, Box<dyn Error>> {
            let scenario = Scenario::parse(text, "x.toml")?;
            let strategy = scenario.strategy(name).ok_or("no such strategy")?;
            let mut simulation = Simulation::new(&scenario, &strategy, 1, Detail::METRICS)?;
            simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
            Ok(simulation.finish())
        };
        let (with, without) = (of(&with)?, of(text)?);
        assert_eq!((with.messages, with.echo_bytes), (without.messages, Some(0)), "{name}");
    }
    Ok(())
}
