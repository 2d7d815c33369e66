//! The shipped scenarios of uploads with deadlines are valid, and show their
//! intended effects.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use crosslane_core::agent::Output;
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_sim::bounds::least_cost;
use crosslane_sim::bounds::least_cost::Optimum;
use crosslane_sim::record::metrics::{Context, Objects, metrics};
use crosslane_sim::record::rows::RunRecords;
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

fn metrics_of(scenario: &Scenario, recording: &Recording, optimum: Option<Optimum>) -> BTreeMap<String, f64> {
    let names: Vec<String> = scenario.paths().iter().map(|path| path.name.to_string()).collect();
    let objects = Objects::of(scenario, &recording.messages, optimum);
    let records = RunRecords { messages: &recording.messages, ..RunRecords::default() };
    metrics(&records, &recording.sums, &Context { objects, ..Context::of(scenario, &names) })
}

/// Over 8 + 8 Mbit/s: frames of 20 Mbit/s, due in 300 ms, every second one droppable, and frames of 4 to 20 Mbit/s.
#[test]
fn frames_of_a_camera_are_dropped_or_made_smaller_and_the_others_arrive_in_time() -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(folder().join("symmetric-10s-bbr.toml"))?;
    let (before, _) = text.split_once("[traffic]").ok_or("no traffic")?;
    let frames = "[traffic]\nkind = \"deadline\"\nobject_bytes = 100000\nperiod_s = 0.04\ndeadline_s = 0.3\n";
    let of = |keys: &str| -> Result<BTreeMap<String, f64>, Box<dyn Error>> {
        let scenario = Scenario::parse(&format!("{before}{frames}{keys}"), "frames.toml")?;
        Ok(metrics_of(&scenario, &run(&scenario, "deadline", 3)?, None))
    };
    let missed = "deadline.missed_share";
    let (fixed, dropped, adapted) = (of("")?, of("droppable_every = 2")?, of("min_object_bytes = 20000")?);
    assert!(fixed[missed] > 0.5, "{}", fixed[missed]);
    assert!(dropped["deadline.undroppable_missed_share"] < 0.2, "{dropped:?}");
    assert!(adapted[missed] < 0.06 && adapted["delivered_bytes"] > 0.6 * 16e6 / 8.0 * 60.0, "{adapted:?}");
    Ok(())
}

/// The case in which an expensive path was taken for 0.7 times the cheap one, and was 0.54 times as fast.
#[test]
fn an_expensive_path_that_was_never_observed_begins_early_enough() -> Result<(), Box<dyn Error>> {
    let mut text = fs::read_to_string(folder().join("symmetric-10s-cubic.toml"))?;
    for (from, to) in [
        ("rate_mbit_s = 8", "rate_mbit_s = 13"),
        ("rate_mbit_s = 8", "rate_mbit_s = 7"),
        ("delay_ms = 50", "delay_ms = 10"),
        ("delay_ms = 50", "delay_ms = 10"),
        ("object_bytes = 10000000", "object_bytes = 16430000"),
        ("deadline_s = 10", "deadline_s = 9.7"),
    ] {
        text = text.replacen(from, to, 1);
    }
    let scenario = Scenario::parse(&text, "new.toml")?;
    let metrics = metrics_of(&scenario, &run(&scenario, "deadline", 1)?, None);
    assert_eq!((metrics["deadline.missed_share"], metrics["delivered_bytes"]), (0.0, 6.0 * 16_430_000.0));
    Ok(())
}

/// BBR's probe of the RTT, for which the forecast allows, costs a second of the expensive path only where it comes: while
/// that one could still make up for it, it pauses.
#[test]
fn the_expensive_path_pauses_while_it_could_still_carry_what_is_feared() -> Result<(), Box<dyn Error>> {
    for (name, most) in [("symmetric-10s-bbr.toml", 0.037), ("narrow-10s-bbr.toml", 0.036)] {
        let scenario = read(name)?;
        let strategy = scenario.strategy("deadline").ok_or("no such strategy")?;
        let recording = run(&scenario, "deadline", 1)?;
        let starts_ns: Vec<u64> = recording.messages.iter().map(|object| object.sent_ns).collect();
        let optimum = least_cost::of_run(&scenario, &strategy, 1, &starts_ns)?;
        let metrics = metrics_of(&scenario, &recording, optimum);
        let excess = metrics["path.lte-b.share"] - metrics["path.lte-b.share_optimum"];
        assert!(metrics["deadline.missed_share"] == 0.0 && excess < most, "{name}: {excess}");
    }
    Ok(())
}

