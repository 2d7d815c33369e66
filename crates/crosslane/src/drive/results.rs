//! Turns the raw data of a run into records and metrics.

use std::ops::Add;

use crosslane_core::link::Direction;
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_sim::record::metrics::{PacketSums, Recovery, throughput};
use crosslane_sim::record::rows::{AgentRows, PacketRow, RunRecords, TcpInfoRow, ThroughputRow};
use crosslane_sim::scenario::{Scenario, Strategy};

use super::Plan;
use super::agents::Finished;
use super::monitor::MonitorRecord;
use super::traffic::Delivered;
use super::world::WorldRecord;
use crate::error::Result;
use crate::run_folder::events::RunEvent;
use crate::run_folder::{self, Records};
use crate::summary::Outcome;
use crate::testbed::emulator::{EmulatorReport, PacketRecord};
use crate::testbed::packet::FlowTracker;
use crate::testbed::packet::segment::is_echo;

/// Raw data of a run.
pub struct Raw {
    /// Events of both kernels, and the state of the vehicle's subflows.
    pub kernel: MonitorRecord,
    pub delivered: Delivered,
    pub world: WorldRecord,
    pub wire_throughput: Vec<ThroughputRow>,
    pub agents: Finished,
}

/// Writes the records and returns the outcome.
pub fn summarize(
    (scenario, strategy): (&Scenario, &Strategy),
    names: &[String],
    plan: &Plan,
    mut raw: Raw,
) -> Result<Outcome> {
    let echo_bytes = scenario.echo.as_ref().map(|_| echo_bytes(&raw.world.packets));
    let packets = packet_rows(std::mem::take(&mut raw.world.packets));
    let samples = std::mem::take(&mut raw.world.samples);
    let (mut agent, end) = (raw.agents.vehicle, Instant::from_secs_f64(scenario.duration_s));
    let report = raw.world.report.as_ref();
    let mut sums = PacketSums::new(names.len(), Recovery::of(scenario));
    samples.iter().for_each(|sample| sums.note_sample(sample));
    packets.iter().for_each(|packet| sums.note(packet));
    for (path, counts) in &raw.world.wires {
        for (direction, count) in Direction::BOTH.into_iter().zip(counts) {
            let bytes = [count.sent_bytes, count.delivered_bytes];
            sums.note_count(*path, direction, bytes, count.dropped_packets);
        }
    }
    let Delivered { messages, skipped, duplicates, reads, outputs } = raw.delivered;
    for (at, output) in outputs {
        agent.rows.note(at, &output);
        agent.events.push((at, RunEvent::Agent(output)));
    }
    let AgentRows { decisions, alarms } = &agent.rows;
    let copied_bytes = [agent.copied_bytes, raw.agents.gateway.copied_bytes].into_iter().flatten().reduce(u64::add);
    let evaluated = RunRecords { messages: &messages, decisions, alarms, duplicates, reads, echo_bytes, copied_bytes };
    let mut metrics = run_folder::measure(scenario, (strategy, plan.entry.seed), names, &evaluated, &sums, skipped)?;
    if let Some(report) = report {
        metrics.insert("lateness_us.p99".into(), f64::from(report.lateness_us_p99));
        metrics.insert("stall_us.max".into(), f64::from(report.stall_us_max));
        metrics.insert("pause_us.max".into(), f64::from(report.pause_us_max));
    }
    metrics.extend(agent.resident_mb.map(|resident| ("agent.rss_mb".to_string(), resident)));
    let delivered_gb = metrics.get("delivered_bytes").map_or(0.0, |bytes| bytes / 1e9);
    if let Some(cpu_time) = raw.agents.tunnel_cpu_time.filter(|_| delivered_gb > 0.0) {
        metrics.insert("tunnel.cpu_s_per_gb".into(), cpu_time.as_secs_f64() / delivered_gb);
    }
    // The links go down after the drive; these events do not belong to it.
    let kernel_events = raw.kernel.events.into_iter().filter(|(at, _)| *at <= end);
    let reason = report.and_then(EmulatorReport::invalid_reason);
    let invalid = reason.clone().map(|reason| (end, RunEvent::Invalid(reason)));
    let agent_events = agent.events.into_iter();
    let events = agent_events.chain(kernel_events).chain(raw.agents.gateway.events).chain(invalid).collect();
    number_subflows(&mut raw.kernel.subflows, &packets);
    let (links, tcp_info) = (raw.world.links, raw.kernel.subflows);
    let throughput = throughput(&packets).into_iter().chain(raw.wire_throughput).collect();
    let records = Records { packets, throughput, samples, messages, links, tcp_info, events, ..Records::default() };
    run_folder::write(&plan.folder, names, records)?;
    Ok(Outcome { valid: reason.is_none(), reason, metrics })
}

/// IP bytes of echo requests and their answers.
fn echo_bytes(records: &[PacketRecord]) -> u64 {
    let echoes = records.iter().filter(|record| is_echo(record.head()));
    echoes.map(|record| u64::from(record.ip_bytes)).sum()
}

/// The rows of the packets, in the order in which they entered the links.
fn packet_rows(mut records: Vec<PacketRecord>) -> Vec<PacketRow> {
    records.sort_by_key(|record| record.entered);
    let mut tracker = FlowTracker::default();
    let row = |record: &PacketRecord| PacketRow {
        delivered_ns: record.delivered.map(|at| at.as_nanos()),
        drop: record.dropped,
        tries: record.tries,
        // With the headers of a tunnel to a roadside unit.
        ip_bytes: record.ip_bytes,
        ..tracker.row(record.entered.as_nanos(), PathId(record.link), record.direction, record.head())
    };
    records.iter().map(row).collect()
}

/// Gives the rows of `tcp_info` the subflow numbers of the packets. A path has
/// one subflow after another, so the last that began before the row is meant.
fn number_subflows(rows: &mut [TcpInfoRow], packets: &[PacketRow]) {
    let mut first_packets: Vec<(u64, PathId, u16)> = Vec::new();
    for packet in packets {
        if let Some(number) = packet.subflow
            && !first_packets.iter().any(|(_, _, known)| *known == number)
        {
            first_packets.push((packet.t_ns, packet.path, number));
        }
    }
    for row in rows {
        let of_path = first_packets.iter().rev().find(|(t_ns, path, _)| *path == row.path && *t_ns <= row.t_ns);
        row.subflow = of_path.map(|(_, _, number)| *number);
    }
}
