//! The vehicle's own CAMs: when they are sent, which roadside units receive them, and what
//! they cost the channel.

use std::error::Error;

use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_sim::radio::cam::{self, PASSENGER_CAR};
use crosslane_sim::record::rows::SampleRow;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Simulation};
use crosslane_sim::world::{VehicleCam, World, WorldEvent, WorldSample};

type Outcome = Result<(), Box<dyn Error>>;

/// Two units 1 km apart; the vehicle passes the first at 20 m/s, drives to the second, and
/// stands there for 10 s.
const ROAD: &str = r#"
name = "road"
title = "Two units"
duration_s = 60

[vehicle]
route = { from_m = [0, 0], to_m = [1000, 0], speed_kmh = 72 }

[[radio]]
name = "its-g5"
rat = "80211p"
paths = "units"
rate_mbit_s = 6
path_loss = "highway-los"
eirp_dbm = 10

[[roadside_unit]]
name = "west"
radio = "its-g5"
position_m = [0, 10]

[[roadside_unit]]
name = "east"
radio = "its-g5"
position_m = [1000, 10]

[traffic]
kind = "messages"
size_bytes = 500
every_ms = 100
"#;

fn events(text: &str, seed: u64) -> Result<Vec<WorldEvent>, Box<dyn Error>> {
    let mut world = World::new(&Scenario::parse(text, "test.toml")?, seed)?;
    let mut events = Vec::new();
    while let Some(now) = world.next_wakeup() {
        events.extend(std::iter::from_fn(|| world.poll(now)));
    }
    Ok(events)
}

fn cams(text: &str, seed: u64) -> Result<Vec<VehicleCam>, Box<dyn Error>> {
    let of = |event| if let WorldEvent::VehicleCam(cam) = event { Some(cam) } else { None };
    Ok(events(text, seed)?.into_iter().filter_map(of).collect())
}

fn between(cams: &[VehicleCam], from_s: f64, to_s: f64) -> Vec<&VehicleCam> {
    cams.iter().filter(|cam| (from_s..to_s).contains(&cam.at.as_secs_f64())).collect()
}

#[test]
fn a_moving_vehicle_sends_each_time_it_has_moved_four_metres_and_a_stopped_one_once_a_second() -> Outcome {
    let cams = cams(ROAD, 1)?;
    // 20 m/s: 4 m take 200 ms, and more than 4 m are seen after 200 or 300 ms.
    let moving = between(&cams, 1.0, 49.0).len();
    assert!((160..=240).contains(&moving), "{moving}");
    assert_eq!(between(&cams, 54.0, 60.0).len(), 6);
    let headings: Vec<_> = cams.iter().filter_map(|cam| cam.state.heading_deg).collect();
    assert!(headings.len() == cams.len() && headings.iter().all(|deg| (deg - 90.0).abs() < 1e-9));
    let speeds = |cam: &&VehicleCam| cam.state.speed_m_s.unwrap_or(f64::NAN);
    assert!(between(&cams, 1.0, 49.0).iter().all(|cam| (speeds(cam) - 20.0).abs() < 1e-9));
    assert!(between(&cams, 51.0, 60.0).iter().all(|cam| speeds(cam) == 0.0));
    Ok(())
}

#[test]
fn the_low_frequency_container_is_in_at_most_every_500_ms() -> Outcome {
    let cams = cams(ROAD, 1)?;
    assert!(cams[0].low_frequency && cams.iter().any(|cam| !cam.low_frequency));
    let with: Vec<_> = cams.iter().filter(|cam| cam.low_frequency).map(|cam| cam.at).collect();
    assert!(with.windows(2).all(|pair| pair[1].since(pair[0]).as_millis() >= 500));
    Ok(())
}

#[test]
fn the_frame_says_where_the_vehicle_is_and_has_the_length_that_takes_air_time() -> Outcome {
    let cams = cams(ROAD, 1)?;
    for cam in &cams {
        let frame = cam.frame()?;
        let bytes = if cam.low_frequency { cam::VEHICLE_LOW_FREQUENCY_BYTES } else { cam::VEHICLE_BYTES };
        assert_eq!(frame.len(), bytes as usize);
        let decoded = cam::decode(&frame)?;
        let vehicle = decoded.vehicle.ok_or("not a vehicle")?;
        assert_eq!((decoded.station_id, decoded.station_type), (1, PASSENGER_CAR));
        assert_eq!(vehicle.low_frequency.is_some(), cam.low_frequency);
        assert_eq!(vehicle.heading_deg, Some(90.0));
        let [_, longitude] = cam::to_degrees([20.0 * cam.at.as_secs_f64().min(50.0), 0.0]);
        assert!(decoded.longitude_deg.is_some_and(|deg| (deg - longitude).abs() < 1e-7), "{:?}", cam.at);
    }
    Ok(())
}