#[test]
fn no_deadline_is_missed_and_the_expensive_path_is_used_little_more_than_needed() -> Result<(), Box<dyn Error>> {
    let scenario = read("symmetric-10s-cubic.toml")?;
    let strategy = scenario.strategy("deadline").ok_or("no such strategy")?;
    let recording = run(&scenario, "deadline", 3)?;
    let starts_ns: Vec<u64> = recording.messages.iter().map(|object| object.sent_ns).collect();
    assert_eq!(starts_ns.len(), 6);
    let optimum = least_cost::of_run(&scenario, &strategy, 3, &starts_ns)?.ok_or("no optimum")?;
    let metrics = metrics_of(&scenario, &recording, Some(optimum));
    assert_eq!(metrics["deadline.missed_share"], 0.0);
    assert_eq!(metrics["deadline.unwritten_share"], 0.0);
    let (share, min) = (recording.sums.share(PathId(1)).unwrap_or(1.0), metrics["path.lte-b.share_optimum"]);
    assert!((0.035..0.045).contains(&min), "{min}");
    assert!(share > min && share < min + 0.026, "{share} of {min}");
    assert!(metrics["cost"] >= metrics["cost_optimum"], "{metrics:?}");
    // The first object is generated before its paths are known, and is evaluated again.
    let admissions = recording.agent_outputs.iter().filter_map(|(_, output)| match output {
        Output::Admission(admission) => Some((admission.number, admission.can_be_met())),
        _ => None,
    });
    let admissions: Vec<_> = admissions.collect();
    assert_eq!(admissions[0], (0, None));
    assert_eq!(admissions[1..], [0, 1, 2, 3, 4, 5].map(|number| (number, Some(true))));
    Ok(())
}

#[test]
fn a_send_buffer_accepts_an_object_before_the_peer_has_read_it() -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(folder().join("asymmetric-10s-cubic.toml"))?;
    let text =
        text.replace("start_s = 1", "start_s = 1\nsend_buffer_bytes = 8000000").replace("objects = 6", "objects = 1");
    let scenario = Scenario::parse(&text, "test.toml")?;
    let recording = run(&scenario, "single", 1)?;
    let metrics = metrics_of(&scenario, &recording, None);
    assert_eq!((metrics["deadline.unwritten_share"], metrics["deadline.missed_share"]), (0.0, 1.0));
    assert!(metrics["object.written_s.p50"] < 0.2, "{metrics:?}");
    assert!((20.0..22.0).contains(&metrics["object.completion_s.p50"]), "{metrics:?}");
    Ok(())
}

#[test]
fn a_single_path_gives_up_late_objects_or_continues_as_configured() -> Result<(), Box<dyn Error>> {
    let mut text = fs::read_to_string(folder().join("asymmetric-10s-cubic.toml"))?;
    let received = |text: &str| -> Result<usize, Box<dyn Error>> {
        let scenario = Scenario::parse(text, "test.toml")?;
        let recording = run(&scenario, "single", 1)?;
        Ok(recording.messages.iter().filter(|object| object.received_ns.is_some()).count())
    };
    assert_eq!(received(&text)?, 0);
    text = text.replace("late = \"give-up\"", "late = \"continue\"");
    // 20.7 s each; the third would arrive at 63.9 s.
    text = text.replace("duration_s = 64", "duration_s = 63");
    assert_eq!(received(&text)?, 2);
    Ok(())
}

