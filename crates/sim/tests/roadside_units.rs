//! A radio whose roadside units are paths: they share the air, the vehicle's queue and the shaper.
#![allow(missing_docs)]

use std::error::Error;

use crosslane_core::link::Direction;
use crosslane_core::time::Instant;
use crosslane_sim::record::rows::PacketRow;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Recording, Simulation};

const PAPER: &str = include_str!("../../../scenarios/torrinhas/scenario-1.toml");

type Outcome = Result<(), Box<dyn Error>>;

fn run(text: &str, strategy: &str) -> Result<Recording, Box<dyn Error>> {
    let scenario = Scenario::parse(text, "test.toml")?;
    let strategy = scenario.strategy(strategy).ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, 1, Detail::ALL)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    Ok(simulation.finish())
}

/// Payload delivered upwards over each of three paths between two times, in Mbit/s.
fn rates(packets: &[PacketRow], from_s: f64, to_s: f64) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for row in packets.iter().filter(|row| row.direction == Direction::Up) {
        let at_s = row.delivered_ns.map_or(f64::NAN, |at| at as f64 / 1e9);
        if (from_s..to_s).contains(&at_s) {
            sums[usize::from(row.path.0)] += f64::from(row.payload_bytes) * 8e-6 / (to_s - from_s);
        }
    }
    sums
}

fn with(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "{old}");
    text.replace(old, new)
}

fn error_of(text: &str) -> String {
    Scenario::parse(text, "test.toml").err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn units_share_the_limit_of_the_radio_as_in_the_paper() -> Outcome {
    let packets = run(PAPER, "torrinhas")?.packets;
    let [alone, none, _] = rates(&packets, 2.0, 20.0);
    assert!((8.2..8.6).contains(&alone) && none == 0.0, "{alone} {none}");
    let [first, second, _] = rates(&packets, 22.0, 50.0);
    assert!((0.35..0.65).contains(&(first / (first + second))), "{first} {second}");
    assert!((8.2..8.6).contains(&(first + second)), "{first} {second}");
    let [gone, second, _] = rates(&packets, 52.0, 100.0);
    assert!(gone == 0.0 && (8.2..8.6).contains(&second), "{gone} {second}");
    let [_, second, third] = rates(&packets, 102.0, 149.0);
    assert!(third > 1.5 && (8.2..8.6).contains(&(second + third)), "{second} {third}");
    Ok(())
}

#[test]
fn other_stations_take_their_share_at_their_time() -> Outcome {
    let text = with(PAPER, "limit_mbit_s = 9", "background = [[8, 14, 0.5]]");
    let text = with(&text, "duration_s = 150", "duration_s = 18");
    let packets = run(&text, "kernel")?.packets;
    let [before, during, after] = [(3.0, 8.0), (9.0, 14.0), (15.0, 18.0)].map(|(a, b)| rates(&packets, a, b)[0]);
    assert!((during / before - 0.5).abs() < 0.05 && after > during * 1.4, "{before} {during} {after}");
    Ok(())
}

#[test]
fn a_delay_by_direction_applies_to_that_direction_only() -> Outcome {
    let text = with(PAPER, "position_m = [0, 20]", "position_m = [0, 20]\ndelay_ms = { up = 5, down = 105 }");
    let text = with(
        &with(&text, "duration_s = 150", "duration_s = 5"),
        "kind = \"bulk\"",
        "kind = \"messages\"\nsize_bytes = 1000\nevery_ms = 20",
    );
    let packets = run(&text, "kernel")?.packets;
    let least = |direction| {
        let rows = packets.iter().filter(move |row| row.path.0 == 0 && row.direction == direction);
        rows.filter_map(|row| Some((row.delivered_ns? - row.t_ns) as f64 / 1e6)).fold(f64::MAX, f64::min)
    };
    assert!((5.0..6.0).contains(&least(Direction::Up)), "{}", least(Direction::Up));
    assert!((105.0..106.0).contains(&least(Direction::Down)), "{}", least(Direction::Down));
    Ok(())
}

#[test]
fn wrong_keys_get_one_sentence_with_place_and_remedy() {
    let cases = [
        ("paths = \"units\"", "paths = \"unit\"", "did you mean `units`"),
        ("limit_mbit_s = 9", "limit_mbit_s = 0", "0 is not above 0 and up to 100"),
        ("limit_mbit_s = 9", "background = [[5, 4, 0.5]]", "give `[from_s, to_s, share]` in order"),
        ("limit_mbit_s = 9", "background = [[0, 4, 0.99]]", "choose a smaller share"),
        ("position_m = [0, 20]", "position_m = [0, 20]\ndelay_ms = { up = 5 }", "`down` is missing"),
        ("position_m = [0, 20]", "position_m = [0, 20]\ndelay_ms = -1", "-1 is outside 0 to 10000"),
        ("name = \"rsu2\"", "name = \"a-unit-with-a-long-name\"", "it names an interface"),
        ("kind = \"bulk\"", "kind = \"bulk\"\nover = \"its-g5\"", "rsu1"),
    ];
    for (old, new, expected) in cases {
        let error = error_of(&with(PAPER, old, new));
        assert!(error.contains(expected) && error.contains("test.toml, line "), "{new}: {error:?}");
    }
}
