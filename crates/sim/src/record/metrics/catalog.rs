//! The catalogue of metrics: what a run is measured by, for `[[expect]]`, the
//! program's tables, the lab and `docs/reference/metrics.md`.

use crosslane_core::path::PathId;
use serde::Serialize;

use super::{Run, datagrams, handovers, messages, millis, percentile};
use crate::scenario::Engines;

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Lower ones.
    Low,
    /// Higher ones.
    High,
    /// Neither.
    Neither,
}

/// A metric of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Metric {
    /// Name in `summary.json` and `[[expect]]`; `NAME` stands for each path.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Which values are better.
    pub better: Better,
    /// Which commands measure it.
    pub engines: Engines,
    /// What figures and tables call it.
    pub label: &'static str,
    /// What it counts.
    pub meaning: &'static str,
    /// How it is computed.
    #[serde(skip)]
    pub measure: Measure,
}

/// How a metric is computed; `None`: it is not defined for the run.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// From the records of a run.
    Run(fn(&Run) -> Option<f64>),
    /// The same for each path.
    Path(fn(&Run, PathId) -> Option<f64>),
    /// By the command itself, or over the vehicles of a fleet.
    Elsewhere,
}

/// All metrics, in the order in which tables have them.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "delivery_delay_ms.p50",
        unit: "ms",
        better: Better::Low,
        engines: Engines::Both,
        label: "delivery delay, median",
        meaning: "median from the start of a message's write to its last byte read; a message never delivered counts until the run's end; a datagram never delivered counts only as lost",
        measure: Measure::Run(|run| percentile(&run.delays_ms, 0.50)),
    },
    Metric {
        name: "delivery_delay_ms.p99",
        unit: "ms",
        better: Better::Low,
        engines: Engines::Both,
        label: "delivery delay, 99th percentile",
        meaning: "99th percentile of the same",
        measure: Measure::Run(|run| percentile(&run.delays_ms, 0.99)),
    },
    Metric {
        name: "delivery_delay_ms.max",
        unit: "ms",
        better: Better::Low,
        engines: Engines::Both,
        label: "delivery delay, worst",
        meaning: "maximum of the same",
        measure: Measure::Run(|run| run.delays_ms.last().copied()),
    },
    Metric {
        name: "gap_ms.max",
        unit: "ms",
        better: Better::Low,
        engines: Engines::Both,
        label: "longest pause in delivery, beyond the period",
        meaning: "longest pause between deliveries, minus the message period",
        measure: Measure::Run(datagrams::longest_gap_ms),
    },
    Metric {
        name: "messages.sent",
        unit: "count",
        better: Better::Neither,
        engines: Engines::Both,
        label: "messages sent",
        meaning: "messages written",
        measure: Measure::Run(|run| Some(run.messages().len() as f64)),
    },
    Metric {
        name: "messages.lost",
        unit: "count",
        better: Better::Low,
        engines: Engines::Both,
        label: "messages never delivered",
        meaning: "messages never delivered before the run ended",
        measure: Measure::Run(|run| Some(messages::lost(run) as f64)),
    },
    Metric {
        name: "lost_share",
        unit: "0–1",
        better: Better::Low,
        engines: Engines::Both,
        label: "datagrams lost",
        meaning: "of the datagrams sent, those never received; traffic by UDP only, as the next two",
        measure: Measure::Run(datagrams::lost_share),
    },
    Metric {
        name: "reordered_share",
        unit: "0–1",
        better: Better::Low,
        engines: Engines::Both,
        label: "datagrams reordered",
        meaning: "of the datagrams received, those that arrived after one with a higher sequence number (RFC 4737)",
        measure: Measure::Run(datagrams::reordered_share),
    },
    Metric {
        name: "duplicated_share",
        unit: "0–1",
        better: Better::Low,
        engines: Engines::Both,
        label: "datagrams duplicated",
        meaning: "additional copies of datagrams received, over datagrams sent",
        measure: Measure::Run(datagrams::duplicated_share),
    },
    Metric {
        name: "goodput_mbit_s",
        unit: "Mbit/s",
        better: Better::High,
        engines: Engines::Both,
        label: "goodput",
        meaning: "payload delivered in order to the application, from first to last delivery",
        measure: Measure::Run(messages::goodput_mbit_s),
    },
    Metric {
        name: "path.NAME.share",
        unit: "0–1",
        better: Better::Neither,
        engines: Engines::Both,
        label: "share carried by NAME",
        meaning: "of the payload bytes delivered over links, those over this path",
        measure: Measure::Path(|run, path| run.sums.share(path)),
    },
    Metric {
        name: "path.NAME.bytes",
        unit: "bytes",
        better: Better::Neither,
        engines: Engines::Both,
        label: "payload delivered over NAME",
        meaning: "payload delivered over this path, with retransmissions, both directions; over a wire, bytes of IP",
        measure: Measure::Path(|run, path| {
            run.sums.delivered_payload_bytes().get(usize::from(path.0)).map(|&bytes| bytes as f64)
        }),
    },
    Metric {
        name: "delivered_bytes",
        unit: "bytes",
        better: Better::High,
        engines: Engines::Both,
        label: "delivered to the application",
        meaning: "size of the messages, or of the uploads, that were delivered completely",
        measure: Measure::Run(|run| Some(messages::delivered_bytes(run) as f64)),
    },
    Metric {
        name: "packets.lost",
        unit: "count",
        better: Better::Low,
        engines: Engines::Both,
        label: "data packets lost on a link",
        meaning: "packets with payload that a link dropped: queue full, random loss, every try failed, or link down",
        measure: Measure::Run(|run| Some(run.sums.lost_packets() as f64)),
    },
    Metric {
        name: "handover.count",
        unit: "count",
        better: Better::Neither,
        engines: Engines::Both,
        label: "changes of the active paths",
        meaning: "changes of the set of active paths after the traffic has begun; decisions within 1 ms are one change",
        measure: Measure::Run(|run| Some(run.handovers_ns.len() as f64)),
    },
    Metric {
        name: "handover.first_s",
        unit: "s",
        better: Better::Neither,
        engines: Engines::Both,
        label: "first handover",
        meaning: "time of the first of them",
        measure: Measure::Run(|run| run.handovers_ns.first().map(|&t_ns| t_ns as f64 / 1e9)),
    },
    Metric {
        name: "handover_delay_ms.max",
        unit: "ms",
        better: Better::Low,
        engines: Engines::Both,
        label: "delivery delay around the handover, worst",
        meaning: "worst delivery delay of messages sent within 1 s of a handover; for strategies without an agent, which do not report path changes, from 1 s before the crossing in `[[expect]]` to the end",
        measure: Measure::Run(handovers::delay_ms),
    },
    Metric {
        name: "recovery_ms",
        unit: "ms",
        better: Better::Low,
        engines: Engines::Both,
        label: "first data on the recovered path",
        meaning: "from the first sample above the leaving threshold with its hysteresis, after a loss, to the first data byte on the path; lost: 1 s without a sample at the leaving threshold. The worst, if several; only if the scenario expects a crossing `above`",
        measure: Measure::Run(|run| run.sums.recovery_ns(run.context.end_ns).map(millis)),
    },
    Metric {
        name: "reinjected_bytes",
        unit: "bytes",
        better: Better::Low,
        engines: Engines::Both,
        label: "reinjected payload",
        meaning: "payload whose data sequence numbers had been sent before over another subflow",
        measure: Measure::Run(|run| Some(run.sums.repeated().reinjected_bytes as f64)),
    },
    Metric {
        name: "retransmitted_bytes",
        unit: "bytes",
        better: Better::Low,
        engines: Engines::Both,
        label: "retransmitted payload",
        meaning: "payload sent again on the same subflow",
        measure: Measure::Run(|run| Some(run.sums.repeated().retransmitted_bytes as f64)),
    },
    Metric {
        name: "overhead_share",
        unit: "0–1",
        better: Better::Low,
        engines: Engines::Both,
        label: "overhead (IP over payload)",
        meaning: "IP bytes sent in the traffic's direction over payload delivered, minus 1",
        measure: Measure::Run(messages::overhead_share),
    },
    Metric {
        name: "deadline.missed_share",
        unit: "0–1",
        better: Better::Low,
        engines: Engines::Both,
        label: "deadlines missed",
        meaning: "of the objects whose deadline is within the run, those whose last byte was read later or never; traffic of kind `deadline` only, as the next six",
        measure: Measure::Run(|run| run.objects()?.missed_share()),
    },
    Metric {
        name: "deadline.unwritten_share",
        unit: "0–1",
        better: Better::Low,
        engines: Engines::Both,
        label: "deadlines missed by the write",
        meaning: "those whose last byte the connection had not accepted by the deadline: with a large send buffer far fewer than are missed",
        measure: Measure::Run(|run| run.objects()?.unwritten_share()),
    },
    Metric {
        name: "object.completion_s.p50",
        unit: "s",
        better: Better::Neither,
        engines: Engines::Both,
        label: "object completion time, median",
        meaning: "median from an object's generation to its last byte read; abandoned objects do not count",
        measure: Measure::Run(|run| percentile(&run.objects()?.took_s, 0.5)),
    },
    Metric {
        name: "object.completion_s.max",
        unit: "s",
        better: Better::Neither,
        engines: Engines::Both,
        label: "object completion time, longest",
        meaning: "maximum of the same",
        measure: Measure::Run(|run| run.objects()?.took_s.last().copied()),
    },
    Metric {
        name: "object.written_s.p50",
        unit: "s",
        better: Better::Neither,
        engines: Engines::Both,
        label: "object written, median",
        meaning: "median from an object's generation to its last byte accepted by the connection",
        measure: Measure::Run(|run| percentile(&run.objects()?.write_s, 0.5)),
    },
    Metric {
        name: "object.written_s.max",
        unit: "s",
        better: Better::Neither,
        engines: Engines::Both,
        label: "object written, longest",
        meaning: "maximum of the same",
        measure: Measure::Run(|run| run.objects()?.write_s.last().copied()),
    },
    Metric {
        name: "path.NAME.share_optimum",
        unit: "0–1",
        better: Better::Neither,
        engines: Engines::Both,
        label: "minimum share carried by NAME",
        meaning: "of the bytes of the minimum cost (`cost_optimum`), the share over this path",
        measure: Measure::Path(|run, path| run.objects()?.optimum.as_ref()?.share(usize::from(path.0))),
    },
    Metric {
        name: "cost",
        unit: "currency",
        better: Better::Low,
        engines: Engines::Both,
        label: "cost",
        meaning: "payload bytes delivered over each path times its price; only with prices, as the next",
        measure: Measure::Run(|run| run.objects()?.cost(run.sums)),
    },
    Metric {
        name: "cost_optimum",
        unit: "currency",
        better: Better::Neither,
        engines: Engines::Both,
        label: "minimum cost",
        meaning: "the minimum cost of delivering the maximum that can be in time, computed afterwards from the links' true rates (1424 bytes of payload in 1500), in slots of 10 ms",
        measure: Measure::Run(|run| run.objects()?.optimal_cost()),
    },
    Metric {
        name: "alarms",
        unit: "count",
        better: Better::Neither,
        engines: Engines::Both,
        label: "sudden-loss alarms",
        meaning: "sudden-loss alarms raised",
        measure: Measure::Run(|run| Some(run.records.alarms.len() as f64)),
    },
    Metric {
        name: "alarms.false",
        unit: "count",
        better: Better::Low,
        engines: Engines::Both,
        label: "false alarms",
        meaning: "false positives among them",
        measure: Measure::Run(|run| {
            Some(run.records.alarms.iter().filter(|alarm| alarm.was_false == Some(true)).count() as f64)
        }),
    },
    Metric {
        name: "join_latency_ms",
        unit: "ms",
        better: Better::Low,
        engines: Engines::Both,
        label: "third ACK to MP_JOIN",
        meaning: "first acknowledgement of data delivered to the vehicle (from then on the kernel accepts further subflows for the connection) to the first SYN with MP_JOIN, in the packet record",
        measure: Measure::Run(|run| run.sums.join_latency_ns().map(millis)),
    },
    Metric {
        name: "vehicles",
        unit: "count",
        better: Better::Neither,
        engines: Engines::Simulate,
        label: "vehicles",
        meaning: "vehicles of a fleet; `[fleet]` only",
        measure: Measure::Elsewhere,
    },
    Metric {
        name: "lateness_us.p99",
        unit: "µs",
        better: Better::Neither,
        engines: Engines::Drive,
        label: "emulator lateness, 99th percentile",
        meaning: "99th percentile of the emulator's release of a packet after its due time; `drive` only, as the next four",
        measure: Measure::Elsewhere,
    },
    Metric {
        name: "stall_us.max",
        unit: "µs",
        better: Better::Neither,
        engines: Engines::Drive,
        label: "emulator's longest stall",
        meaning: "longest stall of the emulator's loop",
        measure: Measure::Elsewhere,
    },
    Metric {
        name: "pause_us.max",
        unit: "µs",
        better: Better::Neither,
        engines: Engines::Drive,
        label: "longest CPU stall",
        meaning: "longest CPU stall (decision 10)",
        measure: Measure::Elsewhere,
    },
    Metric {
        name: "tunnel.cpu_s_per_gb",
        unit: "s/GB",
        better: Better::Low,
        engines: Engines::Drive,
        label: "processor time of the tunnel",
        meaning: "processor time of both agents of a tunnel, or of both endpoints of `wireguard-go`, over 10⁹ bytes of payload delivered",
        measure: Measure::Elsewhere,
    },
    Metric {
        name: "agent.rss_mb",
        unit: "MB",
        better: Better::Low,
        engines: Engines::Drive,
        label: "resident memory of the agent",
        meaning: "resident memory of the agent at the end",
        measure: Measure::Elsewhere,
    },
];
