//! Events of the world over whole drives.

use std::collections::BTreeMap;
use std::error::Error;

use crosslane_core::link::{Bottleneck, Direction};
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_sim::radio::cam;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::world::{CamSent, Truth, World, WorldEvent};

const LEAVE: &str = include_str!("../../../scenarios/leave-coverage.toml");
const SUDDEN: &str = include_str!("../../../scenarios/sudden-loss.toml");
const REDUNDANCY: &str = include_str!("../../../scenarios/szilagyi/redundancy.toml");
const PASS_BY: &str = include_str!("../../../scenarios/pass-by.toml");

/// All events of a drive, polled at each wake-up time of the world.
fn drive(text: &str, seed: u64) -> Result<Vec<WorldEvent>, Box<dyn Error>> {
    let scenario = Scenario::parse(text, "test.toml")?;
    let mut world = World::new(&scenario, seed)?;
    let mut events = Vec::new();
    while let Some(now) = world.next_wakeup() {
        while let Some(event) = world.poll(now) {
            events.push(event);
        }
    }
    Ok(events)
}

fn cams(events: &[WorldEvent]) -> impl Iterator<Item = &CamSent> {
    events.iter().filter_map(|event| match event {
        WorldEvent::CamSent(cam) => Some(cam),
        _ => None,
    })
}

fn truths(events: &[WorldEvent], path: u8) -> impl Iterator<Item = &Truth> + Clone {
    events.iter().filter_map(move |event| match event {
        WorldEvent::Truth(truth) if truth.path == PathId(path) => Some(truth),
        _ => None,
    })
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_does_not() -> Result<(), Box<dyn Error>> {
    let bytes = |seed| drive(LEAVE, seed).map(|events| format!("{events:?}"));
    let first = bytes(7)?;
    assert_eq!(first, bytes(7)?);
    assert_ne!(first, bytes(8)?);
    Ok(())
}

#[test]
fn a_late_poll_gets_the_same_events_as_one_in_time() -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::parse(LEAVE, "test.toml")?;
    let mut late = World::new(&scenario, 3)?;
    let end = Instant::from_secs_f64(60.0);
    let events: Vec<WorldEvent> = std::iter::from_fn(|| late.poll(end)).collect();
    assert!(events == drive(LEAVE, 3)?);
    assert_eq!(late.next_wakeup(), None);
    Ok(())
}

#[test]
fn another_rsu_does_not_change_the_random_numbers_of_the_first() -> Result<(), Box<dyn Error>> {
    let far = "\n[[roadside_unit]]\nname = \"far\"\nradio = \"its-g5\"\nposition_m = [90000, 0]\n";
    let more = format!("{LEAVE}{far}");
    let first =
        |events: &[WorldEvent]| -> Vec<CamSent> { cams(events).filter(|cam| cam.station == 1000).cloned().collect() };
    assert_eq!(first(&drive(LEAVE, 5)?), first(&drive(&more, 5)?));
    Ok(())
}

#[test]
fn cams_are_sent_ten_times_a_second_and_received_until_the_vehicle_is_far() -> Result<(), Box<dyn Error>> {
    let events = drive(LEAVE, 1)?;
    let cams: Vec<&CamSent> = cams(&events).collect();
    assert_eq!(cams.len(), 400);
    let share = |from_s: f64, to_s: f64| {
        let span = cams.iter().filter(|cam| (from_s..to_s).contains(&cam.at.as_secs_f64()));
        let (all, received): (Vec<_>, Vec<_>) =
            (span.clone().collect(), span.filter(|c| c.received.is_some()).collect());
        received.len() as f64 / all.len() as f64
    };
    assert!(share(0.0, 12.0) > 0.99, "near: {}", share(0.0, 12.0));
    assert!(share(36.0, 40.0) < 0.2, "far: {}", share(36.0, 40.0));
    let decoded = cam::decode(&cams[0].frame()?)?;
    assert_eq!((decoded.station_id, decoded.station_type), (1000, cam::ROADSIDE_UNIT));
    Ok(())
}

#[test]
fn the_link_follows_the_scenario_over_time() -> Result<(), Box<dyn Error>> {
    let plain = LEAVE.replace("shadowing_db = 3", "shadowing_db = 0");
    let events = drive(&plain, 1)?;
    let at: BTreeMap<u64, &Truth> = truths(&events, 0).map(|truth| (truth.at.as_nanos() / 10_000_000, truth)).collect();
    let golden = [
        (0.0, 40.0, -57.0, 5.1),
        (16.4, 268.0, -82.0, 5.1),
        (22.0, 346.0, -86.4, 4.4),
        (27.7, 425.0, -90.0, 2.2),
        (34.0, 512.0, -93.2, 0.3),
    ];
    for (t_s, distance_m, dbm, mbit_s) in golden {
        let truth = at[&((t_s * 100.0) as u64)];
        assert!(truth.distance_m.is_some_and(|d| (d - distance_m).abs() < 2.0), "{t_s}");
        assert!(truth.rssi_dbm.is_some_and(|r| (r - dbm).abs() < 0.3), "{t_s}");
        assert!((truth.up_mbit_s - mbit_s).abs() < 0.4, "{t_s}: {}", truth.up_mbit_s);
    }
    let lte = truths(&events, 1).next();
    assert!(lte.is_some_and(|t| t.up_mbit_s == 20.0 && t.delay_ms == 25.0 && t.loss == 0.0));
    Ok(())
}

