//! From what a run left to its records and metrics.

use std::path::Path;

use crosslane_core::allocate::PathState;
use crosslane_core::assess::threshold;
use crosslane_core::link::Direction;
use crosslane_core::path::PathId;
use crosslane_sim::check::prove;
use crosslane_sim::metrics::{Context, Recovery, metrics, throughput};
use crosslane_sim::records::{AlarmRow, DecisionRow, MessageRow, PacketRow, RunRecords, TcpInfoRow};
use crosslane_sim::scenario::{CrossingDirection, Expectation, Scenario, TrafficKind};
use serde_json::{Value, json};

use super::Plan;
use super::monitor::Heard;
use super::stage::Staged;
use crate::error::{Error, Result};
use crate::summary::Outcome;
use crate::testbed::emulator::PacketRecord;
use crate::testbed::packet::Follower;
use crate::testbed::records::{Events, RecordError, write_table};

/// What a run left.
pub struct Raw {
    /// What both kernels said, and the vehicle's subflows.
    pub kernel: Heard,
    /// The messages.
    pub messages: Vec<MessageRow>,
    /// Messages that were due and never written.
    pub skipped: u64,
    /// World and links.
    pub staged: Staged,
    /// The agent's events, if there was one.
    pub agent: Option<Vec<Value>>,
    /// Resident memory of the agent, in MB.
    pub resident_mb: Option<f64>,
}

/// Writes the records and says what came out.
///
/// # Errors
/// A record cannot be written.
pub fn sum_up(scenario: &Scenario, names: &[String], plan: &Plan, mut raw: Raw) -> Result<Outcome> {
    let packets = follow(std::mem::take(&mut raw.staged.packets));
    // When the drive is over its links go down, which is no news of the drive.
    let within = |event: &Value| event["t_s"].as_f64().is_some_and(|t_s| t_s <= scenario.duration_s);
    let said: Vec<Value> = raw.agent.take().unwrap_or_default().into_iter().filter(within).collect();
    let (decisions, alarms) = (decisions(&said, names), alarms(&said, names));
    let report = &raw.staged.report;
    let records = RunRecords {
        packets: &packets,
        samples: &raw.staged.samples,
        messages: &raw.messages,
        decisions: &decisions,
        alarms: &alarms,
    };
    let mut found = metrics(&records, &context(scenario, names));
    found.insert("messages.skipped".into(), raw.skipped as f64);
    found.insert("lateness_us.p99".into(), f64::from(report.lateness_us_p99));
    found.insert("stall_us.max".into(), f64::from(report.stall_us_max));
    found.insert("pause_us.max".into(), f64::from(report.pause_us_max));
    found.extend(raw.resident_mb.map(|resident| ("agent.rss_mb".to_string(), resident)));
    let because = report.invalid_because();
    let mut events: Vec<Value> = said.into_iter().chain(raw.kernel.events.into_iter().filter(within)).collect();
    if let Some(because) = &because {
        events.push(json!({ "t_s": scenario.duration_s, "source": "run", "event": "invalid", "because": because }));
    }
    number_subflows(&mut raw.kernel.subflows, &packets);
    let written = write(&plan.folder, names, &packets, &raw.staged, &raw.kernel.subflows, &raw.messages, events);
    written.map_err(|cause| Error::told(cause.to_string(), 1))?;
    Ok(Outcome { valid: because.is_none(), because, metrics: found })
}

fn write(
    folder: &Path,
    names: &[String],
    packets: &[PacketRow],
    staged: &Staged,
    subflows: &[TcpInfoRow],
    messages: &[MessageRow],
    mut events: Vec<Value>,
) -> Result<(), RecordError> {
    let file = |name: &str| folder.join(name);
    write_table(&file("packets.arrow"), names, packets.iter().copied())?;
    write_table(&file("throughput.arrow"), names, throughput(packets))?;
    write_table(&file("samples.arrow"), names, staged.samples.iter().copied())?;
    write_table(&file("links.arrow"), names, staged.links.iter().copied())?;
    write_table(&file("tcp_info.arrow"), names, subflows.iter().cloned())?;
    write_table(&file("messages.arrow"), names, messages.iter().copied())?;
    let time = |event: &Value| event["t_s"].as_f64().unwrap_or(0.0);
    events.sort_by(|a, b| time(a).total_cmp(&time(b)));
    let mut lines = Events::create(&file("events.jsonl"))?;
    for event in events {
        lines.write(&event)?;
    }
    Ok(())
}