#[test]
fn each_unit_receives_the_cams_while_the_vehicle_is_near() -> Outcome {
    let cams = cams(ROAD, 1)?;
    let share = |path, from_s, to_s| {
        let sent = between(&cams, from_s, to_s);
        let received = sent.iter().filter(|cam| cam.received.iter().any(|(by, _)| *by == PathId(path))).count();
        received as f64 / sent.len() as f64
    };
    assert!(share(0, 0.0, 5.0) > 0.8 && share(1, 0.0, 5.0) < 0.2, "{} {}", share(0, 0.0, 5.0), share(1, 0.0, 5.0));
    assert!(share(1, 46.0, 60.0) > 0.8 && share(0, 46.0, 60.0) < 0.2);
    let rssi = |from_s, to_s| between(&cams, from_s, to_s).iter().flat_map(|cam| &cam.received).map(|r| r.1).collect();
    let (near, far): (Vec<f64>, Vec<f64>) = (rssi(0.0, 1.0), rssi(9.0, 10.0));
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    assert!(mean(&near) > mean(&far) + 10.0, "{near:?} {far:?}");
    Ok(())
}

#[test]
fn a_unit_that_is_off_receives_nothing() -> Outcome {
    let off = ROAD.replace("position_m = [0, 10]", "position_m = [0, 10]\noutages_s = [[1, 60]]");
    let cams = cams(&off, 1)?;
    let last = cams.iter().rfind(|cam| cam.received.iter().any(|(by, _)| *by == PathId(0))).ok_or("none")?;
    assert!(last.at <= Instant::from_millis(1010), "{:?}", last.at);
    Ok(())
}

#[test]
fn other_stations_collide_with_the_cams_at_a_unit() -> Outcome {
    let busy = ROAD.replace("paths = \"units\"", "paths = \"units\"\nbackground = [[0, 60, 0.9]]");
    let received = |text| -> Result<f64, Box<dyn Error>> {
        let cams = cams(text, 1)?;
        let near = between(&cams, 50.0, 60.0);
        let by_east = near.iter().filter(|cam| cam.received.iter().any(|(path, _)| *path == PathId(1)));
        Ok(by_east.count() as f64 / near.len() as f64)
    };
    // e^(−0.5 · 0.9) = 64 % survive.
    let (free, busy) = (received(ROAD)?, received(&busy)?);
    assert!(free > 0.99 && (0.3..0.95).contains(&busy), "{free} {busy}");
    Ok(())
}

#[test]
fn another_unit_changes_no_reception_at_the_first() -> Outcome {
    let more = ROAD.replace(
        "[traffic]",
        "[[roadside_unit]]\nname = \"north\"\nradio = \"its-g5\"\nposition_m = [0, 90]\n\n[traffic]",
    );
    let first = |text| -> Result<Vec<_>, Box<dyn Error>> {
        let at = |cam: VehicleCam| (cam.at, cam.received.into_iter().find(|(path, _)| *path == PathId(0)));
        Ok(cams(text, 5)?.into_iter().map(at).collect())
    };
    assert_eq!(first(ROAD)?, first(&more)?);
    Ok(())
}

#[test]
fn a_radio_with_one_path_sends_none() -> Outcome {
    let one = ROAD.replace("paths = \"units\"\n", "");
    assert!(cams(&one, 1)?.is_empty() && !cams(ROAD, 1)?.is_empty());
    Ok(())
}

#[test]
fn the_vehicle_takes_a_station_id_that_no_unit_has() -> Outcome {
    let taken = ROAD.replace("position_m = [0, 10]", "position_m = [0, 10]\nstation_id = 1");
    assert_eq!((cams(ROAD, 1)?[0].station, cams(&taken, 1)?[0].station), (1, 2));
    Ok(())
}

#[test]
fn the_records_have_a_row_for_each_reception() -> Outcome {
    let scenario = Scenario::parse(ROAD, "test.toml")?;
    let strategy = scenario.strategy("kernel").ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, 1, Detail::ALL)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    let samples = simulation.finish().samples;
    let received = |row: &SampleRow| match row.sample {
        WorldSample::VehicleCam(path, signal) => Some((row.t_ns, path, signal.rssi_dbm, signal.station)),
        _ => None,
    };
    let recorded: Vec<_> = samples.iter().filter_map(received).collect();
    let rows = |cam: VehicleCam| {
        let row = move |(path, dbm): (PathId, f64)| (cam.at.as_nanos(), path, dbm as f32, Some(cam.station));
        cam.received.into_iter().map(row)
    };
    let expected: Vec<_> = cams(ROAD, 1)?.into_iter().flat_map(rows).collect();
    assert_eq!(recorded, expected);
    assert!(recorded.len() > 100);
    Ok(())
}
