//! The lines of the control socket in both directions, and their limits.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;

use crosslane_core::allocate;
use crosslane_core::demand::{MAX_OBJECTS, Object};
use crosslane_core::time::Instant;
use crosslane_core::tunnel::Mode;
use serde::{Deserialize, Serialize};
use socket2::{SockAddr, SockRef};

use super::demand_table::DemandTable;
use super::report::{Report, TokenName};

/// Longest line, in bytes, without the line break: 64 objects take less than 12,000.
pub const MAX_LINE_BYTES: usize = 65_536;
/// The version of the protocol. A line without `version` has this one.
pub const VERSION: u32 = 1;
/// Maximum number of clients: more than a vehicle has programs with deadlines, and few enough to process all their
/// objects every 10 ms.
pub const MAX_CLIENTS: usize = 16;
/// Further clients of root and the agent's own user, so that a group cannot exclude them.
pub const RESERVED_CLIENTS: usize = 8;
/// In place of an interface: all tunnels to roadside units together.
pub const UNITS: &str = "roadside";
/// Longest name of a socket, in bytes (unix(7)).
pub const MAX_NAME_BYTES: usize = 107;

/// Bytes read from a socket at once.
pub(super) const READ_BYTES: usize = 16_384;

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

/// A client's line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    /// The complete demand: all open objects, the earliest deadline first.
    Demand(Vec<Object>),
    /// The status of the tunnel, after a change of its mode if there is one.
    Tunnel(Option<Mode>),
    /// A request about the agent.
    Agent(AgentRequest),
}

impl Request {
    /// Whether it changes the agent.
    pub(super) fn is_change(&self) -> bool {
        use AgentRequest::{Mode, Prefer, Reload};
        matches!(self, Request::Tunnel(Some(_)) | Request::Agent(Prefer { .. } | Mode(_) | Reload))
    }
}

/// A request about the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentRequest {
    /// How it is.
    Status,
    /// Its connections, from the next one after a token on.
    Connections {
        /// The token; `None`: from the first on.
        after: Option<TokenName>,
    },
    /// Why a path or a connection is as it is: the path's name, or the connection's token.
    Explain(String),
    /// A path is to carry alone while it is good.
    Prefer {
        /// The path; `None`: the strategy decides again.
        path: Option<String>,
        /// For how long; `None`: until another request.
        for_s: Option<f64>,
    },
    /// How the paths are used together.
    Mode(allocate::Mode),
    /// The configuration is to be read again.
    Reload,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RequestLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<Vec<ObjectLine>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<AgentRequest>,
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
pub(super) fn write_demand(objects: &[Object], origin_ns: u64) -> Vec<u8> {
    let reported = |object: &Object| ObjectLine {
        number: object.number,
        size_bytes: object.size_bytes,
        acked_bytes: object.acked_bytes,
        start_ns: origin_ns.saturating_add(object.start.as_nanos()),
        deadline_ns: origin_ns.saturating_add(object.deadline.as_nanos()),
    };
    let objects = Some(objects.iter().take(MAX_OBJECTS).map(reported).collect());
    line(&RequestLine { objects, ..RequestLine::default() })
}

pub(super) fn write_tunnel_request(mode: Option<Mode>) -> Vec<u8> {
    line(&RequestLine { mode, ..RequestLine::default() })
}

pub(super) fn write_agent_request(request: &AgentRequest) -> Vec<u8> {
    line(&RequestLine { version: Some(VERSION), request: Some(request.clone()), ..RequestLine::default() })
}

