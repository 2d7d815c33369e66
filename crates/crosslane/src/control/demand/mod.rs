//! Demand (objects with deadlines), sent to the agent by programs on the same
//! machine over a stream socket (`docs/reference/control-socket.md`, decision 23).
//!
//! ```text
//! sender ──the complete demand──────▶ agent
//!        ◀─backlog, admissions, states─
//! ```
//!
//! One JSON object a line in both directions. Neither side waits for the other: what
//! the socket has no room for is replaced by a newer line when there is room.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;

use crosslane_core::demand::{MAX_OBJECTS, Object};
use crosslane_core::time::Instant;
use serde::{Deserialize, Serialize};
use socket2::{SockAddr, SockRef};

pub mod client;
pub mod server;
mod table;
mod trust;

/// Longest line, in bytes, without the line break: 64 objects take less than 12,000.
pub const MAX_LINE_BYTES: usize = 65_536;
/// Maximum number of connected senders: more than a vehicle has programs with
/// deadlines, and few enough to process all their objects every 10 ms.
pub const MAX_SENDERS: usize = 16;
/// Longest name of a socket, in bytes (unix(7)).
pub const MAX_NAME_BYTES: usize = 107;

/// Bytes read from a socket at once.
const READ_BYTES: usize = 16_384;

/// The agent's messages to a sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Limit of bytes that the sender should have written and not acknowledged;
    /// `None`: its send buffer is the limit.
    BacklogBytes(Option<u64>),
    /// Whether an object can be delivered in time; sent for each when it arrives
    /// and, if nothing was known then, again once something is. Not sent by
    /// strategies that do not predict.
    Admission(AdmissionReport),
    /// Wanted state of each path: `active`, `backup` or `closed`.
    States(BTreeMap<String, String>),
    /// Error in the sender's last line; the agent has closed the connection.
    Error(String),
    /// The agent is gone; a client's last reply.
    #[serde(skip)]
    Gone,
}

/// The agent's prediction for an object.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdmissionReport {
    /// The sender's number of the object.
    pub number: u64,
    /// Predicted time of complete delivery if all paths carry data, in ns of
    /// CLOCK_MONOTONIC; `None` while too little is known of the paths.
    pub predicted_ns: Option<u64>,
    /// Whether the deadline can be met; `None` while too little is known.
    pub can_be_met: Option<bool>,
}

/// A sender's demand: all open objects, the earliest deadline first.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DemandLine {
    objects: Vec<ObjectLine>,
}

/// Times are ns of CLOCK_MONOTONIC.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectLine {
    number: u64,
    size_bytes: u64,
    acked_bytes: u64,
    start_ns: u64,
    deadline_ns: u64,
}

/// The line with these objects, at most as many as an agent considers.
fn write_demand(objects: &[Object], origin_ns: u64) -> Vec<u8> {
    let reported = |object: &Object| ObjectLine {
        number: object.number,
        size_bytes: object.size_bytes,
        acked_bytes: object.acked_bytes,
        start_ns: origin_ns.saturating_add(object.start.as_nanos()),
        deadline_ns: origin_ns.saturating_add(object.deadline.as_nanos()),
    };
    line(&DemandLine { objects: objects.iter().take(MAX_OBJECTS).map(reported).collect() })
}

/// The objects of a line, with times since `origin_ns`.
///
/// # Errors
/// The cause, without the attempt and the remedy.
fn read_demand(line: &[u8], origin_ns: u64) -> Result<Vec<Object>, String> {
    if line.len() > MAX_LINE_BYTES {
        return Err(format!("a line has more than {MAX_LINE_BYTES} bytes"));
    }
    let demand: DemandLine = serde_json::from_slice(line).map_err(|cause| cause.to_string())?;
    if demand.objects.len() > MAX_OBJECTS {
        return Err(format!("{} objects are more than {MAX_OBJECTS}", demand.objects.len()));
    }
    let mut numbers = BTreeSet::new();
    if let Some(duplicate) = demand.objects.iter().find(|object| !numbers.insert(object.number)) {
        return Err(format!("object {} is listed twice", duplicate.number));
    }
    let since = |at_ns: u64| Instant::from_nanos(at_ns.saturating_sub(origin_ns));
    let object = |reported: ObjectLine| Object {
        number: reported.number,
        size_bytes: reported.size_bytes,
        acked_bytes: reported.acked_bytes,
        start: since(reported.start_ns),
        deadline: since(reported.deadline_ns),
    };
    Ok(demand.objects.into_iter().map(object).collect())
}

/// Runs both sides' decoders on a stream received in parts of this size, for tests with arbitrary bytes.
#[doc(hidden)]
pub fn read_anything(stream: &[u8], part: usize) {
    let (mut inbox, mut table) = (Inbox::default(), table::DemandTable::default());
    for (place, bytes) in stream.chunks(part.max(1)).enumerate() {
        for line in inbox.lines(bytes) {
            if let Ok(objects) = read_demand(&line, 1_000_000) {
                let decoded = read_demand(write_demand(&objects, 1_000_000).trim_ascii_end(), 1_000_000);
                assert_eq!(decoded.as_ref(), Ok(&objects), "encoding and decoding are inverse");
                table.replace(place as u64 % 3, objects);
            }
            let _ = serde_json::from_slice::<Reply>(&line);
        }
        let demand = table.demand(&[1.0]);
        assert!(demand.objects.len() <= MAX_OBJECTS && demand.objects.is_sorted_by_key(|object| object.deadline));
        assert!(demand.objects.iter().all(|object| table.owner(object.number).is_some()));
        let _ = table.share(0, Some(u64::MAX));
        assert!(inbox.0.len() <= MAX_LINE_BYTES);
    }
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The agent's address: a file, or after `@` an abstract name, which belongs to
/// the network namespace.
fn address(name: &str) -> io::Result<SockAddr> {
    match name.strip_prefix('@') {
        Some(name) => SockAddr::unix(format!("\0{name}")),
        None => SockAddr::unix(name),
    }
}

/// Writes as much as the socket has room for and removes it from `bytes`.
fn flush(socket: &impl AsFd, bytes: &mut Vec<u8>) -> io::Result<()> {
    while !bytes.is_empty() {
        match SockRef::from(socket).send_with_flags(bytes, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) {
            Ok(sent) => drop(bytes.drain(..sent)),
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => break,
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// Received bytes of an incomplete line.
#[derive(Default)]
struct Inbox(Vec<u8>);

impl Inbox {
    /// The lines that `bytes` complete. A line that is too long is truncated, and
    /// still too long.
    fn lines(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut rest = bytes;
        let mut lines = Vec::new();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.0.extend_from_slice(&rest[..end]);
            lines.push(std::mem::take(&mut self.0));
            rest = &rest[end + 1..];
        }
        self.0.extend_from_slice(rest);
        if self.0.len() > MAX_LINE_BYTES {
            lines.push(std::mem::take(&mut self.0));
        }
        lines
    }
}

#[cfg(test)]
mod tests;
