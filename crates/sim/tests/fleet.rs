//! Requirements of a fleet on the world: a track for each vehicle, a configurable
//! period of the ground truth, and distant RSUs without computing time.

use std::error::Error;
use std::fmt::Write;
use std::time::Instant as Wall;

use crosslane_core::time::{Duration, Instant};
use crosslane_sim::input::mobility::Track;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::world::{CamSent, World, WorldEvent};

const LEAVE: &str = include_str!("../../../scenarios/leave-coverage.toml");

fn run(world: &mut World, until_s: f64) -> Vec<WorldEvent> {
    std::iter::from_fn(|| world.poll(Instant::from_secs_f64(until_s))).collect()
}

/// A drive of `length_m` along RSUs with a spacing of `spacing_m`.
fn street(units: u32, spacing_m: u32, length_m: u32) -> Result<Scenario, Box<dyn Error>> {
    let mut text = format!(
        "name = \"street\"\nduration_s = 200\n[vehicle]\n\
         route = {{ from_m = [0, 5], to_m = [{length_m}, 5], speed_kmh = 180 }}\n\
         [[radio]]\nname = \"its-g5\"\nrat = \"80211p\"\nrate_mbit_s = 6\npath_loss = \"cheng\"\nfading = 3\n\
         [[cellular]]\nname = \"lte\"\nrat = \"lte\"\nrate_mbit_s = 20\ndelay_ms = 25\n[traffic]\nkind = \"bulk\"\n"
    );
    for unit in 0..units {
        let x_m = unit * spacing_m;
        writeln!(text, "[[roadside_unit]]\nname = \"u{unit}\"\nradio = \"its-g5\"\nposition_m = [{x_m}, 0]")?;
    }
    Ok(Scenario::parse(&text, "street.toml")?)
}

/// The only vehicle of a mobility file.
fn track(text: &str) -> Result<Track, Box<dyn Error>> {
    let mut tracks = Track::parse(text, "own.csv")?.into_values();
    Ok(tracks.next().ok_or("no vehicle")?)
}

#[test]
fn a_vehicle_may_have_a_separate_track() -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::parse(LEAVE, "test.toml")?;
    let track = track("t_s,x_m,y_m\n0,500,4\n40,40,4\n")?;
    let mut world = World::with_track(&scenario, track, 1)?;
    let events = run(&mut world, 20.0);
    let last = events.iter().rev().find_map(|event| match event {
        WorldEvent::Truth(truth) => Some(truth.position_m),
        _ => None,
    });
    assert!(last.is_some_and(|[x, _]| (x - 270.0).abs() < 0.2), "{last:?}");
    Ok(())
}

#[test]
fn the_ground_truth_has_the_configured_period_and_changes_nothing_else() -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::parse(LEAVE, "test.toml")?;
    let events = |period: Option<Option<u64>>| -> Result<(usize, Vec<WorldEvent>), Box<dyn Error>> {
        let mut world = World::new(&scenario, 1)?;
        if let Some(period) = period {
            world.set_truth_period(period.map(Duration::from_millis));
        }
        let is_truth = |event: &WorldEvent| matches!(event, WorldEvent::Truth(_));
        let (truths, others): (Vec<_>, Vec<_>) = run(&mut world, 10.0).into_iter().partition(is_truth);
        Ok((truths.len(), others))
    };
    let (all, default) = events(None)?;
    assert_eq!(all, 2 * 1001);
    for (period, expected) in [(Some(1000), 2 * 11), (Some(15), 2 * 501), (None, 0)] {
        let (truths, others) = events(Some(period))?;
        assert_eq!(truths, expected, "{period:?}");
        assert!(others == default);
    }
    Ok(())
}

/// CAMs of one RSU.
fn cams(events: &[WorldEvent], station: u32) -> Vec<&CamSent> {
    let cams = events.iter().filter_map(|event| match event {
        WorldEvent::CamSent(cam) if cam.station == station => Some(cam),
        _ => None,
    });
    cams.collect()
}

#[test]
fn an_rsu_that_comes_into_reach_keeps_its_period_and_phase() -> Result<(), Box<dyn Error>> {
    let events = run(&mut World::new(&street(2, 9000, 10_000)?, 1)?, 200.0);
    let (first, second) = (cams(&events, 1000), cams(&events, 1001));
    // 50 m/s; out of reach at about 3.6 km.
    assert!(first.last().is_some_and(|cam| (70.0..76.0).contains(&cam.at.as_secs_f64())), "{:?}", first.last());
    assert!(second.first().is_some_and(|cam| (104.0..110.0).contains(&cam.at.as_secs_f64())), "{:?}", second.first());
    assert!(second.windows(2).all(|pair| pair[1].at.since(pair[0].at) == Duration::from_millis(100)));
    let there = track("t_s,x_m,y_m\n0,9000,5\n")?;
    let near = run(&mut World::with_track(&street(2, 9000, 10_000)?, there, 1)?, 1.0);
    let phase = |cam: &CamSent| cam.at.as_nanos() % 100_000_000;
    assert_eq!(phase(second[0]), phase(cams(&near, 1001)[0]), "the phase does not depend on the track");
    assert!(second.iter().any(|cam| cam.received.is_some()));
    Ok(())
}

/// Prints the computing time of a tick; run with `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn microseconds_per_tick() -> Result<(), Box<dyn Error>> {
    for (units, spacing_m, what) in
        [(16, 100, "in reach"), (256, 5, "in reach"), (16, 9000, "apart"), (256, 3900, "apart")]
    {
        for truth in [Some(Duration::from_millis(10)), None] {
            let scenario = street(units, spacing_m, 1600)?;
            let began = Wall::now();
            let mut world = World::new(&scenario, 1)?;
            let made_us = began.elapsed().as_secs_f64() * 1e6;
            world.set_truth_period(truth);
            let (began, seconds) = (Wall::now(), 30.0);
            let (mut cams, mut now) = (0, Instant::ZERO);
            while now < Instant::from_secs_f64(seconds) {
                while let Some(event) = world.poll(now) {
                    cams += u32::from(matches!(event, WorldEvent::CamSent(_)));
                }
                now = world.next_wakeup().unwrap_or(Instant::from_secs_f64(seconds));
            }
            let us = began.elapsed().as_secs_f64() * 1e6 / (seconds * 100.0);
            println!(
                "{units} units {what}, truth {}: made in {made_us:.0} µs, {us:.2} µs a tick, {:.3} a unit, {} CAMs a tick",
                truth.is_some(),
                us / f64::from(units),
                f64::from(cams) / seconds / 100.0
            );
        }
    }
    Ok(())
}
