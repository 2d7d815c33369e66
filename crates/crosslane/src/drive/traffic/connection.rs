//! The traffic of a drive: one connection with timestamped messages or bulk
//! data, up or down; [`datagrams`] is the same without a connection.
//!
//! Every function works in the network namespace of the thread that calls it.
//! Each message carries its number and the time at which its write began, and
//! the receiver checks every byte. Bulk traffic is messages of 64 KiB back to
//! back: smaller writes end each MPTCP mapping with a small packet.
//!
//! A message is due at `start + number × period`. While the socket is blocked,
//! due messages wait at the source for at most [`BACKLOG_NS`]; older ones are
//! skipped and counted. Delay is measured from the beginning of the write, so
//! it excludes the wait at the source.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::link::Direction;
use crosslane_sim::record::rows::MessageRow;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

pub mod datagrams;
mod endpoint;
pub mod frame;

use endpoint::Endpoint;
use frame::{HEADER_BYTES, SIZE_MAX_BYTES};

/// How long due messages may wait for the socket before they are skipped.
pub const BACKLOG_NS: u64 = 1_000_000_000;
/// Maximum number of messages in a run; its record stays below 400 MB.
pub const MESSAGES_MAX: usize = 10_000_000;
/// Size of a message of bulk traffic.
pub const BULK_BYTES: u32 = 65_536;

/// Longest wait before `stop` is checked again.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout of one connection attempt; the kernel retransmits a lost SYN after
/// 1 s.
const CONNECT_ATTEMPT: Duration = Duration::from_secs(4);

/// The run's clock: nanoseconds since the run began.
pub type Clock<'a> = &'a (dyn Fn() -> u64 + Sync);

/// Parameters of the traffic.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Direction of the data.
    pub direction: Direction,
    /// True if the server sends each message back and the vehicle waits for it
    /// before the next.
    pub answered: bool,
    /// Length of a message with its 24-byte header (24 to 1 MiB).
    pub size_bytes: u32,
    /// Time from one message to the next; 0: as fast as the socket accepts them.
    pub period_ns: u64,
    /// When the first message is due.
    pub start_ns: u64,
    /// When the sender stops; written messages are still delivered.
    pub stop_ns: u64,
    /// When both endpoints stop.
    pub deadline_ns: u64,
    /// Multipath TCP, or plain TCP.
    pub mptcp: bool,
    /// Congestion control (`cubic`, `reno`, `bbr`).
    pub congestion: String,
    /// SO_SNDBUF of the sender, in bytes; 0: the kernel's default.
    pub send_buffer_bytes: usize,
}

/// What one endpoint of a connection recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// When the write of each message began, by number.
    pub sent_ns: Vec<u64>,
    /// When the last byte of each message was read, by number.
    pub received_ns: Vec<u64>,
    /// Messages that waited too long at the source and were not written.
    pub skipped: u64,
}

