//! The clients' side of the socket: a sender, for its poll loop, and the query of a tunnel.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crosslane_core::demand::Object;
use crosslane_core::tunnel::Mode;
use nix::net::if_::if_nametoindex;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use socket2::{Domain, Socket, Type};

use super::protocol::{
    Inbox, READ_BYTES, Reply, UNITS, address, flush, tunnel_name, write_demand, write_tunnel_request,
};
use super::status::{Status, Tunnels, UnitStatus};
use super::trust::{self, Listeners};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::tunnel::config::interface;

/// Exit code if no such program runs.
pub const NO_AGENT: u8 = 3;

const REMEDY: &str =
    "start `crosslane agent` with a [tunnel] or [roadside], or name the tunnel's interface with --interface";
/// Longest replies to a query, in bytes: 1000 vehicles with 16 paths each take less than a third of it.
const MAX_REPLY_BYTES: u64 = 16 << 20;
/// Longest time for an agent's reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to an agent.
pub struct Agent {
    stream: UnixStream,
    inbox: Inbox,
    /// Rest of the last demand line, not sent yet.
    outbox: Vec<u8>,
    replies: VecDeque<Reply>,
    gone: bool,
}

impl Agent {
    /// Connects to an agent, by the name that its `service.demands` has.
    ///
    /// # Errors
    /// No agent listens there, or access is denied.
    pub fn connect(name: &str) -> io::Result<Agent> {
        let stream = connect(name)?;
        stream.set_nonblocking(true)?;
        Ok(Agent { stream, inbox: Inbox::default(), outbox: Vec::new(), replies: VecDeque::new(), gone: false })
    }

    /// Sends all open objects (the earliest deadline first; at most as many as an
    /// agent considers), with times on `clock`. Never blocks: a demand for which the
    /// socket has no room is dropped, since the next one is complete again.
    pub fn send_demand(&mut self, objects: &[Object], clock: Clock) {
        flush(&self.stream, &mut self.outbox);
        if self.outbox.is_empty() && !self.gone {
            self.outbox = write_demand(objects, clock.origin_ns());
            flush(&self.stream, &mut self.outbox);
        }
    }

    /// The agent's next reply; [`Reply::Gone`] once, as the last.
    pub fn poll(&mut self) -> Option<Reply> {
        flush(&self.stream, &mut self.outbox);
        if self.replies.is_empty() && !self.gone {
            self.read();
        }
        self.replies.pop_front()
    }

    fn read(&mut self) {
        let mut buffer = [0; READ_BYTES];
        while self.replies.is_empty() && !self.gone {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.gone = true,
                // A line that is no known reply is from a newer agent.
                Ok(length) => {
                    let lines = self.inbox.lines(&buffer[..length]);
                    self.replies.extend(lines.iter().filter_map(|line| serde_json::from_slice(line).ok()));
                }
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
        }
        if self.gone {
            self.replies.push_back(Reply::Gone);
        }
    }
}

impl AsFd for Agent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

pub(super) fn connect(name: &str) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // An agent that hangs accepts no connection once its queue is full.
    socket.set_write_timeout(Some(REPLY_TIMEOUT))?;
    socket.connect(&address(name)?)?;
    Ok(OwnedFd::from(socket).into())
}

/// A line of the agent, as a query reads it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer<T> {
    Rejected {
        error: String,
    },
    Status(T),
    /// What a sender wants to know.
    Other(IgnoredAny),
}

/// The status of an agent's tunnels; one without a tunnel to a gateway or vehicles has units only.
#[derive(Deserialize)]
#[serde(untagged)]
enum TunnelAnswer {
    Tunnel {
        #[serde(flatten)]
        tunnel: Status,
        #[serde(default)]
        units: Vec<UnitStatus>,
    },
    Units {
        units: Vec<UnitStatus>,
    },
}

/// The name of the agent that a user means who names no interface: that of the tunnel, or else that of the tunnels to
/// roadside units. Another user's program may listen at the former, and never answer: a tunnel has its interface.
///
/// # Errors
/// Neither runs.
pub fn default_name() -> Result<String> {
    let tunnel = interface();
    let mut listeners = Listeners::default();
    let mut has = |name: &str| listeners.user(&tunnel_name(name)).is_some();
    if if_nametoindex(tunnel.as_str()).is_ok() && has(&tunnel) {
        return Ok(tunnel);
    }
    if has(UNITS) { Ok(UNITS.into()) } else { Err(no_agent(&querying(&tunnel), REMEDY)) }
}

/// Requests the status of the tunnel with this interface, in this network namespace, after a change of its mode if
/// there is one.
///
/// # Errors
/// There is no such agent, it is another user's, or it rejects the request: one error message with the remedy.
pub fn query_tunnel(interface: &str, mode: Option<Mode>) -> Result<Tunnels> {
    let answer = query(&tunnel_name(interface), &querying(interface), REMEDY, &write_tunnel_request(mode))?;
    Ok(match answer {
        TunnelAnswer::Tunnel { tunnel, units } => Tunnels { tunnel: Some(tunnel), units },
        TunnelAnswer::Units { units } => Tunnels { tunnel: None, units },
    })
}

fn querying(interface: &str) -> String {
    format!("querying the agent with the tunnel {interface:?}")
}

fn no_agent(attempt: &str, remedy: &str) -> Error {
    Error::usage(attempt, "none runs in this network namespace", remedy).with_exit_code(NO_AGENT)
}

/// Requests the status of the program that listens at an abstract name.
///
/// # Errors
/// None listens, it is another user's, or it rejects the request: one error message with the remedy.
pub fn query<T: DeserializeOwned>(name: &str, attempt: &str, remedy: &str, request: &[u8]) -> Result<T> {
    let stream = connect(name).map_err(|cause| match cause.kind() {
        // No interface has a name that is too long for a socket's.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::InvalidInput => no_agent(attempt, remedy),
        _ => Error::usage(attempt, cause, remedy),
    })?;
    // An abstract name is free to every program of the namespace.
    trust::believe(&stream).map_err(|user| {
        let cause = format!("{user} runs it, or another program at its address");
        Error::usage(attempt, cause, "run this command as root or as that user")
    })?;
    exchange(&stream, attempt, request)
}

/// The status, or the error message of a rejection.
pub(super) fn exchange<T: DeserializeOwned>(stream: &UnixStream, attempt: &str, request: &[u8]) -> Result<T> {
    match read_answer(stream, request) {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(rejection)) => Err(Error::message(rejection, 2)),
        Err(cause) => {
            let cause = match cause.kind() {
                io::ErrorKind::WouldBlock => format!("no answer for {} s", REPLY_TIMEOUT.as_secs()),
                _ => cause.to_string(),
            };
            Err(Error::failure(attempt, cause).with_remedy("check whether it hangs or has another version"))
        }
    }
}

fn read_answer<T: DeserializeOwned>(mut stream: &UnixStream, request: &[u8]) -> io::Result<Result<T, String>> {
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    // An agent that rejects us may have replied and closed the connection already.
    drop(stream.write_all(request));
    let mut reader = BufReader::new(stream.take(MAX_REPLY_BYTES));
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 && line.last() == Some(&b'\n') {
        match serde_json::from_slice(&line)? {
            Answer::Status(status) => return Ok(Ok(status)),
            Answer::Rejected { error } => return Ok(Err(error)),
            Answer::Other(_) => line.clear(),
        }
    }
    let cause = if line.is_empty() { "it closed the connection" } else { "it closed the connection within its answer" };
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, cause))
}
