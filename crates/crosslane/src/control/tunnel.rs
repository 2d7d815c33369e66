//! Status and control of a running tunnel for users of the same machine
//! (`docs/reference/control-socket.md`).
//!
//! ```text
//! client ── {} or {"mode": "redundant"} ──▶ agent
//!        ◀── its status, or {"error": …} ──
//! ```
//!
//! One JSON object a line in each direction over a stream socket without a file, named
//! after the tunnel's interface: like the interface, it belongs to the network
//! namespace. Each side checks that the other is root or its own user.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use crosslane_core::path::PathId;
use crosslane_core::tunnel::{Mode, PathStats};
use nix::sys::socket::{getsockopt, sockopt};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::tunnel::endpoint::{EndpointStatus, PeerStatusView};

pub mod command;
pub mod server;

/// Longest request, in bytes.
pub const MAX_REQUEST_BYTES: usize = 1024;
/// Longest reply, in bytes: 1000 vehicles with 16 paths each take less than a third of it.
const MAX_REPLY_BYTES: u64 = 16 << 20;
/// Longest time for an agent's reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// A request for the status, after a change of mode if there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The mode to set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

/// An agent's reply.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Reply {
    Refused { error: String },
    Status(Status),
}

/// Status of a tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its interface.
    pub interface: String,
    /// `vehicle` or `gateway`.
    pub role: String,
    /// Whether what it sends is encrypted.
    pub encrypted: bool,
    /// Longest inner packet that every known path carries, in bytes.
    pub mtu_bytes: u32,
    /// A vehicle's gateway, a gateway's vehicles.
    pub peers: Vec<PeerStatus>,
}

/// Status of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name: of a vehicle as in the gateway's configuration, else `gateway`.
    pub name: String,
    /// The gateway's address and port.
    pub address: Option<String>,
    /// How the paths are used together.
    pub mode: Mode,
    /// Longest inner packet that every known path of this peer carries, in bytes.
    pub mtu_bytes: u32,
    /// Time since its last packet; `None`: none since the agent started.
    pub last_seen_s: Option<f64>,
    /// The paths; none are known with `rfc8086_only`.
    pub paths: Vec<PathStatus>,
}

/// Status of a path; the figures are of the sending direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathStatus {
    /// Its name; on a gateway its path number.
    pub path: String,
    /// Its wanted state: `active`, `backup` or `closed`.
    pub wanted_state: String,
    /// Its liveness: `unknown`, `up`, `probing`, `down` or `recovering`.
    pub liveness: String,
    /// The reason of that liveness, in a sentence.
    pub reason: String,
    /// Its delivery rate; `None` while unknown.
    pub rate_mbit_s: Option<f64>,
    /// Minimum of its recent RTTs; `None` while unknown.
    pub min_rtt_ms: Option<f64>,
    /// Share of packets lost recently, 0 to 1.
    pub loss: f64,
    /// Bytes sent, as datagrams on the wire.
    pub sent_bytes: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Packets lost.
    pub lost: u64,
}

impl Status {
    /// The status of an endpoint with this interface; `names` are a vehicle's paths.
    pub fn new(interface: &str, names: &[impl AsRef<str>], endpoint: EndpointStatus) -> Status {
        let names = if endpoint.is_initiator { names } else { &[] };
        let path = |(path, view): (PathId, PathStats)| PathStatus {
            path: path_name(names, path),
            wanted_state: view.wanted_state.name().into(),
            liveness: view.liveness.name().into(),
            reason: view.reason,
            rate_mbit_s: view.rate_bit_s.map(|rate| rate / 1e6),
            min_rtt_ms: view.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            loss: view.loss,
            sent_bytes: view.sent_bytes,
            delivered: view.delivered,
            lost: view.lost,
        };
        let peer = |peer: PeerStatusView| PeerStatus {
            name: peer.name,
            address: peer.at.map(|at| at.to_string()),
            mode: peer.mode,
            mtu_bytes: peer.mtu_bytes,
            last_seen_s: peer.last_seen_ago.map(|ago| ago.as_secs_f64()),
            paths: peer.paths.into_iter().map(path).collect(),
        };
        Status {
            interface: interface.into(),
            role: if endpoint.is_initiator { "vehicle" } else { "gateway" }.into(),
            encrypted: endpoint.is_encrypted,
            mtu_bytes: endpoint.mtu_bytes,
            peers: endpoint.peers.into_iter().map(peer).collect(),
        }
    }
}

/// A path's name; its number if the peer names the paths.
pub fn path_name(names: &[impl AsRef<str>], path: PathId) -> String {
    names.get(usize::from(path.0)).map_or_else(|| path.0.to_string(), |name| name.as_ref().to_owned())
}

/// Sends a request to the agent whose tunnel has this interface, in this network namespace.
///
/// # Errors
/// There is no such agent, it is another user's, or it rejects the request: one error message with the remedy.
pub fn query(interface: &str, request: Request) -> Result<Status> {
    let attempt = format!("querying the agent with the tunnel {interface:?}");
    let stream = address(interface).and_then(|address| UnixStream::connect_addr(&address)).map_err(|cause| {
        let remedy = "start `crosslane agent` with a [tunnel], or name its interface with --interface";
        match cause.kind() {
            // No interface has a name that is too long for a socket's.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::InvalidInput => {
                Error::usage(&attempt, "none runs in this network namespace", remedy)
            }
            _ => Error::usage(&attempt, cause, remedy),
        }
    })?;
    let user = getsockopt(&stream, sockopt::PeerCredentials).map(|credentials| credentials.uid());
    let user = user.map_err(|cause| Error::failure(&attempt, cause))?;
    if !is_trusted(user) {
        let cause = format!("user {user} runs it, or another program at its address");
        return Err(Error::usage(&attempt, cause, "run this command as that user"));
    }
    match exchange(&stream, request) {
        Ok(Reply::Status(status)) => Ok(status),
        Ok(Reply::Refused { error }) => Err(Error::message(error, 2)),
        Err(cause) => {
            let timed_out = cause.kind() == io::ErrorKind::WouldBlock;
            let cause =
                if timed_out { format!("no answer for {} s", REPLY_TIMEOUT.as_secs()) } else { cause.to_string() };
            Err(Error::failure(attempt, cause).with_remedy("check whether it hangs or has another version"))
        }
    }
}

fn exchange(mut stream: &UnixStream, request: Request) -> io::Result<Reply> {
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    // An agent that rejects us may have replied and closed the connection already.
    drop(stream.write_all(&line(&request)));
    let mut reply = Vec::new();
    BufReader::new(stream.take(MAX_REPLY_BYTES)).read_until(b'\n', &mut reply)?;
    Ok(serde_json::from_slice(&reply)?)
}

fn address(interface: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("crosslane/{interface}"))
}

/// Root may use any agent, other users their own.
fn is_trusted(user: u32) -> bool {
    user == 0 || user == nix::unistd::geteuid().as_raw()
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests;