/// Parses a client's line; the times of objects are since `origin_ns`.
///
/// # Errors
/// The cause, without the attempt and the remedy.
pub(super) fn read_request(line: &[u8], origin_ns: u64) -> Result<Request, String> {
    if line.len() > MAX_LINE_BYTES {
        return Err(format!("a line has more than {MAX_LINE_BYTES} bytes"));
    }
    let request: RequestLine = serde_json::from_slice(line).map_err(|cause| cause.to_string())?;
    match request {
        RequestLine { version: Some(version), .. } if version != VERSION => {
            Err(format!("the agent's protocol has version {VERSION}, not {version}"))
        }
        RequestLine { objects: Some(objects), mode: None, request: None, .. } => {
            demand(objects, origin_ns).map(Request::Demand)
        }
        RequestLine { objects: None, mode, request: None, .. } => Ok(Request::Tunnel(mode)),
        RequestLine { objects: None, mode: None, request: Some(request), .. } => Ok(Request::Agent(request)),
        _ => Err("a line has more than one of `objects`, `mode` and `request`".into()),
    }
}

fn demand(objects: Vec<ObjectLine>, origin_ns: u64) -> Result<Vec<Object>, String> {
    if objects.len() > MAX_OBJECTS {
        return Err(format!("{} objects are more than {MAX_OBJECTS}", objects.len()));
    }
    let mut numbers = BTreeSet::new();
    if let Some(duplicate) = objects.iter().find(|object| !numbers.insert(object.number)) {
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
    Ok(objects.into_iter().map(object).collect())
}

/// Runs both sides' decoders on a stream received in parts of this size, for tests with arbitrary bytes.
#[doc(hidden)]
pub fn read_anything(stream: &[u8], part: usize) {
    let (mut inbox, mut table) = (Inbox::default(), DemandTable::default());
    for (place, bytes) in stream.chunks(part.max(1)).enumerate() {
        for line in inbox.lines(bytes) {
            if let Ok(request) = read_request(&line, 1_000_000) {
                let encoded = match &request {
                    Request::Demand(objects) => write_demand(objects, 1_000_000),
                    Request::Tunnel(mode) => write_tunnel_request(*mode),
                    Request::Agent(request) => write_agent_request(request),
                };
                let decoded = read_request(encoded.trim_ascii_end(), 1_000_000);
                assert_eq!(decoded.as_ref(), Ok(&request), "encoding and decoding are inverse");
                if let Request::Demand(objects) = request {
                    table.replace(place as u64 % 3, objects);
                }
            }
            let _ = serde_json::from_slice::<Reply>(&line);
            let _ = serde_json::from_slice::<Report>(&line);
        }
        let demand = table.demand();
        assert!(demand.len() <= MAX_OBJECTS && demand.is_sorted_by_key(|object| object.deadline));
        assert!(demand.iter().all(|object| table.owner(object.number).is_some()));
        let _ = table.share(0, Some(u64::MAX));
        assert!(inbox.0.len() <= MAX_LINE_BYTES);
    }
}

pub(super) fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Name of the socket of an agent with this tunnel: like the interface, it belongs to the network namespace.
pub(super) fn tunnel_name(interface: &str) -> String {
    format!("@crosslane/{interface}")
}

/// Beginning of the names of all agents' sockets; the process id follows.
pub(super) const AGENTS: &str = "@crosslane/agent/";

/// The agent's address: a file, or after `@` an abstract name, which belongs to
/// the network namespace.
pub(super) fn address(name: &str) -> io::Result<SockAddr> {
    match name.strip_prefix('@') {
        Some(name) => SockAddr::unix(format!("\0{name}")),
        None => SockAddr::unix(name),
    }
}

/// Writes as much as the socket has room for and removes it from `bytes`; all of them after an
/// error: the next read shows whether the peer is gone.
pub(super) fn flush(socket: &impl AsFd, bytes: &mut Vec<u8>) {
    while !bytes.is_empty() {
        match SockRef::from(socket).send_with_flags(bytes, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) {
            Ok(sent) => drop(bytes.drain(..sent)),
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => bytes.clear(),
        }
    }
}

/// Received bytes of an incomplete line.
#[derive(Default)]
pub(super) struct Inbox(Vec<u8>);

impl Inbox {
    /// The lines that `bytes` complete. A line that is too long is truncated, and
    /// still too long.
    pub(super) fn lines(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
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