#[test]
fn a_silent_rsu_sends_nothing_and_acknowledges_nothing() -> Result<(), Box<dyn Error>> {
    let events = drive(SUDDEN, 2)?;
    let last = cams(&events).last().map(|cam| cam.at.as_secs_f64());
    assert!(last.is_some_and(|t_s| (19.8..20.0).contains(&t_s)), "{last:?}");
    let silent = truths(&events, 0).filter(|truth| (20.0..40.0).contains(&truth.at.as_secs_f64()));
    assert!(silent.clone().count() > 1900);
    assert!(silent.clone().all(|truth| truth.rssi_dbm.is_none() && truth.loss > 0.999));
    let before = truths(&events, 0).filter(|truth| truth.at.as_secs_f64() < 20.0);
    assert!(before.clone().all(|truth| truth.loss < 0.001));
    Ok(())
}

#[test]
fn a_silent_wire_carries_nothing_until_the_outage_ends() -> Result<(), Box<dyn Error>> {
    let events = drive(REDUNDANCY, 1)?;
    let rate_at = |second: f64| truths(&events, 0).find(|truth| truth.at.as_secs_f64() >= second);
    let rates = [20.0, 22.0, 40.0, 42.0].map(|second| rate_at(second).map(|truth| truth.up_mbit_s));
    assert_eq!(rates, [Some(60.0), Some(0.0), Some(0.0), Some(60.0)]);
    assert!(truths(&events, 1).take_while(|truth| truth.at.as_secs_f64() < 60.0).all(|truth| truth.up_mbit_s == 60.0));
    Ok(())
}

#[test]
fn the_strongest_rsu_serves_the_path() -> Result<(), Box<dyn Error>> {
    let events = drive(PASS_BY, 1)?;
    let farthest = truths(&events, 0).filter_map(|truth| truth.distance_m).fold(0.0, f64::max);
    assert!((880.0..1300.0).contains(&farthest), "{farthest}");
    let stations: std::collections::BTreeSet<u32> =
        cams(&events).filter(|cam| cam.received.is_some()).map(|cam| cam.station).collect();
    assert_eq!(stations, [1000, 1001].into());
    Ok(())
}

#[test]
fn a_link_is_announced_once_and_then_only_when_it_changes() -> Result<(), Box<dyn Error>> {
    let events = drive(LEAVE, 1)?;
    let params = |path: u8, wanted: Direction| {
        events.iter().filter(move |event| {
            matches!(event, WorldEvent::LinkParams { path: p, direction, .. }
                if *p == PathId(path) && *direction == wanted)
        })
    };
    assert_eq!(params(1, Direction::Up).count(), 1);
    assert_eq!(params(1, Direction::Down).count(), 1);
    assert!(params(0, Direction::Up).count() > 3900);
    Ok(())
}

#[test]
fn a_trace_sets_rate_delay_loss_and_signal() -> Result<(), Box<dyn Error>> {
    let text = "name = \"traced\"\nduration_s = 5\n[vehicle]\nmobility = \"wanted.csv\"\n\
        [[cellular]]\nname = \"lte\"\nrat = \"lte\"\ndelay_ms = 20\ntrace = \"data:a.csv\"\n\
        [[cellular]]\nname = \"nr\"\nrat = \"nr\"\ndelay_ms = 10\ntrace = \"b.up\"\nrate_mbit_s = 9\n\
        [traffic]\nkind = \"bulk\"\n";
    let mut scenario = Scenario::parse(text, "traced.toml")?;
    assert!(World::new(&scenario, 1).is_err_and(|error| error.what.contains("not been read")));
    let files: Vec<(String, bool)> = scenario.files().into_iter().map(|f| (f.path, f.in_data)).collect();
    assert_eq!(files, [("wanted.csv".into(), false), ("a.csv".into(), true), ("b.up".into(), false)]);
    scenario.resolve(&BTreeMap::from([
        ("wanted.csv".into(), "t_s,x_m,y_m\n0,0,0\n5,50,0\n".into()),
        ("data:a.csv".into(), "t_s,rate_mbit_s,delay_ms,loss,rssi_dbm\n0,10,30,0,-70\n2,4,,0.1,-90\n".into()),
        ("b.up".into(), "1\n2\n3\n".into()),
    ]))?;
    let mut world = World::new(&scenario, 1)?;
    let events: Vec<_> = std::iter::from_fn(|| world.poll(Instant::from_secs_f64(5.0))).collect();
    let late = truths(&events, 0).find(|truth| truth.at.as_secs_f64() >= 2.0);
    assert!(late.is_some_and(|t| (t.up_mbit_s, t.down_mbit_s, t.delay_ms, t.loss, t.rssi_dbm)
        == (4.0, 4.0, 30.0, 0.1, Some(-90.0))
        && t.position_m == [20.0, 0.0]));
    let signals = events.iter().filter_map(|event| match event {
        WorldEvent::Signal { at, path: PathId(0), rssi_dbm, .. } => Some((at.as_secs_f64(), *rssi_dbm)),
        _ => None,
    });
    assert!(signals.clone().all(|(t_s, dbm)| dbm == if t_s < 2.0 { -70.0 } else { -90.0 }));
    assert!(signals.count() >= 49);
    let opportunities = events.iter().any(|event| {
        matches!(event,
        WorldEvent::LinkParams { path: PathId(1), direction: Direction::Up, params }
            if matches!(params.bottleneck, Bottleneck::Opportunities(_)))
    });
    assert!(opportunities);
    Ok(())
}
