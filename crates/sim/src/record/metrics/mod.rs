//! The metrics of `docs/reference/metrics.md`, computed from the records of a run.
//!
//! Pure functions, so that each metric has the same definition in the emulator
//! and the simulator. The emulator adds its own metrics (`lateness_us.p99`,
//! `stall_us.max`, `agent.rss_mb`) to the map.

use std::collections::BTreeMap;

use crosslane_core::assess::threshold;
use crosslane_core::link::Direction;
use crosslane_core::path::PathId;

use crate::bounds::feasibility::prove;
use crate::record::retransmissions::Repeats;
use crate::record::rows::{MessageRow, PacketRow, RunRecords, ThroughputRow};
use crate::scenario::{CrossingDirection, Expectation, Scenario};

mod catalog;
mod datagrams;
mod handovers;
mod messages;
mod objects;
mod packet_totals;

pub use catalog::{Better, METRICS, Measure, Metric};
pub use objects::Objects;
pub use packet_totals::PacketSums;

/// Interval of a throughput row.
pub const THROUGHPUT_BIN_NS: u64 = 100_000_000;

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
    /// A message or datagram that is delivered later than this after its write is late.
    pub late_ms: f64,
    /// Price of a byte over each path; `None` without prices.
    pub prices: Option<Vec<f64>>,
    /// Results of traffic with deadlines.
    pub objects: Option<Objects>,
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
            late_ms: scenario.service.late_after_ms(),
            prices: scenario.prices(),
            objects: None,
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

/// What the metrics of a run are computed from.
pub struct Run<'a> {
    /// Its records.
    pub records: &'a RunRecords<'a>,
    /// Totals over its packets.
    pub sums: &'a PacketSums,
    /// Properties of its scenario.
    pub context: &'a Context<'a>,
    /// Messages whose delay counts: all, or of datagrams those that arrived.
    awaited: Vec<MessageRow>,
    /// Their delays, in ascending order.
    delays_ms: Vec<f64>,
    /// Changes of the set of active paths.
    handovers_ns: Vec<u64>,
}

impl<'a> Run<'a> {
    fn new(records: &'a RunRecords<'a>, sums: &'a PacketSums, context: &'a Context<'a>) -> Run<'a> {
        // A lost datagram has no delay.
        let counts = |message: &&MessageRow| records.duplicates.is_none() || message.received_ns.is_some();
        let awaited: Vec<MessageRow> = records.messages.iter().filter(counts).copied().collect();
        let mut delays_ms: Vec<f64> = awaited.iter().map(|m| messages::delay_ms(m, context.end_ns)).collect();
        delays_ms.sort_by(f64::total_cmp);
        let handovers_ns = handovers::times_ns(records.decisions, context.traffic_start_ns);
        Run { records, sums, context, awaited, delays_ms, handovers_ns }
    }

    fn objects(&self) -> Option<&Objects> {
        self.context.objects.as_ref()
    }
}

/// All [`METRICS`] of a run.
pub fn metrics(records: &RunRecords, sums: &PacketSums, context: &Context) -> BTreeMap<String, f64> {
    measure(METRICS, records, sums, context)
}

/// These metrics of a run. One that is not defined for it (for example without a
/// delivered message) is absent.
pub fn measure(
    metrics: &[Metric],
    records: &RunRecords,
    sums: &PacketSums,
    context: &Context,
) -> BTreeMap<String, f64> {
    let run = Run::new(records, sums, context);
    let mut found = BTreeMap::new();
    let mut put = |name: String, value: Option<f64>| {
        found.extend(value.filter(|value| value.is_finite()).map(|value| (name, value)));
    };
    for metric in metrics {
        match metric.measure {
            Measure::Run(of) => put(metric.name.into(), of(&run)),
            Measure::Path(of) => {
                for (name, path) in context.paths.iter().zip(0u8..) {
                    put(metric.name.replace("NAME", name), of(&run, PathId(path)));
                }
            }
            Measure::Elsewhere => {}
        }
    }
    found
}

/// Bytes that each path delivered per 100 ms and direction, without empty rows.
/// Ordered by time, path, direction.
pub fn throughput(packets: &[PacketRow]) -> Vec<ThroughputRow> {
    let mut repeats = Repeats::default();
    let mut bins: BTreeMap<(u64, PathId, Direction), ThroughputRow> = BTreeMap::new();
    for packet in packets {
        let reinjected = repeats.note(packet).reinjected_bytes;
        let Some(delivered_ns) = packet.delivered_ns else { continue };
        let (t_ns, path, direction) = (delivered_ns - delivered_ns % THROUGHPUT_BIN_NS, packet.path, packet.direction);
        let empty = ThroughputRow { t_ns, path, direction, ip_bytes: 0, payload_bytes: 0, reinjected_bytes: 0 };
        let bin = bins.entry((t_ns, path, direction)).or_insert(empty);
        bin.ip_bytes += u64::from(packet.ip_bytes);
        bin.payload_bytes += u64::from(packet.payload_bytes);
        bin.reinjected_bytes += reinjected;
    }
    bins.into_values().collect()
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// Percentile by nearest rank.
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests;
