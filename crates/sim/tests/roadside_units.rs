//! A radio whose roadside units are paths: they share the air, the vehicle's queue and the shaper.

use std::error::Error;

use crosslane_core::link::Direction;
use crosslane_core::time::Instant;
use crosslane_sim::record::rows::PacketRow;
use crosslane_sim::scenario::{Engine, Scenario};
use crosslane_sim::simulation::{Detail, Recording, Simulation};

const PAPER: &str = include_str!("../../../scenarios/torrinhas/scenario-1.toml");

const UNITS: &str = "paths = \"units\"";
const TUNNELS: &str = "paths = \"units\"\ntunnel = \"vxlan\"";
const WIDE: &str = "position_m = [0, 20]\nstation_id = 16777216";
const TWO_RADIOS: &str = r#"[[radio]]
name = "wave"
rat = "80211p"
paths = "units"
tunnel = "crosslane"
rate_mbit_s = 6
path_loss = "cheng"
[[roadside_unit]]"#;

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
    text.replacen(old, new, 1)
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
fn a_tunnel_to_each_unit_adds_its_headers_to_every_packet_on_the_air() -> Outcome {
    let short = with(PAPER, "duration_s = 150", "duration_s = 20");
    let plain = rates(&run(&short, "torrinhas")?.packets, 8.0, 20.0)[0];
    for (kind, overhead) in [("vxlan", 50.0), ("crosslane", 64.0)] {
        let text = with(&short, UNITS, &format!("{UNITS}\ntunnel = \"{kind}\""));
        let packets = run(&text, "torrinhas")?.packets;
        let largest = packets.iter().map(|row| row.ip_bytes).max();
        assert_eq!(largest, Some(1500), "{kind}: headers and packet together fill the MTU");
        let tunnelled = rates(&packets, 8.0, 20.0)[0];
        // The shaper limits the packets on the air, of which 1400 bytes are payload without a tunnel; TCP fills it to within 2 %.
        let expected = plain * (1.0 - overhead / 1400.0);
        assert!((tunnelled / expected - 1.0).abs() < 0.025, "{kind}: {tunnelled} of {plain}, expected {expected}");
    }
    let text = with(&short, UNITS, TUNNELS);
    let scenario = Scenario::parse(&text, "test.toml")?;
    let tunnel = scenario.strategy("tunnel").ok_or("no such strategy")?;
    let refused = scenario.check_strategy(Engine::Simulator, &tunnel).err().map(|error| error.to_string());
    assert!(refused.as_deref().unwrap_or_default().contains("a tunnel inside those of radio `its-g5`"), "{refused:?}");
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
        ("limit_mbit_s = 9", "tunnel = \"gre\"", "unknown word `gre`"),
        ("paths = \"units\"", "tunnel = \"vxlan\"", "`tunnel` of radio `its-g5`, which is one path"),
    ];
    let with_tunnels = [
        ("[[roadside_unit]]", TWO_RADIOS, "radios `its-g5` and `wave` have a `tunnel`"),
        ("position_m = [0, 20]", WIDE, "the station id 16777216 of `rsu1` is no VXLAN network (24 bits)"),
        ("name = \"rsu1\"", "name = \"its-g5\"", "the radio `its-g5` is an interface, and so is the path"),
    ];
    let tunnelled = with(PAPER, UNITS, TUNNELS);
    let cases = cases.map(|case| (PAPER, case)).into_iter().chain(with_tunnels.map(|case| (&tunnelled[..], case)));
    for (text, (old, new, expected)) in cases {
        let error = error_of(&with(text, old, new));
        assert!(error.contains(expected) && error.contains("test.toml, line "), "{new}: {error:?}");
    }
}
