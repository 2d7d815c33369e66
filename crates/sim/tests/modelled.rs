//! Access links modelled from the positions of their stations.

use std::error::Error;

use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::world::{Truth, World, WorldEvent};

const WIFI: &str = include_str!("../../../scenarios/wifi-pass-by.toml");
const CELLS: &str = include_str!("../../../scenarios/two-cells.toml");

fn drive(text: &str, seed: u64) -> Result<Vec<WorldEvent>, Box<dyn Error>> {
    let scenario = Scenario::parse(text, "test.toml")?;
    let mut world = World::new(&scenario, seed)?;
    let end = Instant::from_secs_f64(scenario.duration_s);
    Ok(std::iter::from_fn(|| world.poll(end)).collect())
}

fn truths(events: &[WorldEvent], path: u8) -> Vec<Truth> {
    let truths = events.iter().filter_map(|event| match event {
        WorldEvent::Truth(truth) if truth.path == PathId(path) => Some(*truth),
        _ => None,
    });
    truths.collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn the_same_seed_gives_the_same_drive_and_another_one_does_not() -> Result<(), Box<dyn Error>> {
    for text in [WIFI, CELLS] {
        let bytes = |seed| drive(text, seed).map(|events| format!("{events:?}"));
        assert_eq!(bytes(7)?, bytes(7)?);
        assert_ne!(bytes(7)?, bytes(8)?);
    }
    Ok(())
}

#[test]
fn an_access_point_is_fast_nearby_and_has_no_signal_far_away() -> Result<(), Box<dyn Error>> {
    let plain = WIFI.replace("shadowing_db = 2", "shadowing_db = 0").replace("share_db = 3", "share_db = 0");
    let near = truths(&drive(&plain, 1)?, 1);
    let nearest = &near[2000];
    assert!(nearest.distance_m.is_some_and(|distance_m| distance_m < 15.0));
    assert!((nearest.down_mbit_s - 33.6).abs() < 0.1 && nearest.up_mbit_s == nearest.down_mbit_s, "{nearest:?}");
    assert!(nearest.rssi_dbm.is_some_and(|dbm| (dbm + 60.2).abs() < 0.1), "{nearest:?}");
    assert!(nearest.quality.sinr_db.is_some() && nearest.quality.rsrq_db.is_none());
    let away = plain.replace("position_m = [0, 12]", "position_m = [0, 5000]");
    let events = drive(&away, 1)?;
    let far = truths(&events, 1);
    assert!(far.iter().all(|truth| truth.rssi_dbm.is_none() && truth.up_mbit_s == 0.0));
    let reports = |event: &&WorldEvent| matches!(event, WorldEvent::Signal { path: PathId(1), .. });
    assert_eq!(events.iter().filter(reports).count(), 0);
    Ok(())
}

#[test]
fn the_wi_fi_rate_varies_around_its_median_as_fitted() -> Result<(), Box<dyn Error>> {
    let parked = WIFI
        .replace("from_m = [-210, 0], to_m = [210, 0]", "from_m = [0, 0], to_m = [0, 0]")
        .replace("shadowing_db = 2", "shadowing_db = 0")
        .replace("duration_s = 40", "duration_s = 4000");
    let rates = truths(&drive(&parked, 3)?, 1);
    let rate = median(rates.iter().map(|truth| truth.down_mbit_s));
    assert!((rate / 33.6 - 1.0).abs() < 0.1, "median {rate}");
    let low = median(rates.iter().map(|truth| truth.down_mbit_s).filter(|rate| *rate < 33.6));
    let expected = 33.6 * libm::pow(10.0, -0.3 * 0.6745);
    assert!((low / expected - 1.0).abs() < 0.1, "lower quartile {low}, not {expected}");
    Ok(())
}

/// Measured in LTE at an RSRP around −90 dBm: median 6.8 Mbit/s and −12 dB, 12 % of
/// the seconds below 1 Mbit/s (docs/design/radio.md).
#[test]
fn a_parked_phone_gets_the_measured_rate() -> Result<(), Box<dyn Error>> {
    let text = "name = \"parked\"\nduration_s = 7200\n[vehicle]\n\
        route = { from_m = [615, 0], to_m = [615, 0], speed_kmh = 50 }\n[[cellular]]\nname = \"lte\"\nrat = \"lte\"\n\
        delay_ms = 20\n[cellular.model]\ncells_m = [[0, 0]]\nshadowing_db = 0\n[traffic]\nkind = \"bulk\"\n";
    let lte = truths(&drive(text, 4)?, 0);
    assert!(lte[0].rssi_dbm.is_some_and(|dbm| (dbm + 90.0).abs() < 0.5), "{:?}", lte[0]);
    let rate = median(lte.iter().map(|truth| truth.down_mbit_s));
    assert!((5.4..8.5).contains(&rate), "median {rate} Mbit/s");
    let slow = lte.iter().filter(|truth| truth.down_mbit_s < 1.0).count() as f64 / lte.len() as f64;
    assert!((0.09..0.17).contains(&slow), "{slow} below 1 Mbit/s");
    let rsrq = median(lte.iter().filter_map(|truth| truth.quality.rsrq_db));
    assert!((rsrq + 12.0).abs() < 1.5, "median {rsrq} dB");
    Ok(())
}

#[test]
fn a_handover_goes_to_the_stronger_cell_once_and_interrupts() -> Result<(), Box<dyn Error>> {
    let plain = CELLS.replace("shadowing_db = 3", "shadowing_db = 0");
    let lte = truths(&drive(&plain, 1)?, 1);
    let cells: Vec<_> = lte.iter().filter_map(|truth| truth.quality.cell).collect();
    let changes: Vec<usize> = (1..cells.len()).filter(|&tick| cells[tick] != cells[tick - 1]).collect();
    assert_eq!((cells.first(), cells.last(), changes.len()), (Some(&0), Some(&1), 1));
    // The handover is later than equal distance because of 3 dB of hysteresis.
    assert!((32.0..40.0).contains(&(changes[0] as f64 / 100.0)), "{changes:?}");
    let idle: Vec<usize> = (0..lte.len()).filter(|&tick| lte[tick].down_mbit_s == 0.0).collect();
    assert_eq!(idle, (changes[0]..changes[0] + 4).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn the_figures_of_a_cell_obey_their_definitions() -> Result<(), Box<dyn Error>> {
    for truth in truths(&drive(CELLS, 2)?, 0) {
        let quality = truth.quality;
        let (Some(rsrp), Some(rsrq), Some(rssi)) = (truth.rssi_dbm, quality.rsrq_db, quality.carrier_rssi_dbm) else {
            panic!("no signal at {:?}", truth.at);
        };
        assert!((rsrq - (10.0 * libm::log10(500.0) + rsrp - rssi)).abs() < 1e-9);
        assert!(rsrq < -3.0 && truth.up_mbit_s <= truth.down_mbit_s);
    }
    Ok(())
}

#[test]
fn a_link_that_is_off_reports_nothing_and_carries_nothing() -> Result<(), Box<dyn Error>> {
    let text = CELLS.replacen("delay_ms = 10 ", "delay_ms = 10\noutages_s = [[10, 20]]", 1);
    let off = truths(&drive(&text, 1)?, 0);
    let (within, without): (Vec<Truth>, Vec<Truth>) =
        off.into_iter().partition(|truth| (10.0..20.0).contains(&truth.at.as_secs_f64()));
    assert!(within.iter().all(|t| t.rssi_dbm.is_none() && t.down_mbit_s == 0.0 && t.quality.cell.is_none()));
    assert!(without.iter().all(|t| t.rssi_dbm.is_some() && t.down_mbit_s > 0.0));
    Ok(())
}
