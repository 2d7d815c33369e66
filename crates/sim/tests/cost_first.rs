//! Mode `cost-first` over a cheap path of 5 Mbit/s and an expensive one of 20: what is sent over the
//! expensive one is what the cheap one cannot carry.

use std::error::Error;

use crosslane_core::agent::Output;
use crosslane_core::path::{PathId, PathState};
use crosslane_core::time::Instant;
use crosslane_sim::scenario::{Engine, Scenario};
use crosslane_sim::simulation::{Detail, Recording, Simulation};

const EXPENSIVE: PathId = PathId(1);
const CHEAP_MBIT_S: f64 = 5.0;
/// Traffic from 1 s to 39 s.
const TRAFFIC_S: f64 = 38.0;

/// Messages of 1000 bytes at this rate; the cheap path has these keys.
fn scenario(cheap: &str, mbit_s: f64, strategy: &str) -> String {
    let every_ms = 8.0 / mbit_s;
    format!(
        "name = \"cost-first\"\ntitle = \"A cheap path and an expensive one\"\nduration_s = 40\n\
         [vehicle]\nroute = {{ from_m = [0, 0], to_m = [300, 0], speed_kmh = 30 }}\n\
         [[cellular]]\nname = \"cheap\"\nrat = \"lte\"\n{cheap}\n\
         [[cellular]]\nname = \"expensive\"\nrat = \"nr\"\nrate_mbit_s = 20\ndelay_ms = 25\n\
         [service]\nmode = \"cost-first\"\nprefer = [\"cheap\", \"expensive\"]\n\
         [traffic]\nkind = \"messages\"\nsize_bytes = 1000\nevery_ms = {every_ms:.6}\n\
         [[strategy]]\nname = \"x\"\nbase = \"{strategy}\"\n"
    )
}

fn run(text: &str, trace: Option<&str>, seed: u64) -> Result<Recording, Box<dyn Error>> {
    let mut scenario = Scenario::parse(text, "cost-first.toml")?;
    let contents = trace.map(|trace| ("cheap.csv".to_owned(), trace.to_owned())).into_iter().collect();
    scenario.resolve(&contents)?;
    let strategy = scenario.strategy("x").ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, seed, Detail::METRICS)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    Ok(simulation.finish())
}

/// When the expensive path began and ceased to carry, with the rule.
fn changes(run: &Recording) -> Vec<(f64, PathState, &'static str)> {
    let of = |(at, output): &(Instant, Output)| match output {
        Output::Decision { path, state, reason, .. } if *path == EXPENSIVE => {
            Some((at.as_secs_f64(), *state, reason.rule))
        }
        _ => None,
    };
    run.agent_outputs.iter().filter_map(of).collect()
}

/// Share of the bytes over the expensive path, and share of the offered messages delivered.
fn shares(run: &Recording, mbit_s: f64) -> (f64, f64) {
    let delivered = run.messages.iter().filter(|message| message.received_ns.is_some()).count();
    let offered = TRAFFIC_S * mbit_s * 1e6 / 8000.0;
    (run.sums.share(EXPENSIVE).unwrap_or(0.0), delivered as f64 / offered)
}

#[test]
fn what_fits_the_cheap_path_stays_there_and_the_rest_goes_over_the_expensive_one() -> Result<(), Box<dyn Error>> {
    for strategy in ["threshold", "adaptive", "tunnel"] {
        for mbit_s in [3.0, 8.0] {
            let need = f64::max(0.0, 1.0 - CHEAP_MBIT_S / mbit_s);
            let most = if mbit_s < CHEAP_MBIT_S { 0.02 } else { need + 0.10 };
            for seed in 1..=5 {
                let run = run(&scenario("rate_mbit_s = 5\ndelay_ms = 12", mbit_s, strategy), None, seed)?;
                let (share, delivered) = shares(&run, mbit_s);
                let spills = changes(&run).iter().filter(|(.., rule)| *rule == "cost-first.spill").count();
                println!(
                    "{strategy} {mbit_s} Mbit/s seed {seed}: {:.1} % over the expensive path (at most {:.1}), \
                     {:.1} % delivered, {spills} spills",
                    share * 100.0,
                    most * 100.0,
                    delivered * 100.0
                );
                assert!(share <= most, "{strategy} {mbit_s} Mbit/s, seed {seed}: {share}");
                assert!(delivered >= 0.97, "{strategy} {mbit_s} Mbit/s, seed {seed}: {delivered}");
                assert!(spills <= 5, "{strategy}, seed {seed}: {:?}", changes(&run));
            }
        }
    }
    Ok(())
}

#[test]
fn the_expensive_path_carries_while_the_cheap_one_is_slow_and_a_few_seconds_longer() -> Result<(), Box<dyn Error>> {
    let trace = "t_s,rate_mbit_s,delay_ms\n0,5,12\n10,1,12\n20,5,12\n40,5,12\n";
    for seed in 1..=5 {
        let run = run(&scenario("trace = \"cheap.csv\"", 3.0, "threshold"), Some(trace), seed)?;
        let changes = changes(&run);
        println!("{changes:?}");
        let first = changes.iter().find(|(_, state, _)| *state == PathState::Active).ok_or("it is never used")?;
        let last = changes.last().ok_or("no change")?;
        assert!((10.2..12.0).contains(&first.0) && first.2 == "cost-first.spill", "{changes:?}");
        assert!((20.0..30.0).contains(&last.0) && last.2 == "cost-first.return", "{changes:?}");
        assert!(shares(&run, 3.0).1 >= 0.97);
    }
    Ok(())
}

#[test]
fn a_strategy_that_lacks_the_mode_is_refused_with_the_line_and_a_remedy() -> Result<(), Box<dyn Error>> {
    let refused = |strategy: &str, parameters: &str| -> Result<Option<String>, Box<dyn Error>> {
        let text = scenario("rate_mbit_s = 5\ndelay_ms = 12", 3.0, strategy) + parameters;
        let scenario = Scenario::parse(&text, "cost-first.toml")?;
        let strategy = scenario.strategy("x").ok_or("no such strategy")?;
        Ok(scenario.check_strategy(Engine::Simulator, &strategy).err().map(|error| error.to_string()))
    };
    for (strategy, parameters) in [("learned", ""), ("tunnel", "steer = \"smartps\"\n")] {
        let sentence = refused(strategy, parameters)?.unwrap_or_default();
        let expected = "line 17: strategy `x` has no mode `cost-first`: its tree puts the paths in another order";
        assert!(sentence.contains(expected), "{sentence}");
        assert!(sentence.ends_with("choose another mode, or another strategy"), "{sentence}");
    }
    assert_eq!((refused("threshold", "")?, refused("kernel", "")?, refused("tunnel", "")?), (None, None, None));
    let redundant =
        scenario("rate_mbit_s = 5\ndelay_ms = 12", 3.0, "threshold").replace("cost-first\"\np", "redundant\"\np");
    let sentence = Scenario::parse(&redundant, "s.toml").err().map(|error| error.to_string()).unwrap_or_default();
    assert!(sentence.contains("line 17: `mode`: `redundant` is a mode of the tunnel"), "{sentence}");
    Ok(())
}
