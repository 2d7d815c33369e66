//! The same scenario and seed give the same bytes, twice in one process, and in
//! debug and release builds, because both are compared with one golden value. A
//! change of the model changes it; the commit then gives the reason.

use std::error::Error;
use std::fmt::{self, Write};

use crosslane_core::actuator::Command;
use crosslane_core::agent::Output;
use crosslane_core::path::Signal;
use crosslane_core::time::Instant;
use crosslane_sim::record::rows::SampleRow;
use crosslane_sim::scenario::Scenario;
use crosslane_sim::simulation::{Detail, Recording, Simulation};
use crosslane_sim::world::WorldSample;

const LEAVE: &str = include_str!("../../../scenarios/leave-coverage.toml");
const AGGREGATE: &str = include_str!("../../../scenarios/aggregate.toml");

/// FNV-1a, 64 bits, of the text written to it.
struct Digest(u64);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

fn record(text: &str, seed: u64) -> Result<Recording, Box<dyn Error>> {
    let scenario = Scenario::parse(text, "test.toml")?;
    let strategy = scenario.strategy("threshold").ok_or("no such strategy")?;
    let mut simulation = Simulation::new(&scenario, &strategy, seed, Detail::ALL)?;
    simulation.run_until(Instant::from_secs_f64(scenario.duration_s));
    Ok(simulation.finish())
}

fn digest(run: &Recording) -> Result<u64, Box<dyn Error>> {
    assert!(
        run.packets.len() > 1000
            && run.messages.len() > 100
            && run.agent_outputs.len() > 1
            && run.kernel_events.len() > 2
    );
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    write!(digest, "{:?}{:?}{:?}", run.packets, run.messages, run.kernel_events)?;
    write!(digest, "{}", without_sentences(&outputs(run)))?;
    write!(digest, "{}{:?}{:?}", signals(run), run.tcp_info, run.links)?;
    Ok(digest.0)
}

/// The agent's outputs in the form in which the golden values were taken.
fn outputs(run: &Recording) -> String {
    let line = |(at, output): &(Instant, Output)| match output {
        Output::Command(Command::Mptcp(path, command)) => {
            format!("({at:?}, Command {{ path: {path:?}, command: {command:?} }})")
        }
        other => format!("({at:?}, {other:?})"),
    };
    format!("[{}]", run.agent_outputs.iter().map(line).collect::<Vec<_>>().join(", "))
}

/// The signals of the samples, likewise.
fn signals(run: &Recording) -> String {
    let line = |SampleRow { t_ns, sample }: &SampleRow| {
        let (path, Signal { rssi_dbm, station, .. }) = (sample.path()?, sample.signal()?);
        let kind = match sample {
            WorldSample::Cam(..) => "Cam",
            WorldSample::Radio(..) => "Radio",
            _ => "VehicleCam",
        };
        let rest = format!("kind: {kind}, rssi_dbm: {rssi_dbm:?}, station: {station:?}");
        Some(format!("SampleRow {{ t_ns: {t_ns}, path: {path:?}, {rest} }}"))
    };
    format!("[{}]", run.samples.iter().filter_map(line).collect::<Vec<_>>().join(", "))
}

/// Removes the text of reasons, which is not a result.
fn without_sentences(outputs: &str) -> String {
    let mut parts = outputs.split("text: \"");
    let first = parts.next().map(String::from);
    first.into_iter().chain(parts.filter_map(|part| part.split_once('"')).map(|(_, rest)| rest.into())).collect()
}

#[test]
fn the_same_scenario_and_seed_give_the_same_bytes_in_every_build() -> Result<(), Box<dyn Error>> {
    for (text, golden) in [(LEAVE, 0xa6ce_7f3e_37f1_45e1), (AGGREGATE, 0xe5ee_cd09_3761_abc9)] {
        let (first, second) = (digest(&record(text, 7)?)?, digest(&record(text, 7)?)?);
        assert_eq!(first, second, "two runs in one process");
        assert_eq!(first, golden, "the golden value: now {first:#018x}");
    }
    Ok(())
}

#[test]
fn another_seed_gives_other_bytes() -> Result<(), Box<dyn Error>> {
    assert_ne!(digest(&record(LEAVE, 7)?)?, digest(&record(LEAVE, 8)?)?);
    Ok(())
}
