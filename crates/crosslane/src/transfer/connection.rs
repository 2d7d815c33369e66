//! MPTCP connections, with fallback to plain TCP where MPTCP is missing.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::transfer::frame::{self, Outcome, Receipt};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use super::TransferError;
use crate::clock::Clock;

/// Timeout of a connection attempt: five SYNs of the kernel.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait before `stop` is checked again.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// Options of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct How<'a> {
    /// Congestion control; `None`: the kernel's default.
    pub congestion: Option<&'a str>,
    /// Interface of the first subflow; `None`: chosen by the routing table.
    pub interface: Option<&'a str>,
}

/// Connects, by MPTCP if this kernel supports it (see [`is_multipath`]).
///
/// # Errors
/// The target does not answer, `stop` was set, or the kernel does not support
/// an option.
pub fn connect(to: SocketAddr, how: &How<'_>, clock: Clock, stop: &AtomicBool) -> Result<Socket, TransferError> {
    let opening = format!("opening a connection to {to}");
    let socket = open(to).map_err(connection_error(&opening, "allow more open files"))?;
    if let Some(congestion) = how.congestion {
        let remedy = "load its module, add it to sysctl net.ipv4.tcp_allowed_congestion_control, or choose another";
        set_congestion(&socket, to, congestion).map_err(connection_error(&format!("choosing {congestion}"), remedy))?;
    }
    let attempt = format!("connecting to {to}");
    if let Some(name) = how.interface {
        let remedy = "check that the interface is up";
        let bound = socket.bind_device(Some(name.as_bytes()));
        bound.map_err(connection_error(&format!("{attempt} over {name}"), remedy))?;
    }
    let remedy = "start `crosslane receive` there, or correct the address";
    socket.set_nonblocking(true).map_err(connection_error(&attempt, remedy))?;
    match socket.connect(&SockAddr::from(to)) {
        Ok(()) => {}
        Err(cause) if cause.raw_os_error() == Some(libc::EINPROGRESS) => {
            wait_until_connected(&socket, clock, stop).map_err(connection_error(&attempt, remedy))?;
        }
        Err(cause) => return Err(connection_error(&attempt, remedy)(cause)),
    }
    Ok(socket)
}

/// Listens for plain TCP, and for MPTCP if this kernel supports it.
///
/// # Errors
/// The address is not of this machine, or in use.
pub fn listen(at: SocketAddr) -> Result<Socket, TransferError> {
    let prepare = || {
        let socket = open(at)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SockAddr::from(at))?;
        socket.listen(BACKLOG)?;
        Ok(socket)
    };
    let remedy = "give --listen an address of this machine and a free port";
    prepare().map_err(connection_error(&format!("listening on {at}"), remedy))
}

/// Rejects a sender and sends it the reason. Takes up to a second: unread data
/// would make the kernel reset the connection before the sender has the reason.
pub fn reject(socket: &Socket, text: &str) {
    const READ_TIMEOUT: Duration = Duration::from_millis(100);
    const READS: usize = 10;
    let mut message = frame::PREFACE.to_vec();
    let (number, outcome, waited) = (frame::CONNECTION, Outcome::Refused, Duration::ZERO);
    frame::receipt(&mut message, &Receipt { number, outcome, waited, text: text.into() });
    let mut stream = socket;
    // A sender that has closed the connection needs no reason.
    let sent = socket.set_nonblocking(false).and_then(|()| socket.set_read_timeout(Some(READ_TIMEOUT)));
    let sent = sent.and_then(|()| stream.write_all(&message)).and_then(|()| socket.shutdown(Shutdown::Write));
    let mut buffer = [0; 4096];
    for _ in 0..if sent.is_ok() { READS } else { 0 } {
        if stream.read(&mut buffer).is_ok_and(|count| count == 0) {
            break;
        }
    }
}

/// Enables TCP keep-alive, which detects a vanished peer within some minutes.
pub fn keep_alive(socket: &Socket) -> io::Result<()> {
    let minute = Duration::from_secs(60);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(minute).with_interval(minute))
}

/// False for plain TCP: this kernel or the peer has no MPTCP, or a middlebox
/// removed its options.
pub fn is_multipath(socket: &Socket) -> bool {
    const SOL_MPTCP: libc::c_int = 284;
    const MPTCP_INFO: libc::c_int = 1;
    const FLAGS: usize = 8;
    const FALLBACK: u32 = 1;
    let mut info = [0_u8; 128];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and the kernel writes at most `length` bytes.
    let status = unsafe {
        let place = info.as_mut_ptr().cast();
        libc::getsockopt(socket.as_fd().as_raw_fd(), SOL_MPTCP, MPTCP_INFO, place, &raw mut length)
    };
    // After a fallback the kernel passes the call to TCP, which does not know the option.
    let flags = info.get(FLAGS..).and_then(<[u8]>::first_chunk).map_or(FALLBACK, |word| u32::from_ne_bytes(*word));
    status == 0 && length as usize >= FLAGS + 4 && flags & FALLBACK == 0
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    match Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)) {
        Err(cause)
            if matches!(cause.raw_os_error(), Some(libc::EPROTONOSUPPORT | libc::ENOPROTOOPT | libc::EINVAL)) =>
        {
            Socket::new(domain, Type::STREAM, Some(Protocol::TCP))
        }
        opened => opened,
    }
}

/// An MPTCP socket without a subflow accepts any name and drops it later, so a
/// TCP socket checks the name first.
fn set_congestion(socket: &Socket, to: SocketAddr, name: &str) -> io::Result<()> {
    Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?.set_tcp_congestion(name.as_bytes())?;
    socket.set_tcp_congestion(name.as_bytes())
}

fn wait_until_connected(socket: &Socket, clock: Clock, stop: &AtomicBool) -> io::Result<()> {
    let until = clock.now() + CONNECT_TIMEOUT;
    while clock.now() < until {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::new(ErrorKind::Interrupted, "it was interrupted"));
        }
        if wait(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], POLL_INTERVAL)? {
            return socket.take_error()?.map_or(Ok(()), Err);
        }
    }
    Err(io::Error::new(ErrorKind::TimedOut, format!("no answer in {} s", CONNECT_TIMEOUT.as_secs())))
}

/// Waits until one of these is ready, `timeout` has passed, or a signal arrived; true if one is ready.
pub(crate) fn wait(descriptors: &mut [PollFd<'_>], timeout: Duration) -> io::Result<bool> {
    match poll(descriptors, PollTimeout::try_from(timeout).unwrap_or(PollTimeout::ZERO)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Prepares a connected socket for a transfer, which never blocks.
pub(super) fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)
}

fn connection_error(attempt: &str, remedy: &'static str) -> impl FnOnce(io::Error) -> TransferError {
    let attempt = attempt.to_owned();
    move |cause| TransferError::Connection { attempt, cause, remedy }
}
