//! The metrics of `docs/reference/metrics.md`, computed from the records of a run.
//!
//! Pure functions, so that each metric has the same definition in the emulator
//! and the simulator. The emulator adds its own metrics (`lateness_us.p99`,
//! `stall_us.max`, `agent.rss_mb`) to the map.

use std::collections::BTreeMap;

use crosslane_core::assess::threshold;
use crosslane_core::link::Direction;
use crosslane_core::path::{PathId, PathState};

use crate::bounds::feasibility::prove;
use crate::record::retransmissions::Repeats;
use crate::record::rows::{DecisionRow, MessageRow, PacketRow, RunRecords, ThroughputRow};
use crate::scenario::{CrossingDirection, Expectation, Scenario};

mod datagrams;
mod deadlines;
mod packet_totals;

pub use deadlines::of_deadlines;
pub use packet_totals::PacketSums;

/// Interval of a throughput row.
pub const THROUGHPUT_BIN_NS: u64 = 100_000_000;
/// Decisions within this time belong to one change.
const ONE_CHANGE_NS: u64 = 1_000_000;
/// Messages within this time before or after a handover belong to it.
const NEAR_HANDOVER_NS: u64 = 1_000_000_000;

/// Properties of the scenario that the metrics use.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// Names of the paths, indexed by [`PathId`].
    pub paths: &'a [String],
    /// Direction of the traffic.
    pub direction: Direction,
    /// Period of the messages; 0 for bulk.
    pub period_ns: u64,
    /// Start of the traffic; path changes before it are not handovers.
    pub traffic_start_ns: u64,
    /// End of the run.
    pub end_ns: u64,
    /// Time that replaces the handover in runs without one, for the handover
    /// delay: the crossing that the scenario expects.
    pub crossing_ns: Option<u64>,
}

/// Definition of the recovery of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recovery {
    /// The path.
    pub path: PathId,
    /// Leave threshold, in dBm.
    pub leave_dbm: f32,
    /// Hysteresis above it for the return, in dB.
    pub hysteresis_db: f32,
}

impl Context<'_> {
    /// The context of a run of this scenario; `paths` are the names of its
    /// paths.
    pub fn of<'a>(scenario: &Scenario, paths: &'a [String]) -> Context<'a> {
        let nanos = |seconds: f64| (seconds * 1e9) as u64;
        let crossing_s = prove(scenario, &[]).ok().and_then(|proofs| proofs.iter().find_map(|proof| proof.at_s));
        Context {
            paths,
            direction: if scenario.traffic.down { Direction::Down } else { Direction::Up },
            period_ns: scenario.traffic.kind.period_ns(),
            traffic_start_ns: nanos(scenario.traffic.start_s),
            end_ns: nanos(scenario.duration_s),
            crossing_ns: crossing_s.map(nanos),
        }
    }
}

impl Recovery {
    /// The path that the scenario expects to return, if any. The thresholds are
    /// those of `threshold` for every strategy.
    pub fn of(scenario: &Scenario) -> Option<Recovery> {
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
}

/// All metrics of the records and the packet totals. A metric that is not
/// defined for this run (for example without a delivered message) is absent.
pub fn metrics(records: &RunRecords, sums: &PacketSums, context: &Context) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            found.insert(name.to_string(), value);
        }
    };
    let messages = records.messages;
    let received: Vec<MessageRow>;
    // A lost datagram has no delay.
    let awaited = match records.duplicates {
        Some(_) => {
            received = messages.iter().filter(|m| m.received_ns.is_some()).copied().collect();
            &received
        }
        None => messages,
    };
    let delays = sorted_delays_ms(awaited, context.end_ns);
    put("delivery_delay_ms.p50", percentile(&delays, 0.50));
    put("delivery_delay_ms.p99", percentile(&delays, 0.99));
    put("delivery_delay_ms.max", delays.last().copied());
    match records.duplicates {
        Some(duplicates) => {
            put("gap_ms.max", datagrams::longest_gap_ms(messages, context));
            put("lost_share", datagrams::lost_share(messages));
            put("reordered_share", datagrams::reordered_share(messages));
            put("duplicated_share", datagrams::duplicated_share(messages, duplicates));
        }
        None => put("gap_ms.max", longest_gap_ms(messages, context)),
    }
    put("goodput_mbit_s", goodput_mbit_s(messages));
    put("messages.sent", Some(messages.len() as f64));
    let lost = messages.iter().filter(|m| m.received_ns.is_none()).count();
    put("messages.lost", Some(lost as f64));
    let delivered = messages.iter().filter(|m| m.received_ns.is_some());
    put("delivered_bytes", Some(delivered.map(|m| f64::from(m.size_bytes)).sum()));

    let handovers = handovers(records.decisions, context.traffic_start_ns);
    put("handover.count", Some(handovers.len() as f64));
    put("handover.first_s", handovers.first().map(|&t_ns| t_ns as f64 / 1e9));
    put("handover_delay_ms.max", handover_delay_ms(awaited, &handovers, context));
    put("alarms", Some(records.alarms.len() as f64));
    let false_positives = records.alarms.iter().filter(|alarm| alarm.was_false == Some(true)).count();
    put("alarms.false", Some(false_positives as f64));

    for (name, path) in context.paths.iter().zip(0u8..) {
        put(&format!("path.{name}.share"), sums.share(PathId(path)));
        let delivered = sums.delivered_payload_bytes().get(usize::from(path));
        put(&format!("path.{name}.bytes"), delivered.map(|&bytes| bytes as f64));
    }
    put("packets.lost", Some(sums.lost_packets() as f64));
    put("reinjected_bytes", Some(sums.repeated().reinjected_bytes as f64));
    put("retransmitted_bytes", Some(sums.repeated().retransmitted_bytes as f64));
    put("overhead_share", overhead_share(messages, sums.sent_ip_bytes(context.direction)));
    put("join_latency_ms", sums.join_latency_ns().map(|ns| ns as f64 / 1e6));
    put("recovery_ms", sums.recovery_ns(context.end_ns).map(|ns| ns as f64 / 1e6));
    found
}