/// Why the traffic failed.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The plan is invalid.
    #[error("while planning the traffic: {0}")]
    Plan(String),
    /// A system call failed.
    #[error("while {attempt}: {cause}; {remedy}")]
    System {
        /// The attempt.
        attempt: String,
        /// The system's error.
        cause: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// A datagram differs from the one sent.
    #[error("while checking received data: datagram of {length} bytes: {what}; report this, since UDP has checksums")]
    Damaged {
        /// Bytes received.
        length: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The stream differs from the one sent.
    #[error(
        "while checking received data: {what} at byte {offset} of the stream; report this, since TCP must prevent it"
    )]
    Corrupt {
        /// Offset in the stream.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// Opens the server's socket on the wildcard address, which MPTCP joins to
/// another address of the server need.
///
/// # Errors
/// The kernel has no MPTCP, the port is in use or the congestion control is
/// not available.
pub fn listen(port: u16, plan: &Plan) -> Result<Socket, TrafficError> {
    check(plan)?;
    let socket = open(plan, Domain::IPV4)?;
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let prepare = || {
        socket.set_reuse_address(true)?;
        socket.bind(&SockAddr::from(address))?;
        socket.listen(1)?;
        socket.set_nonblocking(true)
    };
    prepare().map_err(system(format!("listening on {address}"), "end the program that uses the port"))?;
    Ok(socket)
}

/// Accepts one connection and runs the server until the traffic has ended, the
/// deadline has passed or `stop` is set.
///
/// # Errors
/// The vehicle does not connect in time, the connection breaks, or bytes
/// differ from those sent.
pub fn serve(
    listener: &Socket,
    plan: &Plan,
    clock: Clock,
    stop: &AtomicBool,
) -> Result<ConnectionRecord, TrafficError> {
    let socket = accept(listener, plan, clock, stop)?;
    let endpoint = Endpoint { socket, plan, clock, stop };
    if plan.answered { endpoint.echo() } else { endpoint.run(plan.direction == Direction::Down) }
}

/// Accepts one connection.
///
/// # Errors
/// The vehicle does not connect in time.
pub fn accept(listener: &Socket, plan: &Plan, clock: Clock, stop: &AtomicBool) -> Result<Socket, TrafficError> {
    let socket = loop {
        match listener.accept() {
            Ok((socket, _)) => break socket,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                return Err(system("accepting the vehicle's connection", "see the kernel's log")(error));
            }
        }
        if has_ended(plan, clock, stop) {
            let late = io::Error::from(ErrorKind::TimedOut);
            return Err(system("waiting for the vehicle's connection", "check that a link is up at the start")(late));
        }
        wait(listener, PollFlags::POLLIN)?;
    };
    tune(&socket, plan)?;
    Ok(socket)
}

/// [Connects](dial) and runs the vehicle's client.
///
/// # Errors
/// The connection fails or breaks, or bytes differ from those sent.
pub fn drive(
    server: SocketAddr,
    local: Option<IpAddr>,
    plan: &Plan,
    clock: Clock,
    stop: &AtomicBool,
) -> Result<ConnectionRecord, TrafficError> {
    let socket = dial(server, local, plan, clock, stop)?;
    let endpoint = Endpoint { socket, plan, clock, stop };
    if plan.answered { endpoint.send_and_await() } else { endpoint.run(plan.direction == Direction::Up) }
}

/// Connects, with retries until the deadline. `local` is the source address;
/// `None`: the kernel chooses.
///
/// # Errors
/// The connection fails.
pub fn dial(
    server: SocketAddr,
    local: Option<IpAddr>,
    plan: &Plan,
    clock: Clock,
    stop: &AtomicBool,
) -> Result<Socket, TrafficError> {
    check(plan)?;
    loop {
        match connect(server, local, plan) {
            Ok(socket) => return Ok(socket),
            Err(error @ TrafficError::System { .. }) if has_ended(plan, clock, stop) => {
                return Err(error);
            }
            Err(TrafficError::System { cause, .. }) if is_transient(&cause) => std::thread::sleep(POLL_INTERVAL),
            Err(error) => return Err(error),
        }
    }
}

/// Joins the records of both endpoints into rows of messages.
pub fn messages(plan: &Plan, sender: &ConnectionRecord, receiver: &ConnectionRecord) -> Vec<MessageRow> {
    let received = receiver.received_ns.iter().copied().map(Some).chain(std::iter::repeat(None));
    sender
        .sent_ns
        .iter()
        .zip(received)
        .enumerate()
        .map(|(number, (&sent_ns, received_ns))| MessageRow {
            number: number as u64,
            sent_ns,
            written_ns: None,
            received_ns,
            size_bytes: plan.size_bytes,
        })
        .collect()
}

fn check(plan: &Plan) -> Result<(), TrafficError> {
    let sizes = HEADER_BYTES..=SIZE_MAX_BYTES;
    let due = plan.stop_ns.saturating_sub(plan.start_ns).checked_div(plan.period_ns).unwrap_or(0);
    if !sizes.contains(&(plan.size_bytes as usize)) {
        return Err(TrafficError::Plan(format!(
            "messages of {} bytes cannot be sent; set size_bytes between {HEADER_BYTES} and {SIZE_MAX_BYTES}",
            plan.size_bytes
        )));
    }
    if due > MESSAGES_MAX as u64 {
        return Err(TrafficError::Plan(format!(
            "{due} messages are more than {MESSAGES_MAX}; send fewer or larger ones, or drive for less long"
        )));
    }
    Ok(())
}

