//! The CAMs of other vehicles use airtime, delay the RSUs' CAMs and collide with
//! them.

use std::error::Error;

use crosslane_core::link::Bottleneck;
use crosslane_core::time::Instant;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::world::{CamSent, Truth, World, WorldEvent};

/// A parked vehicle near an RSU for a minute: only other vehicles can prevent the
/// reception of a CAM.
fn stand(stations: u32) -> Result<Vec<WorldEvent>, Box<dyn Error>> {
    let text = format!(
        "name = \"stand\"\nduration_s = 60\n[vehicle]\n\
         route = {{ from_m = [40, 4], to_m = [40, 4], speed_kmh = 50 }}\n\
         [[radio]]\nname = \"its-g5\"\nrat = \"80211p\"\nrate_mbit_s = 6\npath_loss = \"cheng\"\nfading = \"none\"\n\
         background = {{ stations = {stations} }}\n\
         [[roadside_unit]]\nname = \"rsu1\"\nradio = \"its-g5\"\nposition_m = [0, 0]\ncam_period_ms = 10\n\
         [traffic]\nkind = \"bulk\"\n"
    );
    let mut world = World::new(&Scenario::parse(&text, "stand.toml")?, 1)?;
    Ok(std::iter::from_fn(|| world.poll(Instant::from_secs_f64(60.0))).collect())
}

fn cams(events: &[WorldEvent]) -> Vec<&CamSent> {
    let cams = events.iter().filter_map(|event| match event {
        WorldEvent::CamSent(cam) => Some(cam),
        _ => None,
    });
    cams.collect()
}

fn truth(events: &[WorldEvent]) -> Option<&Truth> {
    events.iter().find_map(|event| match event {
        WorldEvent::Truth(truth) => Some(truth),
        _ => None,
    })
}

#[test]
fn a_link_gets_the_airtime_that_the_background_leaves() -> Result<(), Box<dyn Error>> {
    let (quiet, crowd) = (stand(0)?, stand(200)?);
    let share = crowd.iter().find_map(|event| match event {
        WorldEvent::LinkParams { params, .. } => match params.bottleneck {
            Bottleneck::Ieee80211p(channel) => Some(channel.share),
            _ => None,
        },
        _ => None,
    });
    // 200 stations, 10 CAMs per second each, 266 µs: 53 % of the airtime.
    assert!(share.is_some_and(|share| (share - 0.468).abs() < 0.001), "{share:?}");
    let rate = |events: &[WorldEvent]| truth(events).map_or(0.0, |truth| truth.up_mbit_s);
    assert!((rate(&crowd) / rate(&quiet) - 0.468).abs() < 0.001);
    Ok(())
}

#[test]
fn the_cams_of_rsus_collide_and_wait_for_the_channel() -> Result<(), Box<dyn Error>> {
    let (quiet, crowd) = (stand(0)?, stand(200)?);
    let (quiet, crowd) = (cams(&quiet), cams(&crowd));
    assert!(quiet.iter().all(|cam| cam.received.is_some()));
    assert!(crowd.len().abs_diff(quiet.len()) <= 1, "{} and {}", crowd.len(), quiet.len());
    let lost = crowd.iter().filter(|cam| cam.received.is_none()).count() as f64 / crowd.len() as f64;
    let expected = 1.0 - (-0.5_f64 * 0.532).exp();
    assert!((lost - expected).abs() < 0.02, "{lost:.3} lost, not {expected:.3}");
    let waits = crowd.iter().zip(&quiet).map(|(late, due)| late.at.since(due.at).as_secs_f64() * 1e6);
    let mean_us = waits.sum::<f64>() / crowd.len() as f64;
    let expected = crowd[0].air_time.as_secs_f64() * 1e6 * 0.532 / 0.468;
    assert!((mean_us / expected - 1.0).abs() < 0.05, "{mean_us:.0} µs, not {expected:.0}");
    Ok(())
}
