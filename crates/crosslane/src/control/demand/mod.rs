//! What is due by when, told to the agent by programs on the same machine over
//! a stream socket (`docs/formats.md`, decision 23).
//!
//! ```text
//! sender ──the whole demand, each time──▶ agent
//!        ◀─backlog, admissions, states──
//! ```
//!
//! Both ways one JSON object a line. Neither end waits for the other: what the
//! socket has no room for is told anew when there is room.

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

/// Longest line, in bytes, without its end: 64 objects take less than 12,000.
pub const MAX_LINE_BYTES: usize = 65_536;
/// Senders connected at once: more than programs of a vehicle that know
/// deadlines, and all their objects are gone through each 10 ms.
pub const MAX_SENDERS: usize = 16;
/// Longest name of a socket, in bytes (unix(7)).
pub const MAX_NAME_BYTES: usize = 107;

/// Bytes taken from a socket at once.
const READ_BYTES: usize = 16_384;

/// What the agent tells a sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Most bytes that the sender should have written and not acknowledged;
    /// `None`: as many as its send buffer takes.
    BacklogBytes(Option<u64>),
    /// Whether an object can be had in time; said of each as it comes up and, if
    /// nothing was known then, once something is. Strategies that do not know
    /// never say it.
    Admission(AdmissionReport),
    /// What is wanted of each path: `active`, `backup` or `closed`.
    States(BTreeMap<String, String>),
    /// What was wrong with the sender's last line; the agent has hung up.
    Error(String),
    /// There is no agent any more; the last that a client says.
    #[serde(skip)]
    Gone,
}

/// What the agent thinks of an object.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdmissionReport {
    /// The sender's number of it.
    pub number: u64,
    /// When it is there at the latest if all paths carry, in ns of
    /// CLOCK_MONOTONIC; `None` while too little is known of the paths.
    pub predicted_ns: Option<u64>,
    /// Can the deadline be met? `None` while too little is known.
    pub can_be_met: Option<bool>,
}

/// What a sender tells: all that is open, the earliest deadline first.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reported {
    objects: Vec<ToldObject>,
}

/// Times are ns of CLOCK_MONOTONIC.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToldObject {
    number: u64,
    size_bytes: u64,
    acked_bytes: u64,
    start_ns: u64,
    deadline_ns: u64,
}

/// The line that tells these objects, as many as an agent looks at.
fn write_demand(objects: &[Object], origin_ns: u64) -> Vec<u8> {
    let told = |object: &Object| ToldObject {
        number: object.number,
        size_bytes: object.size_bytes,
        acked_bytes: object.acked_bytes,
        start_ns: origin_ns.saturating_add(object.start.as_nanos()),
        deadline_ns: origin_ns.saturating_add(object.deadline.as_nanos()),
    };
    line(&Reported { objects: objects.iter().take(MAX_OBJECTS).map(told).collect() })
}

/// The objects of a line, with times since `origin_ns`.
///
/// # Errors
/// What is wrong with it, without the attempt and the remedy.
fn read_demand(line: &[u8], origin_ns: u64) -> Result<Vec<Object>, String> {
    if line.len() > MAX_LINE_BYTES {
        return Err(format!("a line has more than {MAX_LINE_BYTES} bytes"));
    }
    let told: Reported = serde_json::from_slice(line).map_err(|cause| cause.to_string())?;
    if told.objects.len() > MAX_OBJECTS {
        return Err(format!("{} objects are more than {MAX_OBJECTS}", told.objects.len()));
    }
    let mut numbers = BTreeSet::new();
    if let Some(twice) = told.objects.iter().find(|object| !numbers.insert(object.number)) {
        return Err(format!("object {} stands twice", twice.number));
    }
    let since = |at_ns: u64| Instant::from_nanos(at_ns.saturating_sub(origin_ns));
    let object = |told: ToldObject| Object {
        number: told.number,
        size_bytes: told.size_bytes,
        acked_bytes: told.acked_bytes,
        start: since(told.start_ns),
        deadline: since(told.deadline_ns),
    };
    Ok(told.objects.into_iter().map(object).collect())
}

/// What both ends do with a stream that comes in such parts, for tests that feed it anything.
#[doc(hidden)]
pub fn read_anything(stream: &[u8], part: usize) {
    let (mut inbox, mut book) = (Inbox::default(), table::DemandTable::default());
    for (place, bytes) in stream.chunks(part.max(1)).enumerate() {
        for line in inbox.lines(bytes) {
            if let Ok(objects) = read_demand(&line, 1_000_000) {
                let again = read_demand(write_demand(&objects, 1_000_000).trim_ascii_end(), 1_000_000);
                assert_eq!(again.as_ref(), Ok(&objects), "what is written is read");
                book.tell(place as u64 % 3, objects);
            }
            let _ = serde_json::from_slice::<Reply>(&line);
        }
        let demand = book.demand(&[1.0]);
        assert!(demand.objects.len() <= MAX_OBJECTS && demand.objects.is_sorted_by_key(|object| object.deadline));
        assert!(demand.objects.iter().all(|object| book.owner(object.number).is_some()));
        let _ = book.share(0, Some(u64::MAX));
        assert!(inbox.0.len() <= MAX_LINE_BYTES);
    }
}

fn line(of: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(of).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Where the agent listens: a file, or after `@` a name that is no file and
/// belongs to the network namespace.
fn address(name: &str) -> io::Result<SockAddr> {
    match name.strip_prefix('@') {
        Some(name) => SockAddr::unix(format!("\0{name}")),
        None => SockAddr::unix(name),
    }
}

/// Writes as much as the socket has room for and takes it out of `bytes`.
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

/// What came in of a line that is not whole yet.
#[derive(Default)]
struct Inbox(Vec<u8>);

impl Inbox {
    /// The lines that `bytes` make whole. One that is too long comes cut, and
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
