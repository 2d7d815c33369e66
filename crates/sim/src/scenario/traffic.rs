//! The traffic of a scenario.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crosslane_core::time::Instant;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use toml::Table;

use super::schema::{number, period, whole};
use super::source_map::Lines;
use super::{Scenario, ScenarioError};
use crate::input::toml_fault::did_you_mean;
use crate::traffic::keys::{Fault, Keys};
use crate::traffic::{KINDS, KindEntry, Protocol, Span, TrafficKind};

/// The traffic of a drive.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// What is sent.
    pub kind: Arc<dyn TrafficKind>,
    /// Transport protocol.
    pub protocol: Protocol,
    /// True: from the server to the vehicle.
    pub down: bool,
    /// Path of the first subflow; none: the preferred one.
    pub over: Option<String>,
    /// Send buffer of the socket, in bytes; 0: the kernel's choice.
    pub send_buffer_bytes: u32,
    /// Start time, in s.
    pub start_s: f64,
    /// Time until which the sender writes, in s.
    pub stop_s: f64,
}

impl Traffic {
    /// When the sender writes.
    pub fn span(&self) -> Span {
        Span { start: Instant::from_secs_f64(self.start_s), stop: Instant::from_secs_f64(self.stop_s) }
    }
}

/// Keys of all kinds; the others belong to the kind.
const COMMON: [&str; 7] = ["kind", "protocol", "direction", "over", "send_buffer_bytes", "start_s", "stop_s"];

#[derive(Deserialize)]
pub(super) struct TrafficKeys {
    kind: Option<String>,
    protocol: Option<Protocol>,
    direction: Option<DirectionKey>,
    over: Option<String>,
    #[serde(default)]
    send_buffer_bytes: u32,
    #[serde(default = "whole::<1>", deserialize_with = "number::<_, _, 0, 7200>")]
    start_s: f64,
    #[serde(default, deserialize_with = "period::<_, _, 7200>")]
    stop_s: Option<f64>,
    #[serde(flatten, deserialize_with = "keys_of_kinds")]
    of_kind: Table,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum DirectionKey {
    Up,
    Down,
}

impl TrafficKeys {
    pub(super) fn build(self, lines: &Lines, duration_s: f64) -> Result<Traffic, ScenarioError> {
        let missing =
            || lines.error("traffic", "`kind` is missing", "add it (docs/reference/scenario.md lists the keys)");
        let entry = entry(&self.kind.ok_or_else(missing)?, lines)?;
        let mut keys = Keys::new(entry.name, self.of_kind);
        let kind = (entry.read)(&mut keys).map_err(|fault| explain(&fault, lines))?;
        if let Some(key) = keys.left() {
            let what = format!("traffic of kind `{}` has no `{key}`", entry.name);
            return Err(lines.error(&format!("traffic.{key}"), what, "leave it out, or change the kind"));
        }
        let down = self.direction == Some(DirectionKey::Down);
        let what = format!("traffic of kind `{}` has no `direction`: the server answers", entry.name);
        lines.require(!(kind.is_answered() && down), "traffic.direction", what, "leave it out")?;
        Ok(Traffic {
            protocol: protocol(self.protocol, kind.protocols(), entry, lines)?,
            kind,
            down,
            over: self.over,
            send_buffer_bytes: self.send_buffer_bytes,
            start_s: self.start_s,
            stop_s: self.stop_s.unwrap_or(duration_s - 1.0),
        })
    }
}

fn entry(name: &str, lines: &Lines) -> Result<&'static KindEntry, ScenarioError> {
    KINDS.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let what = format!("`kind`: unknown word `{name}`");
        lines.error("traffic.kind", what, did_you_mean(name, KINDS.iter().map(|entry| entry.name)))
    })
}

fn explain(fault: &Fault, lines: &Lines) -> ScenarioError {
    let key = fault.key.as_deref();
    lines.explain_value(&format!("traffic.{}", key.unwrap_or("kind")), key, &fault.text)
}

/// Keys that any kind has.
fn keys_of_kinds<'de, D: Deserializer<'de>>(from: D) -> Result<Table, D::Error> {
    let table = Table::deserialize(from)?;
    let of_kinds = KINDS.iter().flat_map(|entry| entry.keys).copied();
    let known: BTreeSet<&str> = COMMON.into_iter().chain(of_kinds).collect();
    let Some(key) = table.keys().find(|key| !known.contains(key.as_str())) else { return Ok(table) };
    let known = known.into_iter().collect::<Vec<_>>().join("`, `");
    Err(D::Error::custom(format!("unknown field `{key}`, expected one of `{known}`")))
}

fn protocol(
    chosen: Option<Protocol>,
    possible: &[Protocol],
    entry: &KindEntry,
    lines: &Lines,
) -> Result<Protocol, ScenarioError> {
    let protocol = chosen.or(possible.first().copied()).unwrap_or_default();
    if possible.contains(&protocol) {
        return Ok(protocol);
    }
    let (name, other) = if protocol == Protocol::Udp { ("UDP", "tcp") } else { ("TCP", "udp") };
    let what = format!("{name} cannot carry traffic of kind `{}`", entry.name);
    Err(lines.error("traffic.protocol", what, format!("write `protocol = \"{other}\"`, or leave it out")))
}

/// Payload of a datagram, in bytes: from the size of the traffic's header to
/// the space in an MTU of 1500, with IPv4.
const UDP_BYTES: RangeInclusive<u32> = 24..=1472;

/// Minimum period of messages, in ns: 100,000 a second.
const MIN_PERIOD_NS: u64 = 10_000;

impl Scenario {
    /// Checks the size and the rate of messages.
    pub(super) fn check_traffic(&self) -> Result<(), ScenarioError> {
        let Some(size_bytes) = self.traffic.kind.message_bytes() else { return Ok(()) };
        let (min, max) = (UDP_BYTES.start(), UDP_BYTES.end() - u32::from(self.ip_version.longer_by_bytes()));
        let what = format!("a datagram of {size_bytes} bytes is outside {min} to {max}");
        let remedy = "choose a size in this range: it has a header of 24 bytes and must not be fragmented";
        let ok = self.traffic.protocol != Protocol::Udp || (*min..=max).contains(&size_bytes);
        self.lines.require(ok, "traffic.size_bytes", what, remedy)?;
        let what = format!("a message of {size_bytes} bytes is outside 16 to 1000000");
        let remedy = "choose a size in this range: sequence number and time need 16 bytes";
        self.lines.require((16..=1_000_000).contains(&size_bytes), "traffic.size_bytes", what, remedy)?;
        let most = self.fleet.as_ref().and_then(|fleet| self.traffic.kind.with_rate(fleet.rate_mbit_s?[1]));
        for (kind, key) in [(Some(&self.traffic.kind), "traffic"), (most.as_ref(), "fleet")] {
            let what = format!("this rate with {size_bytes} bytes each is more than 100000 messages a second");
            let ok = kind.is_none_or(|kind| kind.period_ns() >= MIN_PERIOD_NS);
            let remedy = "choose a lower `rate_mbit_s`, or a larger `size_bytes`";
            self.lines.require(ok, &format!("{key}.rate_mbit_s"), what, remedy)?;
        }
        Ok(())
    }
}