/// The rows of the packets, in the order in which they entered the links.
fn follow(mut records: Vec<PacketRecord>) -> Vec<PacketRow> {
    records.sort_by_key(|record| record.entered);
    let mut follower = Follower::default();
    let row = |record: &PacketRecord| PacketRow {
        delivered_ns: record.delivered.map(|at| at.as_nanos()),
        drop: record.dropped,
        tries: record.tries,
        ..follower.row(record.entered.as_nanos(), PathId(record.link), record.direction, record.head())
    };
    records.iter().map(row).collect()
}

/// Gives the rows of `tcp_info` the numbers that the packets' subflows have:
/// on one path subflows follow each other, so the last one that began counts.
fn number_subflows(rows: &mut [TcpInfoRow], packets: &[PacketRow]) {
    let mut begun: Vec<(u64, PathId, u16)> = Vec::new();
    for packet in packets {
        if let Some(number) = packet.subflow
            && !begun.iter().any(|(_, _, known)| *known == number)
        {
            begun.push((packet.t_ns, packet.path, number));
        }
    }
    for row in rows {
        let of_path = begun.iter().rev().find(|(t_ns, path, _)| *path == row.path && *t_ns <= row.t_ns);
        row.subflow = of_path.map(|(_, _, number)| *number);
    }
}

fn context<'a>(scenario: &Scenario, names: &'a [String]) -> Context<'a> {
    let nanos = |seconds: f64| (seconds * 1e9) as u64;
    let crossing_s = prove(scenario, &[]).ok().and_then(|proofs| proofs.iter().find_map(|proof| proof.at_s));
    let period_ns = match scenario.traffic.kind {
        TrafficKind::Messages { every_ms, .. } => (every_ms * 1e6) as u64,
        TrafficKind::Bulk | TrafficKind::Uploads { .. } => 0,
    };
    Context {
        paths: names,
        direction: if scenario.traffic.down { Direction::Down } else { Direction::Up },
        period_ns,
        traffic_start_ns: nanos(scenario.traffic.start_s),
        end_ns: nanos(scenario.duration_s),
        crossing_ns: crossing_s.map(nanos),
        recovery: recovery(scenario),
    }
}

/// The path that is expected to come back; the same thresholds for every
/// strategy, those of `threshold`.
fn recovery(scenario: &Scenario) -> Option<Recovery> {
    let path = scenario.expectations.iter().find_map(|expectation| match expectation {
        Expectation::Crossing(crossing) if crossing.direction == CrossingDirection::Above => {
            scenario.path_id(&crossing.path)
        }
        _ => None,
    })?;
    let defaults = threshold::Params::default();
    let (leave_dbm, hysteresis_db) = (defaults.threshold_dbm as f32, defaults.hysteresis_db as f32);
    Some(Recovery { path, leave_dbm, hysteresis_db })
}

/// Time and path of an event of the agent.
fn place(event: &Value, names: &[String]) -> Option<(u64, PathId)> {
    let path = names.iter().position(|name| event["path"] == name.as_str())?;
    Some(((event["t_s"].as_f64()? * 1e9) as u64, PathId(path as u8)))
}

fn decisions(said: &[Value], names: &[String]) -> Vec<DecisionRow> {
    let state = |event: &Value| {
        [PathState::Closed, PathState::Backup, PathState::Active]
            .into_iter()
            .find(|state| event["state"] == state.name())
    };
    let decisions = said.iter().filter(|event| event["event"] == "decision");
    let row = |event: &Value| {
        let (t_ns, path) = place(event, names)?;
        Some(DecisionRow { t_ns, path, state: state(event)? })
    };
    decisions.filter_map(row).collect()
}

/// Each alarm once: what is told later of whether it was wrong goes to the
/// last one of its path.
fn alarms(said: &[Value], names: &[String]) -> Vec<AlarmRow> {
    let mut rows: Vec<AlarmRow> = Vec::new();
    for event in said.iter().filter(|event| event["event"] == "alarm") {
        let Some((t_ns, path)) = place(event, names) else { continue };
        let was_false = event["false"].as_bool();
        match rows.iter_mut().rfind(|row| row.path == path && row.was_false.is_none()) {
            Some(row) if was_false.is_some() => row.was_false = was_false,
            _ => rows.push(AlarmRow { t_ns, path, was_false }),
        }
    }
    rows
}
