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

/// A table of metrics: name, unit, better values, commands, label, meaning, measure.
macro_rules! metrics {
    ($($name:literal: $unit:literal, $better:ident, $engines:ident, $label:literal, $meaning:literal,
    $measure:ident $(($of:expr))?;)*) => {
        &[$(Metric {
            name: $name,
            unit: $unit,
            better: Better::$better,
            engines: Engines::$engines,
            label: $label,
            meaning: $meaning,
            measure: Measure::$measure$(($of))?,
        },)*]
    };
}

/// All metrics, in the order in which tables have them.
pub const METRICS: &[Metric] = metrics! {
    "delivery_delay_ms.p50": "ms", Low, Both, "delivery delay, median",
        "median from the start of a message's write to its last byte read; a message never delivered counts until the run's end; a datagram never delivered counts only as lost",
        Run(|run| percentile(&run.delays_ms, 0.50));
    "delivery_delay_ms.p99": "ms", Low, Both, "delivery delay, 99th percentile",
        "99th percentile of the same",
        Run(|run| percentile(&run.delays_ms, 0.99));
    "delivery_delay_ms.max": "ms", Low, Both, "delivery delay, worst",
        "maximum of the same",
        Run(|run| run.delays_ms.last().copied());
    "gap_ms.max": "ms", Low, Both, "longest pause in delivery, beyond the period",
        "longest pause between deliveries, minus the message period",
        Run(datagrams::longest_gap_ms);
    "read_gap_ms.max": "ms", Low, Both, "longest time without a byte read",
        "longest time between two reads of a byte stream, or from the last one to the run's end if a message is lost; kinds `bulk` and `messages` over TCP",
        Run(messages::longest_read_gap_ms);
    "messages.sent": "count", Neither, Both, "messages sent",
        "messages written",
        Run(|run| Some(run.records.messages.len() as f64));
    "messages.lost": "count", Low, Both, "messages never delivered",
        "messages never delivered before the run ended",
        Run(|run| Some(messages::lost(run) as f64));
    "late_share": "0–1", Low, Both, "messages late or lost",
        "of the messages or datagrams, those delivered later than `service.late_ms` (200 without it) after their write began, or never",
        Run(messages::late_share);
    "lost_share": "0–1", Low, Both, "datagrams lost",
        "of the datagrams sent, those never received; traffic by UDP only, as the next two",
        Run(datagrams::lost_share);
    "reordered_share": "0–1", Low, Both, "datagrams reordered",
        "of the datagrams received, those that arrived after one with a higher sequence number (RFC 4737)",
        Run(datagrams::reordered_share);
    "duplicated_share": "0–1", Low, Both, "datagrams duplicated",
        "additional copies of datagrams received, over datagrams sent",
        Run(datagrams::duplicated_share);
    "goodput_mbit_s": "Mbit/s", High, Both, "goodput",
        "payload delivered in order to the application, from first to last delivery",
        Run(messages::goodput_mbit_s);
    "path.NAME.share": "0–1", Neither, Both, "share carried by NAME",
        "of the payload bytes delivered over links, those over this path",
        Path(|run, path| run.sums.share(path));
    "path.NAME.bytes": "bytes", Neither, Both, "payload delivered over NAME",
        "payload delivered over this path, with retransmissions, both directions; over a wire, bytes of IP",
        Path(|run, path| run.sums.delivered_payload_bytes.get(usize::from(path.0)).map(|&bytes| bytes as f64));
    "cost": "currency", Low, Both, "cost",
        "payload bytes delivered over each path times its price; only with prices",
        Run(|run| Some(run.sums.cost(run.context.prices.as_ref()?)));
    "delivered_bytes": "bytes", High, Both, "delivered to the application",
        "size of the messages, or of the uploads, that were delivered completely",
        Run(|run| Some(messages::delivered_bytes(run) as f64));
    "packets.lost": "count", Low, Both, "data packets lost on a link",
        "packets with payload that a link dropped: queue full, random loss, every try failed, or link down",
        Run(|run| Some(run.sums.lost_packets as f64));
    "handover.count": "count", Neither, Both, "changes of the active paths",
        "changes of the set of active paths after the traffic has begun; decisions within 1 ms are one change",
        Run(|run| Some(run.handovers_ns.len() as f64));
    "handover.first_s": "s", Neither, Both, "first handover",
        "time of the first of them",
        Run(|run| run.handovers_ns.first().map(|&t_ns| t_ns as f64 / 1e9));
    "handover_delay_ms.max": "ms", Low, Both, "delivery delay around the handover, worst",
        "worst delivery delay of messages sent within 1 s of a handover; for strategies without an agent, which do not report path changes, from 1 s before the crossing in `[[expect]]` to the end",
        Run(handovers::delay_ms);
    "recovery_ms": "ms", Low, Both, "first data on the recovered path",
        "from the first sample above the leaving threshold with its hysteresis, after a loss, to the first data byte on the path; lost: 1 s without a sample at the leaving threshold. The worst, if several; only if the scenario expects a crossing `above`",
        Run(|run| run.sums.recovery_ns(run.context.end_ns).map(millis));
    "reinjected_bytes": "bytes", Low, Both, "reinjected payload",
        "payload whose data sequence numbers had been sent before over another subflow",
        Run(|run| Some(run.sums.repeated.reinjected_bytes as f64));
    "retransmitted_bytes": "bytes", Low, Both, "retransmitted payload",
        "payload sent again on the same subflow",
        Run(|run| Some(run.sums.repeated.retransmitted_bytes as f64));
    "overhead_share": "0–1", Low, Both, "overhead (IP over payload)",
        "IP bytes sent in the traffic's direction over payload delivered, minus 1",
        Run(messages::overhead_share);
    "echo_bytes": "bytes", Low, Both, "echo requests and answers",
        "IP bytes of the echo requests over paths that carry nothing, and of their answers; only with `[echo]`",
        Run(|run| Some(run.records.echo_bytes? as f64));
    "copied_bytes": "bytes", Low, Both, "copies in the tunnel",
        "bytes that both endpoints of the tunnel sent for packets that had been sent before, or at the same time over another path; through the tunnel only",
        Run(|run| Some(run.records.copied_bytes? as f64));
    "deadline.missed_share": "0–1", Low, Both, "deadlines missed",
        "of the objects whose deadline is within the run, those whose last byte was read later or never; traffic of kind `deadline` only, as the next eight",
        Run(|run| Some(run.objects()?.missed_share));
    "deadline.undroppable_missed_share": "0–1", Low, Both, "deadlines missed, not droppable",
        "the same of the objects that may not be dropped; only with `droppable_every` above 1",
        Run(|run| run.objects()?.undroppable_missed_share);
    "deadline.unwritten_share": "0–1", Low, Both, "deadlines missed by the write",
        "those whose last byte the connection had not accepted by the deadline: with a large send buffer far fewer than are missed",
        Run(|run| Some(run.objects()?.unwritten_share));
    "object.completion_s.p50": "s", Neither, Both, "object completion time, median",
        "median from an object's generation to its last byte read; abandoned objects do not count",
        Run(|run| percentile(&run.objects()?.took_s, 0.5));
    "object.completion_s.max": "s", Neither, Both, "object completion time, longest",
        "maximum of the same",
        Run(|run| run.objects()?.took_s.last().copied());
    "object.written_s.p50": "s", Neither, Both, "object written, median",
        "median from an object's generation to its last byte accepted by the connection",
        Run(|run| percentile(&run.objects()?.write_s, 0.5));
    "object.written_s.max": "s", Neither, Both, "object written, longest",
        "maximum of the same",
        Run(|run| run.objects()?.write_s.last().copied());
    "path.NAME.share_optimum": "0–1", Neither, Both, "minimum share carried by NAME",
        "of the bytes of the minimum cost (`cost_optimum`), the share over this path",
        Path(|run, path| run.objects()?.optimum.as_ref()?.share(usize::from(path.0)));
    "cost_optimum": "currency", Neither, Both, "minimum cost",
        "the minimum cost of delivering the maximum that can be in time, computed afterwards from the links' true rates (1424 bytes of payload in 1500), in slots of 10 ms; only with prices",
        Run(|run| run.context.prices.as_ref().and(run.objects()?.optimum.as_ref()).map(|optimum| optimum.cost));
    "alarms": "count", Neither, Both, "sudden-loss alarms",
        "sudden-loss alarms raised",
        Run(|run| Some(run.records.alarms.len() as f64));
    "alarms.false": "count", Low, Both, "false alarms",
        "false positives among them",
        Run(|run| { Some(run.records.alarms.iter().filter(|alarm| alarm.was_false == Some(true)).count() as f64) });
    "join_latency_ms": "ms", Low, Both, "third ACK to MP_JOIN",
        "first acknowledgement of data delivered to the vehicle (from then on the kernel accepts further subflows for the connection) to the first SYN with MP_JOIN, in the packet record",
        Run(|run| run.sums.join_latency_ns().map(millis));
    "join_syns": "count", Low, Both, "SYNs with MP_JOIN",
        "SYNs with MP_JOIN that the vehicle sent, retransmissions included, in the packet record",
        Run(|run| Some(run.sums.join_syns().into()));
    "vehicles": "count", Neither, Simulate, "vehicles",
        "vehicles of a fleet; `[fleet]` only",
        Elsewhere;
    "lateness_us.p99": "µs", Neither, Drive, "emulator lateness, 99th percentile",
        "99th percentile of the emulator's release of a packet after its due time; `drive` only, as the next four",
        Elsewhere;
    "stall_us.max": "µs", Neither, Drive, "emulator's longest stall",
        "longest stall of the emulator's loop",
        Elsewhere;
    "pause_us.max": "µs", Neither, Drive, "longest CPU stall",
        "longest CPU stall (`docs/decisions/0010-cpu-stalls-make-a-run-invalid.md`)",
        Elsewhere;
    "tunnel.cpu_s_per_gb": "s/GB", Low, Drive, "processor time of the tunnel",
        "processor time of both agents of a tunnel, or of both endpoints of `wireguard-go`, over 10⁹ bytes of payload delivered",
        Elsewhere;
    "agent.rss_mb": "MB", Low, Drive, "resident memory of the agent",
        "resident memory of the agent at the end",
        Elsewhere;
};
