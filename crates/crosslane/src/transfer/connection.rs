//! TCP connections, each over one interface.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use crosslane_core::path::Transport;
use crosslane_core::transfer::frame::{self, Outcome, Receipt};
use nix::errno::Errno;
use nix::poll::{PollFd, PollTimeout, poll};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use super::TransferError;
use crate::netlink::TcpInfo;

/// Longest wait before `stop` is checked again.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// Begins a connection, which stands once the socket is writeable and has no error.
///
/// # Errors
/// The kernel does not support an option, or has no route.
pub fn begin(to: SocketAddr, interface: Option<&str>, congestion: Option<&str>) -> Result<Socket, TransferError> {
    let attempt = format!("connecting to {to}{}", interface.map(|name| format!(" over {name}")).unwrap_or_default());
    let failed = |remedy| connection_error(&attempt, remedy);
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP));
    let socket = socket.map_err(failed("allow more open files"))?;
    if let Some(name) = congestion {
        let remedy = "load its module, add it to sysctl net.ipv4.tcp_allowed_congestion_control, or choose another";
        let set = socket.set_tcp_congestion(name.as_bytes());
        set.map_err(connection_error(&format!("choosing {name}"), remedy))?;
    }
    if let Some(name) = interface {
        // Linux 5.7 and newer allow it to every user.
        let bound = socket.bind_device(Some(name.as_bytes()));
        bound.map_err(failed("check that the interface exists; before Linux 5.7 this needs CAP_NET_RAW"))?;
    }
    prepare(&socket).map_err(failed("allow more open files"))?;
    match socket.connect(&SockAddr::from(to)) {
        Err(cause) if cause.raw_os_error() != Some(libc::EINPROGRESS) => {
            Err(failed("check that the interface is up and has a route there")(cause))
        }
        _ => Ok(socket),
    }
}

/// Listens for TCP.
///
/// # Errors
/// The address is not of this machine, or in use.
pub fn listen(at: SocketAddr) -> Result<Socket, TransferError> {
    let prepare = || {
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&SockAddr::from(at))?;
        socket.listen(BACKLOG)?;
        Ok(socket)
    };
    let remedy = "give --listen an address of this machine and a free port";
    prepare().map_err(connection_error(&format!("listening on {at}"), remedy))
}

/// The answer to a sender that is rejected, after the beginning of the receiver's stream.
pub fn refusal(mut begin: Vec<u8>, text: &str) -> Vec<u8> {
    let (number, outcome, waited) = (frame::CONNECTION, Outcome::Refused, Duration::ZERO);
    frame::receipt(&mut begin, &Receipt { number, outcome, waited, text: text.into() });
    begin
}

/// Sends a sender its last answer. Takes up to a second: unread data would make the kernel reset the connection before
/// the sender has it.
pub fn reject(socket: &Socket, answer: &[u8]) {
    const READ_TIMEOUT: Duration = Duration::from_millis(100);
    const READS: usize = 10;
    let mut stream = socket;
    // A sender that has closed the connection needs no reason.
    let sent = socket.set_nonblocking(false).and_then(|()| socket.set_read_timeout(Some(READ_TIMEOUT)));
    let sent = sent.and_then(|()| stream.write_all(answer)).and_then(|()| socket.shutdown(Shutdown::Write));
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

/// The statistics of a TCP connection.
///
/// # Errors
/// It is not a TCP socket.
pub(super) fn statistics(socket: &Socket) -> io::Result<Transport> {
    let mut bytes = [0_u8; 512];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and the kernel writes at most `length` bytes.
    let status = unsafe {
        let place = bytes.as_mut_ptr().cast();
        libc::getsockopt(socket.as_fd().as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut length)
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(TcpInfo::parse(&bytes[..length as usize]).transport())
}

/// Waits until one of these is ready, `timeout` has passed, or a signal arrived; true if one is ready.
pub(crate) fn wait(descriptors: &mut [PollFd<'_>], timeout: Duration) -> io::Result<bool> {
    match poll(descriptors, PollTimeout::try_from(timeout).unwrap_or(PollTimeout::ZERO)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Writes a part of `bytes` if the socket accepts any; the number of bytes written.
pub(super) fn write_some(mut socket: &Socket, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match socket.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            written => return written,
        }
    }
}

/// Reads what has arrived, into `buffer`; `None`: nothing has.
///
/// # Errors
/// The connection broke, or the peer has ended it ([`ErrorKind::UnexpectedEof`]).
pub(super) fn read_some<'a>(mut socket: &Socket, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
    loop {
        match socket.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => return Ok(Some(&buffer[..count])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Prepares a socket for a transfer, which never blocks.
pub(super) fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)
}

pub(super) fn connection_error(attempt: &str, remedy: &'static str) -> impl FnOnce(io::Error) -> TransferError {
    let attempt = attempt.to_owned();
    move |cause| TransferError::Connection { attempt, cause, remedy }
}