fn open(plan: &Plan, domain: Domain) -> Result<Socket, TrafficError> {
    // An MPTCP socket without a subflow accepts any name and drops it later, so a
    // TCP socket checks the name first.
    let plain = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))
        .map_err(system("opening a socket for the traffic", "raise the limit of open files"))?;
    tune(&plain, plan)?;
    if !plan.mptcp {
        return Ok(plain);
    }
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)).map_err(system(
        "opening a socket for MPTCP",
        "use a kernel with CONFIG_MPTCP and set sysctl net.mptcp.enabled=1",
    ))?;
    tune(&socket, plan)?;
    Ok(socket)
}

fn tune(socket: &Socket, plan: &Plan) -> Result<(), TrafficError> {
    socket.set_tcp_congestion(plan.congestion.as_bytes()).map_err(system(
        format!("setting the congestion control {}", plan.congestion),
        "add it to sysctl net.ipv4.tcp_allowed_congestion_control, or run as root",
    ))?;
    let rest = || {
        socket.set_tcp_nodelay(true)?;
        if plan.send_buffer_bytes > 0 {
            socket.set_send_buffer_size(plan.send_buffer_bytes)?;
        }
        Ok(())
    };
    rest().map_err(system("setting up the traffic's socket", "use a kernel of 5.19 or later"))
}

fn connect(server: SocketAddr, local: Option<IpAddr>, plan: &Plan) -> Result<Socket, TrafficError> {
    let socket = open(plan, Domain::for_address(server))?;
    let establish = || {
        if let Some(local) = local {
            socket.bind(&SockAddr::from(SocketAddr::new(local, 0)))?;
        }
        socket.connect_timeout(&SockAddr::from(server), CONNECT_ATTEMPT)?;
        socket.set_nonblocking(true)
    };
    establish().map_err(system(format!("connecting to {server}"), "check that a link is up at the start"))?;
    Ok(socket)
}

/// True for errors that can disappear while the links come up.
fn is_transient(cause: &io::Error) -> bool {
    use ErrorKind::{
        AddrNotAvailable, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkDown, NetworkUnreachable,
        TimedOut,
    };
    let transient = [
        AddrNotAvailable,
        ConnectionRefused,
        ConnectionReset,
        HostUnreachable,
        NetworkDown,
        NetworkUnreachable,
        TimedOut,
    ];
    transient.contains(&cause.kind())
}

fn has_ended(plan: &Plan, clock: Clock, stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed) || clock() >= plan.deadline_ns
}

/// Sleeps until this time; false if the traffic has ended before.
fn sleep_until(plan: &Plan, clock: Clock, stop: &AtomicBool, due_ns: u64) -> bool {
    loop {
        if has_ended(plan, clock, stop) {
            return false;
        }
        let remaining = Duration::from_nanos(due_ns.saturating_sub(clock()));
        if remaining.is_zero() {
            return true;
        }
        std::thread::sleep(remaining.min(POLL_INTERVAL));
    }
}

/// Waits until the socket is ready or [`POLL_INTERVAL`] has passed.
fn wait(socket: &impl AsFd, events: PollFlags) -> Result<(), TrafficError> {
    let timeout = PollTimeout::try_from(POLL_INTERVAL).unwrap_or(PollTimeout::ZERO);
    match poll(&mut [PollFd::new(socket.as_fd(), events)], timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(system("waiting for the traffic's socket", "see the kernel's log")(errno.into())),
    }
}

fn system(attempt: impl Into<String>, remedy: &'static str) -> impl FnOnce(io::Error) -> TrafficError {
    let attempt = attempt.into();
    move |cause| TrafficError::System { attempt, cause, remedy }
}

#[cfg(test)]
mod tests;
