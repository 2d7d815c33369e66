//! The traffic of a drive: one connection, timestamped messages or bulk, up or
//! down; [`datagrams`] is the same without a connection.
//!
//! Every function works in the network namespace of the thread that calls it.
//! Each message carries its number and the time at which its write began, and
//! every byte is checked by the receiver. Bulk is messages of 64 KiB back to
//! back: smaller writes end each MPTCP mapping with a small packet.
//!
//! A message is due at `start + number × period`. While the socket takes no
//! more, due messages wait at the source, at most [`BACKLOG_NS`] of them; older
//! ones are skipped and counted. Delay is measured from the beginning of the
//! write, so that it is the connection's and not the backlog's.

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
mod end;
pub mod frame;

use end::End;
use frame::{HEADER_BYTES, SIZE_MAX_BYTES};

/// How long due messages may wait for the socket before they are skipped.
pub const BACKLOG_NS: u64 = 1_000_000_000;
/// Messages in one run, so that its record stays below 400 MB.
pub const MESSAGES_MAX: usize = 10_000_000;
/// Size of a message of bulk traffic.
pub const BULK_BYTES: u32 = 65_536;

/// Longest wait before the order to stop is looked at again.
const NAP: Duration = Duration::from_millis(50);
/// One attempt to connect; the kernel repeats a lost SYN after 1 s.
const CONNECT_ATTEMPT: Duration = Duration::from_secs(4);

/// The run's clock: nanoseconds since the run began.
pub type Clock<'a> = &'a (dyn Fn() -> u64 + Sync);

/// What is sent, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which way the data goes.
    pub direction: Direction,
    /// True if the server sends each message back, and the vehicle awaits that
    /// before the next.
    pub answered: bool,
    /// Length of a message with its 24-byte header (24 to 1 MiB).
    pub size_bytes: u32,
    /// Time from one message to the next; 0: as fast as the socket takes them.
    pub period_ns: u64,
    /// When the first message is due.
    pub start_ns: u64,
    /// When the sender stops; what is written is still delivered.
    pub stop_ns: u64,
    /// When both ends give up.
    pub deadline_ns: u64,
    /// Multipath TCP, or plain TCP.
    pub mptcp: bool,
    /// Congestion control (`cubic`, `reno`, `bbr`).
    pub congestion: String,
    /// SO_SNDBUF of the sender, in bytes; 0: the kernel's choice.
    pub send_buffer_bytes: usize,
}

/// What one end saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// When the write of each message began, by number.
    pub sent_ns: Vec<u64>,
    /// When the last byte of each message was read, by number.
    pub received_ns: Vec<u64>,
    /// Messages that waited too long at the source and were never written.
    pub skipped: u64,
}

/// Why the traffic failed.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The plan cannot be carried out.
    #[error("while planning the traffic: {0}")]
    Plan(String),
    /// The system refused something.
    #[error("while {attempt}: {cause}; {remedy}")]
    System {
        /// What was tried.
        attempt: String,
        /// What the system said.
        cause: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A datagram is not what was sent.
    #[error(
        "while checking what was received: of a datagram of {length} bytes {what}; report this, for UDP has checksums"
    )]
    Damaged {
        /// Bytes received.
        length: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The stream is not what was sent.
    #[error(
        "while checking what was received: {what} at byte {offset} of the stream; report this, for TCP must never do it"
    )]
    Corrupt {
        /// Offset in the stream.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// Opens the server's socket, on the wildcard address: MPTCP joins to another
/// address of the server need that.
///
/// # Errors
/// Where the kernel has no MPTCP, the port is taken or the congestion control
/// is refused.
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
    prepare().map_err(system(format!("listening on {address}"), "end what holds the port"))?;
    Ok(socket)
}

/// Accepts one connection and plays the server's part until the traffic is
/// over, the deadline has passed or `stop` is set.
///
/// # Errors
/// Where the vehicle does not connect in time, the connection breaks, or bytes
/// differ from those sent.
pub fn serve(listener: &Socket, plan: &Plan, clock: Clock, stop: &AtomicBool) -> Result<Seen, TrafficError> {
    let socket = accept(listener, plan, clock, stop)?;
    let end = End { socket, plan, clock, stop };
    if plan.answered { end.answer() } else { end.play(plan.direction == Direction::Down) }
}

/// Accepts one connection.
///
/// # Errors
/// Where the vehicle does not connect in time.
pub fn accept(listener: &Socket, plan: &Plan, clock: Clock, stop: &AtomicBool) -> Result<Socket, TrafficError> {
    let socket = loop {
        match listener.accept() {
            Ok((socket, _)) => break socket,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                return Err(system("accepting the vehicle's connection", "see the kernel's log")(error));
            }
        }
        if over(plan, clock, stop) {
            let late = io::Error::from(ErrorKind::TimedOut);
            return Err(system("waiting for the vehicle's connection", "look whether any link is up at the start")(
                late,
            ));
        }
        wait(listener, PollFlags::POLLIN)?;
    };
    tune(&socket, plan)?;
    Ok(socket)
}

/// [Dials](dial) and plays the vehicle's part.
///
/// # Errors
/// Where no connection comes about, it breaks, or bytes differ from those sent.
pub fn drive(
    server: SocketAddr,
    local: Option<IpAddr>,
    plan: &Plan,
    clock: Clock,
    stop: &AtomicBool,
) -> Result<Seen, TrafficError> {
    let socket = dial(server, local, plan, clock, stop)?;
    let end = End { socket, plan, clock, stop };
    if plan.answered { end.ask() } else { end.play(plan.direction == Direction::Up) }
}

/// Connects, again and again until the deadline. `local` is the address to
/// connect from, where the kernel shall not choose.
///
/// # Errors
/// Where no connection comes about.
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
            Err(error @ TrafficError::System { .. }) if over(plan, clock, stop) => {
                return Err(error);
            }
            Err(TrafficError::System { cause, .. }) if may_pass(&cause) => std::thread::sleep(NAP),
            Err(error) => return Err(error),
        }
    }
}

/// The record of the messages, from what the two ends saw.
pub fn messages(plan: &Plan, sender: &Seen, receiver: &Seen) -> Vec<MessageRow> {
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
    // An MPTCP socket without a subflow takes any name and drops it later, so a
    // plain one is asked first.
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
    establish().map_err(system(format!("connecting to {server}"), "look whether any link is up at the start"))?;
    Ok(socket)
}

/// True for what may go away while the links come up.
fn may_pass(cause: &io::Error) -> bool {
    use ErrorKind::{
        AddrNotAvailable, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkDown, NetworkUnreachable,
        TimedOut,
    };
    let passing = [
        AddrNotAvailable,
        ConnectionRefused,
        ConnectionReset,
        HostUnreachable,
        NetworkDown,
        NetworkUnreachable,
        TimedOut,
    ];
    passing.contains(&cause.kind())
}

fn over(plan: &Plan, clock: Clock, stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed) || clock() >= plan.deadline_ns
}

/// Waits until the socket is ready or [`NAP`] has passed.
fn wait(socket: &impl AsFd, events: PollFlags) -> Result<(), TrafficError> {
    let timeout = PollTimeout::try_from(NAP).unwrap_or(PollTimeout::ZERO);
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
