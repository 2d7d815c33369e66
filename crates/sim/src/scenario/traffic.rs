//! The traffic of a scenario.

use crosslane_core::transfer::Late;
use serde::{Deserialize, Serialize};

use super::ScenarioError;
use super::deadlines::{DeadlineKeys, DeadlineTraffic};
use super::schema::{number, optional_period, optional_range, whole};
use super::source_map::Lines;

/// The traffic of a drive.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Messages, uploads, bulk, a stream or objects with deadlines.
    pub kind: TrafficKind,
    /// Transport protocol.
    pub protocol: Protocol,
    /// True: from the server to the vehicle.
    pub down: bool,
    /// True if the server answers each message with one of the same size, and
    /// the vehicle waits for the answer before the next message. Delays are then
    /// those of the answers.
    pub answered: bool,
    /// Path of the first subflow; none: the preferred one.
    pub over: Option<String>,
    /// Send buffer of the socket, in bytes; 0: the kernel's choice.
    pub send_buffer_bytes: u32,
    /// Start time, in s.
    pub start_s: f64,
    /// Time until which the sender writes, in s.
    pub stop_s: f64,
}

/// Transport protocol of the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// One connection, MPTCP where the strategy has several paths.
    #[default]
    Tcp,
    /// One datagram per message. Without a tunnel, over the first path.
    Udp,
}

/// Kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum TrafficKind {
    /// Timestamped messages.
    Messages {
        /// Size of a message, in bytes (16 to 1,000,000).
        size_bytes: u32,
        /// Period, in ms (above 0, at most 60,000).
        every_ms: f64,
    },
    /// As fast as possible.
    Bulk,
    /// Datagrams at a constant rate.
    Stream {
        /// Payload of a datagram, in bytes (24 to 1472).
        size_bytes: u32,
        /// Rate of the payload, in Mbit/s (above 0, at most 10,000).
        rate_mbit_s: f64,
    },
    /// Consecutive files, each as fast as possible (simulator only).
    Uploads {
        /// Minimum and maximum size, in bytes (1,000 to 10⁹); log-uniform, so each
        /// factor of two is equally likely.
        size_bytes: [u64; 2],
        /// Minimum and maximum pause between the acknowledgement of the last byte
        /// and the next file, in s (0 to 3600); uniform.
        pause_s: [f64; 2],
    },
    /// Objects with deadlines.
    Deadline(DeadlineTraffic),
}

