//! A station that sends CAMs in the names of roadside units.
#![allow(missing_docs)]

use std::error::Error;

use crosslane_sim::scenario::Scenario;
use crosslane_sim::world::{CamSent, World, WorldEvent};

const ATTACKER: &str = include_str!("../../../scenarios/roadside/attacker.toml");

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
