//! The shipped cases of uploads with deadlines can be read, and show what they
//! are there for.
#![allow(missing_docs)]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use crosslane_core::agent::Output;
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_sim::bounds::least_cost;
use crosslane_sim::record::metrics::of_deadlines;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Recording, Simulation};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/deadline")
}

fn read(name: &str) -> Result<Scenario, Box<dyn Error>> {
    Ok(Scenario::parse(&fs::read_to_string(folder().join(name))?, name)?)
}

fn run(scenario: &Scenario, strategy: &str, seed: u64) -> Result<Recording, Box<dyn Error>> {
    let strategy = scenario.strategy(strategy).ok_or("no such strategy")?;
    let mut simulation = Simulation::new(scenario, &strategy, seed, Detail::METRICS)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    Ok(simulation.finish())
}

#[test]
fn every_shipped_case_is_valid_and_named_as_its_file() -> Result<(), Box<dyn Error>> {
    let mut cases = 0;
    for entry in fs::read_dir(folder())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        assert_eq!(format!("{}.toml", read(&name)?.name), name);
        cases += 1;
    }
    assert_eq!(cases, 18);
    Ok(())
}

#[test]
fn no_deadline_is_missed_and_the_dear_path_spared_as_far_as_it_can_be() -> Result<(), Box<dyn Error>> {
    let scenario = read("symmetric-10s-cubic.toml")?;
    let recording = run(&scenario, "deadline", 3)?;
    let starts_ns: Vec<u64> = recording.messages.iter().map(|object| object.sent_ns).collect();
    assert_eq!(starts_ns.len(), 6);
    let optimum = least_cost::of_run(&scenario, 3, &starts_ns)?.ok_or("no optimum")?;
    let metrics = of_deadlines(&scenario, &recording.messages, &recording.sums, Some(&optimum));
    assert_eq!(metrics["deadline.missed_share"], 0.0);
    assert_eq!(metrics["deadline.unwritten_share"], 0.0);
    let (share, least) = (recording.sums.share(PathId(1)).unwrap_or(1.0), metrics["path.lte-b.share_optimum"]);
    assert!((0.05..0.06).contains(&least), "{least}");
    assert!(share > least && share < least + 0.045, "{share} of {least}");
    assert!(metrics["cost"] >= metrics["cost_optimum"], "{metrics:?}");
    // The first comes before anything is known of its paths, and is judged again.
    let judged = recording.said.iter().filter_map(|(_, output)| match output {
        Output::Admission(admission) => Some((admission.number, admission.can_be_met())),
        _ => None,
    });
    let judged: Vec<_> = judged.collect();
    assert_eq!(judged[0], (0, None));
    assert_eq!(judged[1..], [0, 1, 2, 3, 4, 5].map(|number| (number, Some(true))));
    Ok(())
}

#[test]
fn a_send_buffer_takes_an_object_before_the_peer_has_read_it() -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(folder().join("asymmetric-10s-cubic.toml"))?;
    let text =
        text.replace("start_s = 1", "start_s = 1\nsend_buffer_bytes = 8000000").replace("objects = 6", "objects = 1");
    let scenario = Scenario::parse(&text, "test.toml")?;
    let recording = run(&scenario, "single", 1)?;
    let metrics = of_deadlines(&scenario, &recording.messages, &recording.sums, None);
    assert_eq!((metrics["deadline.unwritten_share"], metrics["deadline.missed_share"]), (0.0, 1.0));
    assert!(metrics["object.written_s.p50"] < 0.2, "{metrics:?}");
    assert!((20.0..22.0).contains(&metrics["object.completion_s.p50"]), "{metrics:?}");
    Ok(())
}

#[test]
fn one_path_alone_gives_up_what_is_late_or_goes_on_as_told() -> Result<(), Box<dyn Error>> {
    let mut text = fs::read_to_string(folder().join("asymmetric-10s-cubic.toml"))?;
    let received = |text: &str| -> Result<usize, Box<dyn Error>> {
        let scenario = Scenario::parse(text, "test.toml")?;
        let recording = run(&scenario, "single", 1)?;
        Ok(recording.messages.iter().filter(|object| object.received_ns.is_some()).count())
    };
    assert_eq!(received(&text)?, 0);
    text = text.replace("late = \"give-up\"", "late = \"continue\"");
    // 20.7 s each; the third would be there at 63.9 s.
    text = text.replace("duration_s = 64", "duration_s = 63");
    assert_eq!(received(&text)?, 2);
    Ok(())
}

#[test]
fn with_mp_dpa_the_dear_path_carries_less_than_with_the_kernel_and_more_than_with_ours() -> Result<(), Box<dyn Error>> {
    let scenario = read("symmetric-10s-bbr.toml")?;
    let share = |strategy| -> Result<f64, Box<dyn Error>> {
        Ok(run(&scenario, strategy, 5)?.sums.share(PathId(1)).unwrap_or(0.0))
    };
    let (ours, published, kernel) = (share("deadline")?, share("mp-dpa")?, share("kernel")?);
    assert!(ours < published && published < kernel, "{ours} {published} {kernel}");
    Ok(())
}
