//! From what a run left to its records and metrics.

use crosslane_core::link::Direction;
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_sim::record::metrics::{PacketSums, Recovery};
use crosslane_sim::record::rows::{PacketRow, TcpInfoRow};
use crosslane_sim::scenario::Scenario;
use serde_json::{Value, json};

use super::Plan;
use super::agents::Finished;
use super::monitor::Heard;
use super::traffic::Delivered;
use super::world::Staged;
use crate::error::Result;
use crate::run_folder::{self, Carried, Records, events};
use crate::summary::Outcome;
use crate::testbed::emulator::{EmulatorReport, PacketRecord};
use crate::testbed::packet::FlowTracker;

/// What a run left.
pub struct Raw {
    /// What both kernels said, and the vehicle's subflows.
    pub kernel: Heard,
    /// The traffic.
    pub delivered: Delivered,
    /// World and links.
    pub staged: Staged,
    /// The agents.
    pub agents: Finished,
}

/// Writes the records and says what came out.
///
/// # Errors
/// A record cannot be written.
pub fn sum_up(scenario: &Scenario, names: &[String], plan: &Plan, mut raw: Raw) -> Result<Outcome> {
    let packets = follow(std::mem::take(&mut raw.staged.packets));
    let samples = std::mem::take(&mut raw.staged.samples);
    // When the drive is over its links go down, which is no news of the drive.
    let within = |event: &Value| event["t_s"].as_f64().is_some_and(|t_s| t_s <= scenario.duration_s);
    let said = raw.agents.said.take().unwrap_or_default();
    let resident_mb = said.iter().find_map(|event| event["resident_mb"].as_f64());
    let said: Vec<Value> = said.into_iter().filter(within).collect();
    let report = raw.staged.report.as_ref();
    let mut sums = PacketSums::new(names.len(), Recovery::of(scenario));
    samples.iter().for_each(|sample| sums.note_sample(sample));
    packets.iter().for_each(|packet| sums.note(packet));
    for (path, counts) in &raw.staged.wires {
        for (direction, count) in [Direction::Up, Direction::Down].into_iter().zip(counts) {
            let bytes = [count.sent_bytes, count.delivered_bytes];
            sums.note_count(*path, direction, bytes, count.dropped_packets);
        }
    }
    let Delivered { messages, skipped, duplicates } = raw.delivered;
    let carried = Carried { messages: &messages, skipped, duplicates, sums: &sums };
    let mut metrics = run_folder::measure(scenario, plan.entry.seed, names, &said, &carried)?;
    if let Some(report) = report {
        metrics.insert("lateness_us.p99".into(), f64::from(report.lateness_us_p99));
        metrics.insert("stall_us.max".into(), f64::from(report.stall_us_max));
        metrics.insert("pause_us.max".into(), f64::from(report.pause_us_max));
    }
    metrics.extend(resident_mb.map(|resident| ("agent.rss_mb".to_string(), resident)));
    let delivered_gb = metrics.get("delivered_bytes").map_or(0.0, |bytes| bytes / 1e9);
    if let Some(took) = raw.agents.tunnel_took.filter(|_| delivered_gb > 0.0) {
        metrics.insert("tunnel.cpu_s_per_gb".into(), took.as_secs_f64() / delivered_gb);
    }
    let others: Vec<Value> = raw.kernel.events.into_iter().chain(raw.agents.gateway).collect();
    let reason = report.and_then(EmulatorReport::invalid_because);
    let mut events: Vec<Value> = said.into_iter().chain(others.into_iter().filter(within)).collect();
    if let Some(reason) = &reason {
        let end = Instant::from_secs_f64(scenario.duration_s);
        events.push(events::line(end, "run", "invalid", json!({ "reason": reason })));
    }
    number_subflows(&mut raw.kernel.subflows, &packets);
    let (links, tcp_info) = (raw.staged.links, raw.kernel.subflows);
    run_folder::write(&plan.folder, names, Records { packets, samples, messages, links, tcp_info, events })?;
    Ok(Outcome { valid: reason.is_none(), reason, metrics })
}

/// The rows of the packets, in the order in which they entered the links.
fn follow(mut records: Vec<PacketRecord>) -> Vec<PacketRow> {
    records.sort_by_key(|record| record.entered);
    let mut follower = FlowTracker::default();
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
