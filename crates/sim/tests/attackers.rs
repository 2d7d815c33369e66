//! A station that sends CAMs in the names of roadside units.

use std::error::Error;

use crosslane_core::time::Instant;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Simulation};
use crosslane_sim::world::{CamSent, World, WorldEvent};

const ATTACKER: &str = include_str!("../../../scenarios/roadside/attacker.toml");
const LIES: &str = include_str!("../../../scenarios/roadside/unit-lies.toml");
const DIES: &str = include_str!("../../../scenarios/roadside/unit-dies.toml");

/// Longest delay of a message with a strategy, in ms: the median of these seeds.
fn worst_ms(text: &str, strategy: &str, seeds: [u64; 5]) -> Result<f64, Box<dyn Error>> {
    let scenario = Scenario::parse(text, "test.toml")?;
    let strategy = scenario.strategy(strategy).ok_or("no such strategy")?;
    let mut worst = Vec::new();
    for seed in seeds {
        let mut simulation = Simulation::new(&scenario, &strategy, seed, Detail::METRICS)?;
        simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
        let messages = simulation.finish().messages;
        let delays = messages.iter().map(|row| Some((row.received_ns? - row.sent_ns) as f64 / 1e6));
        let delays: Vec<f64> = delays.collect::<Option<_>>().ok_or("a message is lost")?;
        worst.push(delays.into_iter().fold(0.0, f64::max));
    }
    worst.sort_by(f64::total_cmp);
    Ok(worst[2])
}

fn cams(text: &str) -> Result<Vec<CamSent>, Box<dyn Error>> {
    let mut world = World::new(&Scenario::parse(text, "test.toml")?, 1)?;
    let mut cams = Vec::new();
    while let Some(now) = world.next_wakeup().filter(|now| now.as_secs_f64() < 15.0) {
        while let Some(event) = world.poll(now) {
            if let WorldEvent::CamSent(cam) = event {
                cams.push(cam);
            }
        }
    }
    Ok(cams)
}

#[test]
fn forged_cams_come_in_the_names_of_units_and_change_no_true_one() -> Result<(), Box<dyn Error>> {
    let (all, alone) = (cams(ATTACKER)?, cams(&ATTACKER.replace("[[5, 101]]", "[[100, 101]]"))?);
    let is_forged = |cam: &&CamSent| cam.received == Some(-50.0);
    let forged: Vec<&CamSent> = all.iter().filter(is_forged).collect();
    assert!((495..=505).contains(&forged.len()), "{}", forged.len());
    assert!(forged.iter().all(|cam| cam.at.as_secs_f64() >= 5.0 && cam.position_m == [0.0, 0.0]));
    assert!((1000..1010).all(|station| forged.iter().any(|cam| cam.station == station)));
    let truth: Vec<&CamSent> = all.iter().filter(|cam| !is_forged(cam)).collect();
    assert_eq!(truth, alone.iter().collect::<Vec<_>>());
    Ok(())
}

#[test]
fn wrong_names_get_one_sentence_with_place_and_remedy() {
    for (names, what) in [("[\"rsu99\"]", "rsu99"), ("[]", "no roadside unit's name")] {
        let start = ATTACKER.find("names = ").unwrap_or_default();
        let end = start + ATTACKER[start..].find('\n').unwrap_or_default();
        let text = format!("{}names = {names}{}", &ATTACKER[..start], &ATTACKER[end..]);
        let fault = Scenario::parse(&text, "test.toml").map(|_| ()).unwrap_err();
        assert!(fault.line.is_some() && fault.what.contains(what), "{fault}");
    }
}

#[test]
fn neither_an_attacker_nor_a_unit_that_lies_holds_up_messages() -> Result<(), Box<dyn Error>> {
    for (name, text) in [
        ("attacker", ATTACKER.to_owned()),
        ("more often", ATTACKER.replace("cams_per_s = 50", "cams_per_s = 200")),
        ("weaker", ATTACKER.replace("rssi_dbm = -50", "rssi_dbm = -65")),
        ("a unit that lies", LIES.to_owned()),
    ] {
        let worst_ms = worst_ms(&text, "threshold", [301, 302, 303, 304, 305])?;
        assert!(worst_ms < 40.0, "{name}: {worst_ms} ms");
    }
    Ok(())
}

#[test]
fn a_unit_that_dies_holds_up_messages_for_a_tenth_of_a_second() -> Result<(), Box<dyn Error>> {
    for strategy in ["threshold", "adaptive"] {
        let worst_ms = worst_ms(DIES, strategy, [301, 302, 303, 304, 305])?;
        assert!(worst_ms < 100.0, "{strategy}: {worst_ms} ms");
    }
    Ok(())
}

#[test]
fn adaptive_finds_the_next_unit_where_it_once_tried_all_in_turn() -> Result<(), Box<dyn Error>> {
    let worst_ms = worst_ms(DIES, "adaptive", [1, 17, 32, 36, 41])?;
    assert!(worst_ms < 250.0, "{worst_ms} ms");
    Ok(())
}