/// Bytes that each path delivered per 100 ms and direction, without empty rows.
/// Ordered by time, path, direction.
pub fn throughput(packets: &[PacketRow]) -> Vec<ThroughputRow> {
    let mut repeats = Repeats::default();
    let mut bins: BTreeMap<(u64, PathId, Direction), (u64, u64, u64)> = BTreeMap::new();
    for packet in packets {
        let reinjected = repeats.note(packet).reinjected_bytes;
        let Some(delivered_ns) = packet.delivered_ns else {
            continue;
        };
        let begin = delivered_ns - delivered_ns % THROUGHPUT_BIN_NS;
        let bin = bins.entry((begin, packet.path, packet.direction)).or_default();
        bin.0 += u64::from(packet.ip_bytes);
        bin.1 += u64::from(packet.payload_bytes);
        bin.2 += reinjected;
    }
    bins.into_iter()
        .map(|((t_ns, path, direction), (ip_bytes, payload_bytes, reinjected_bytes))| ThroughputRow {
            t_ns,
            path,
            direction,
            ip_bytes,
            payload_bytes,
            reinjected_bytes,
        })
        .collect()
}

/// Delay of a message. One that was never delivered counts as delivered at the
/// end of the run: a lower bound, so that loss does not reduce the delay.
fn delay_ms(message: &MessageRow, end_ns: u64) -> f64 {
    message.received_ns.unwrap_or(end_ns).saturating_sub(message.sent_ns) as f64 / 1e6
}

fn sorted_delays_ms(messages: &[MessageRow], end_ns: u64) -> Vec<f64> {
    let mut delays: Vec<f64> = messages.iter().map(|m| delay_ms(m, end_ns)).collect();
    delays.sort_by(f64::total_cmp);
    delays
}

/// Percentile by nearest rank.
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

fn longest_gap_ms(messages: &[MessageRow], context: &Context) -> Option<f64> {
    let mut deliveries: Vec<u64> = messages.iter().filter_map(|m| m.received_ns).collect();
    if messages.iter().any(|m| m.received_ns.is_none()) {
        deliveries.push(context.end_ns);
    }
    deliveries.sort_unstable();
    let longest = deliveries.windows(2).map(|pair| pair[1] - pair[0]).max()?;
    Some(longest.saturating_sub(context.period_ns) as f64 / 1e6)
}

fn goodput_mbit_s(messages: &[MessageRow]) -> Option<f64> {
    let delivered = || messages.iter().filter_map(|m| Some((m.received_ns?, m.size_bytes)));
    let (first_ns, first_bytes) = delivered().min()?;
    let last_ns = delivered().map(|(received_ns, _)| received_ns).max()?;
    // The time starts with the delivery of the first message, so its bytes do not count.
    let bytes: u64 = delivered().map(|(_, size)| u64::from(size)).sum::<u64>() - u64::from(first_bytes);
    (last_ns > first_ns).then(|| bytes as f64 * 8e3 / (last_ns - first_ns) as f64)
}

/// Without an agent the time of the kernel's path change is unknown; it is after
/// the crossing.
fn handover_delay_ms(messages: &[MessageRow], handovers: &[u64], context: &Context) -> Option<f64> {
    let near = |at_ns: u64, sent_ns: u64| sent_ns.abs_diff(at_ns) < NEAR_HANDOVER_NS;
    let counts = |message: &&MessageRow| match (handovers, context.crossing_ns) {
        ([], crossing) => crossing.is_some_and(|at_ns| message.sent_ns + NEAR_HANDOVER_NS >= at_ns),
        (handovers, _) => handovers.iter().any(|&at_ns| near(at_ns, message.sent_ns)),
    };
    messages.iter().filter(counts).map(|message| delay_ms(message, context.end_ns)).max_by(f64::total_cmp)
}

/// Times after `start_ns` at which the set of active paths changed.
fn handovers(decisions: &[DecisionRow], start_ns: u64) -> Vec<u64> {
    let mut active: BTreeMap<PathId, bool> = BTreeMap::new();
    let mut changes: Vec<u64> = Vec::new();
    for decision in decisions {
        let now = decision.state == PathState::Active;
        let was = active.insert(decision.path, now).unwrap_or(false);
        let apart = changes.last().is_none_or(|&last| decision.t_ns >= last + ONE_CHANGE_NS);
        if was != now && apart && decision.t_ns > start_ns {
            changes.push(decision.t_ns);
        }
    }
    changes
}

fn overhead_share(messages: &[MessageRow], sent_ip_bytes: u64) -> Option<f64> {
    let delivered = messages.iter().filter(|m| m.received_ns.is_some());
    let payload: u64 = delivered.map(|m| u64::from(m.size_bytes)).sum();
    (payload > 0).then(|| sent_ip_bytes as f64 / payload as f64 - 1.0)
}

#[cfg(test)]
mod tests;