impl TrafficKind {
    /// Period of the messages, in ns; 0 if there is none.
    pub fn period_ns(&self) -> u64 {
        match *self {
            TrafficKind::Messages { every_ms, .. } => (every_ms * 1e6) as u64,
            TrafficKind::Stream { size_bytes, rate_mbit_s } => (f64::from(size_bytes) * 8e3 / rate_mbit_s) as u64,
            TrafficKind::Bulk | TrafficKind::Uploads { .. } | TrafficKind::Deadline(_) => 0,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrafficKeys {
    kind: KindKey,
    protocol: Option<Protocol>,
    size_bytes: Option<u32>,
    #[serde(default, deserialize_with = "optional_period::<_, 60_000>")]
    every_ms: Option<f64>,
    #[serde(default, deserialize_with = "optional_period::<_, 10_000>")]
    rate_mbit_s: Option<f64>,
    #[serde(default, deserialize_with = "size_mb")]
    size_mb: Option<[f64; 2]>,
    #[serde(default, deserialize_with = "pause_s")]
    pause_s: Option<[f64; 2]>,
    object_bytes: Option<u64>,
    period_s: Option<f64>,
    deadline_s: Option<f64>,
    objects: Option<u32>,
    late: Option<Late>,
    #[serde(default)]
    direction: DirectionKey,
    over: Option<String>,
    #[serde(default)]
    send_buffer_bytes: u32,
    #[serde(default = "whole::<1>", deserialize_with = "number::<_, 0, 7200>")]
    start_s: f64,
    #[serde(default, deserialize_with = "optional_period::<_, 7200>")]
    stop_s: Option<f64>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum KindKey {
    Messages,
    PingPong,
    Bulk,
    Stream,
    Uploads,
    Deadline,
}

#[derive(Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum DirectionKey {
    #[default]
    Up,
    Down,
}

impl TrafficKeys {
    pub(super) fn build(self, lines: &Lines, duration_s: f64) -> Result<Traffic, ScenarioError> {
        Ok(Traffic {
            kind: self.kind(lines)?,
            protocol: self.protocol(lines)?,
            down: self.direction == DirectionKey::Down,
            answered: self.kind == KindKey::PingPong,
            over: self.over,
            send_buffer_bytes: self.send_buffer_bytes,
            start_s: self.start_s,
            stop_s: self.stop_s.unwrap_or(duration_s - 1.0),
        })
    }

    fn kind(&self, lines: &Lines) -> Result<TrafficKind, ScenarioError> {
        let of_messages = (self.size_bytes, self.every_ms);
        let of_uploads = (self.size_mb, self.pause_s);
        let of_deadline = DeadlineKeys {
            object_bytes: self.object_bytes,
            period_s: self.period_s,
            deadline_s: self.deadline_s,
            objects: self.objects,
            late: self.late,
        };
        if let Some(key) = of_deadline.given().filter(|_| self.kind != KindKey::Deadline) {
            let what = format!("only traffic of kind `deadline` has `{key}`");
            return Err(lines.error(&format!("traffic.{key}"), what, "leave it out, or change the kind"));
        }
        if self.rate_mbit_s.is_some() && self.kind != KindKey::Stream {
            let what = "only traffic of kind `stream` has `rate_mbit_s`";
            return Err(lines.error("traffic.rate_mbit_s", what, "leave it out, or change the kind"));
        }
        if self.kind == KindKey::PingPong && self.direction == DirectionKey::Down {
            let what = "traffic of kind `ping-pong` has no `direction`: the vehicle sends and the server answers";
            return Err(lines.error("traffic.direction", what, "leave it out"));
        }
        let (what, remedy) = match (self.kind, of_messages, of_uploads) {
            (KindKey::Messages | KindKey::PingPong, (Some(size_bytes), Some(every_ms)), (None, None)) => {
                return Ok(TrafficKind::Messages { size_bytes, every_ms });
            }
            (KindKey::Stream, ..) => return self.stream(lines),
            (KindKey::Bulk, (None, None), (None, None)) => return Ok(TrafficKind::Bulk),
            (KindKey::Uploads, (None, None), (Some(size_mb), Some(pause_s))) => {
                return Ok(TrafficKind::Uploads { size_bytes: size_mb.map(|mb| (mb * 1e6) as u64), pause_s });
            }
            (KindKey::Deadline, (None, None), (None, None)) => {
                return of_deadline.build(lines).map(TrafficKind::Deadline);
            }
            (KindKey::Deadline, _, _) => {
                ("objects with deadlines have no `size_bytes`, `every_ms`, `size_mb`, `pause_s`", "leave them out")
            }
            (KindKey::Messages | KindKey::PingPong, _, (None, None)) => {
                ("messages need `size_bytes` and `every_ms`", "give both")
            }
            (KindKey::Messages | KindKey::PingPong, _, _) => {
                ("messages have no `size_mb` and no `pause_s`", "leave them out")
            }
            (KindKey::Bulk, (None, None), _) => ("bulk traffic has no `size_mb` and no `pause_s`", "leave them out"),
            (KindKey::Bulk, _, _) => ("bulk traffic has no `size_bytes` and no `every_ms`", "leave them out"),
            (KindKey::Uploads, (None, None), _) => ("uploads need `size_mb` and `pause_s`", "give both"),
            (KindKey::Uploads, _, _) => ("uploads have no `size_bytes` and no `every_ms`", "leave them out"),
        };
        Err(lines.error("traffic.kind", what, remedy))
    }

    fn stream(&self, lines: &Lines) -> Result<TrafficKind, ScenarioError> {
        let others = self.every_ms.is_some() || self.size_mb.is_some() || self.pause_s.is_some();
        match (self.size_bytes, self.rate_mbit_s, others) {
            (Some(size_bytes), Some(rate_mbit_s), false) => Ok(TrafficKind::Stream { size_bytes, rate_mbit_s }),
            (_, _, true) => {
                let what = "a stream has no `every_ms`, `size_mb`, `pause_s`";
                Err(lines.error("traffic.kind", what, "leave them out"))
            }
            _ => Err(lines.error("traffic.kind", "a stream needs `size_bytes` and `rate_mbit_s`", "give both")),
        }
    }

    /// The protocol: a stream is always UDP, messages may be, all else is TCP.
    fn protocol(&self, lines: &Lines) -> Result<Protocol, ScenarioError> {
        match (self.kind, self.protocol) {
            (KindKey::Stream, Some(Protocol::Tcp)) => {
                let what = "a stream has a constant rate, which TCP does not keep";
                Err(lines.error("traffic.protocol", what, "write `protocol = \"udp\"`, or `kind = \"bulk\"`"))
            }
            (KindKey::Stream, _) => Ok(Protocol::Udp),
            (KindKey::Messages, protocol) => Ok(protocol.unwrap_or_default()),
            (_, Some(Protocol::Udp)) => {
                let what = "only messages and streams can be sent by UDP";
                let remedy = "write `kind = \"messages\"` or `kind = \"stream\"`, or leave `protocol` out";
                Err(lines.error("traffic.protocol", what, remedy))
            }
            _ => Ok(Protocol::Tcp),
        }
    }
}

/// Minimum and maximum size of an upload, in MB; smaller ones are messages.
const SIZE_MB: [f64; 2] = [0.001, 1000.0];
/// Minimum and maximum pause between uploads, in s.
const PAUSE_S: [f64; 2] = [0.0, 3600.0];

fn size_mb<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<[f64; 2]>, D::Error> {
    optional_range(from, SIZE_MB)
}

fn pause_s<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<[f64; 2]>, D::Error> {
    optional_range(from, PAUSE_S)
}
