//! `crosslane mptcp`: the kernel's path managers from the command line, without an agent. Every request and attribute
//! of `mptcp_pm` is reachable, and the kernel's refusals are printed as they are.
//!
//! The verbs are those of `ip mptcp` and of the kernel's own test tool `pm_nl_ctl`
//! (`docs/reference/mptcp-command.md` compares them).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use serde_json::{Value, json};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Error, Result};
use crate::netlink::requests::{self, RequestSocket};
use crate::netlink::{CallError, EventError, KernelError, OpenError};
use crate::output;

mod arguments;
mod text;

pub use arguments::Options;
use arguments::{Command, Request};

/// Connections that may wait at a listener; subflows do not.
const BACKLOG: i32 = 30;
/// Interval in which `events` notices that nothing reads it any more.
const READER_PERIOD_MS: u16 = 500;
const DENIED: &str = "run as root or with CAP_NET_ADMIN in this network namespace";

/// Runs one command.
///
/// # Errors
/// The kernel's refusal (exit code 1), with `--json` also on standard output; an interface that does not exist.
pub fn run(options: &Options) -> Result<()> {
    let json = options.json;
    let request = match &options.command {
        Command::Listen { address, port } => return listen(SocketAddr::new(*address, *port), json),
        Command::Events => return events(json),
        Command::Request(verb) => verb.request()?,
    };
    let mut socket = RequestSocket::open().map_err(Error::reported)?;
    let answer = socket.send(request.operation, &request.arguments).map_err(|cause| refused(&request, &cause, json));
    let (text, value) = text::answer(request.operation, &answer?);
    print(text, &value, json)
}

/// The error for a refusal; with `json` also an object on standard output.
fn refused(request: &Request, cause: &CallError, json: bool) -> Error {
    let error = Error::failure(format!("asking the kernel to {}", request.attempt), cause).with_remedy(remedy(cause));
    let CallError::Refused(KernelError { errno, text, offset, missing }) = cause else { return error };
    let (number, name) = (*errno as i32, format!("{errno:?}"));
    let value = json!({
        "ok": false, "errno": number, "name": name, "text": text, "offset": offset, "missing_attribute": missing,
    });
    print(String::new(), &value, json).err().unwrap_or(error)
}

/// What the user can do about a refusal.
fn remedy(cause: &CallError) -> &'static str {
    use nix::errno::Errno;
    let text = match cause {
        CallError::Refused(refusal) => refusal.text.as_deref().unwrap_or_default(),
        _ => "",
    };
    match cause.errno() {
        Some(Errno::EPERM | Errno::EACCES) => DENIED,
        Some(Errno::EOPNOTSUPP) => "use a newer kernel: this one does not know the request",
        Some(Errno::EEXIST) => "delete the endpoint first",
        Some(Errno::ESRCH | Errno::ENOTCONN) => {
            "compare with `crosslane mptcp events`; write addresses of a dual-stack socket as ::ffff:A.B.C.D"
        }
        _ if text.contains("token") => "take the token of a present connection, as `crosslane mptcp events` prints it",
        _ if text.contains("userspace PM not selected") => {
            "set net.mptcp.path_manager to `userspace` before the connection begins, or leave it to the kernel's"
        }
        _ => "correct what the kernel names; --help explains the options",
    }
}

fn print(text: String, value: &Value, json: bool) -> Result<()> {
    output::print("printing the kernel's answer", if json { format!("{value}\n") } else { text })
}

/// Holds a listener until SIGINT, SIGTERM or SIGHUP.
fn listen(address: SocketAddr, json: bool) -> Result<()> {
    let attempt = format!("listening on {address}");
    let failure = |cause: std::io::Error| Error::failure(&attempt, cause).with_remedy(listen_remedy());
    let ends: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    ends.thread_block().map_err(|cause| failure(cause.into()))?;
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::MPTCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let bound = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok((socket, bound))
    };
    let (_socket, bound) = open().map_err(failure)?;
    let value = json!({ "address": bound.ip(), "port": bound.port() });
    print(format!("listening on {bound}\n"), &value, json)?;
    ends.wait().map(drop).map_err(|cause| failure(cause.into()))
}

fn listen_remedy() -> &'static str {
    "give an address of this host and a free port, and check that `sysctl net.mptcp.enabled` is 1"
}

/// Prints events until a signal ends the program, or nothing reads them any more.
fn events(json: bool) -> Result<()> {
    const ATTEMPT: &str = "printing the kernel's events";
    let mut events = requests::events().map_err(|cause| match &cause {
        OpenError::Socket(denied) if denied.kind() == std::io::ErrorKind::PermissionDenied => {
            Error::failure("subscribing to the kernel's events", denied).with_remedy(DENIED)
        }
        _ => Error::reported(cause),
    })?;
    loop {
        let event = match events.recv(Duration::from_millis(READER_PERIOD_MS.into())) {
            Ok(Some(event)) => event,
            Ok(None) if output::is_reader_gone(ATTEMPT, 0)? => return Ok(()),
            Ok(None) => continue,
            Err(EventError::Io(cause)) => return Err(Error::failure(ATTEMPT, cause)),
            // Later events still arrive.
            Err(lost) => {
                output::message(lost);
                continue;
            }
        };
        let line = if json { json!(event).to_string() } else { event.to_string() };
        if !output::print_more(ATTEMPT, line + "\n")? {
            return Ok(());
        }
    }
}

/// The address as the kernel has it: an IPv4 address that is mapped into IPv6 stays so.
fn ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is no address; write 10.0.0.1, 2001:db8::1 or ::ffff:10.0.0.1"))
}