#[test]
fn mp_dpa_uses_the_expensive_path_less_than_the_kernel_and_more_than_ours() -> Result<(), Box<dyn Error>> {
    let scenario = read("symmetric-10s-bbr.toml")?;
    let share = |strategy| -> Result<f64, Box<dyn Error>> {
        Ok(run(&scenario, strategy, 5)?.sums.share(PathId(1)).unwrap_or(0.0))
    };
    let (ours, published, kernel) = (share("deadline")?, share("mp-dpa")?, share("kernel")?);
    assert!(ours < published && published < kernel, "{ours} {published} {kernel}");
    Ok(())
}

/// With two points more than the target where TCP's slow start after an idle time, or a probe of BBR, costs them.
#[test]
fn in_no_case_a_deadline_is_missed_or_much_more_than_must_goes_over_the_expensive_path() -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let scenario = read(&name)?;
        let recording = run(&scenario, "deadline", 1)?;
        let starts_ns: Vec<u64> = recording.messages.iter().map(|object| object.sent_ns).collect();
        let strategy = scenario.strategy("deadline").ok_or("no such strategy")?;
        let optimum = least_cost::of_run(&scenario, &strategy, 1, &starts_ns)?.ok_or("no optimum")?;
        let metrics = metrics_of(&scenario, &recording, Some(optimum));
        assert_eq!((starts_ns.len(), metrics["deadline.missed_share"]), (6, 0.0), "{name}");
        let excess = recording.sums.share(PathId(1)).unwrap_or(1.0) - metrics["path.lte-b.share_optimum"];
        assert!((0.0..0.04).contains(&excess), "{name}: {excess}");
        assert!((0.036..0.046).contains(&metrics["overhead_share"]), "{name}: {}", metrics["overhead_share"]);
    }
    Ok(())
}

/// Each object is 3.7 times what both paths carry in time; the expensive path carries until its rate is known.
#[test]
fn an_object_that_cannot_be_in_time_costs_little_and_the_events_say_why() -> Result<(), Box<dyn Error>> {
    for case in ["symmetric-10s-cubic", "symmetric-10s-bbr"] {
        let text = fs::read_to_string(folder().join(format!("{case}.toml")))?;
        let text = text.replace("object_bytes = 10000000", "object_bytes = 70000000");
        let recording = run(&Scenario::parse(&text, case)?, "deadline", 1)?;
        let share = recording.sums.share(PathId(1)).unwrap_or(1.0);
        assert!(share < 0.1, "{case}: {share}");
        let is_hopeless =
            |output: &Output| matches!(output, Output::Decision { reason, .. } if reason.rule == "deadline.hopeless");
        assert!(recording.agent_outputs.iter().any(|(_, output)| is_hopeless(output)), "{case}");
    }
    Ok(())
}

/// The preferred path delivers nothing from 5 to 9 s: the other one carries, and a new connection follows.
#[test]
fn a_path_that_fails_holds_up_no_object_and_is_connected_again() -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(folder().join("symmetric-10s-cubic.toml"))?;
    let text = text.replacen("queue_bytes = 2000000", "queue_bytes = 2000000\noutages_s = [[5, 9]]", 1);
    let scenario = Scenario::parse(&text, "test.toml")?;
    let strategy = scenario.strategy("deadline").ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, 1, Detail::ALL)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    let recording = simulation.finish();
    assert!(recording.messages.iter().all(|object| object.received_ns.is_some()), "{:?}", recording.messages);
    let of_path = |path| {
        let packets = recording.packets.iter().filter(move |packet| packet.path == PathId(path));
        packets.filter_map(|packet| packet.subflow).collect::<std::collections::BTreeSet<_>>()
    };
    assert!(of_path(0).len() > 1 && of_path(1).len() == 1, "{:?} {:?}", of_path(0), of_path(1));
    let decided = |path| {
        let of = |output: &Output| matches!(output, Output::Decision { path: of, .. } if *of == path);
        recording.agent_outputs.iter().filter(|(_, output)| of(output)).count()
    };
    assert!(decided(PathId(1)) > 0);
    assert!(recording.tcp_info.iter().all(|row| row.token == 0), "plain TCP");
    Ok(())
}
