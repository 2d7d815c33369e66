//! MPTCP connections, and what becomes of them where there is no MPTCP.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crosslane_core::transfer::frame::{self, Outcome, Receipt};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use super::TransferError;
use crate::clock::Clock;

/// Longest wait for an answer: five SYNs of the kernel.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// Longest wait before the order to stop is looked at again.
const NAP: Duration = Duration::from_millis(50);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// How to connect.
#[derive(Clone, Copy, Debug, Default)]
pub struct How<'a> {
    /// Congestion control; `None`: the kernel's choice.
    pub congestion: Option<&'a str>,
    /// Interface over which the connection begins; `None`: as the routes say.
    pub interface: Option<&'a str>,
}

/// Connects, by MPTCP where this kernel has it ([`is_multipath`] tells).
///
/// # Errors
/// Nobody answers there, `stop` was set, or the kernel does not know what is
/// asked of it.
pub fn connect(to: SocketAddr, how: &How<'_>, clock: Clock, stop: &AtomicBool) -> Result<Socket, TransferError> {
    let socket = open(to).map_err(failed(&format!("opening a connection to {to}"), "allow more open files"))?;
    if let Some(congestion) = how.congestion {
        let remedy = "load its module, add it to sysctl net.ipv4.tcp_allowed_congestion_control, or choose another";
        choose_congestion(&socket, to, congestion).map_err(failed(&format!("choosing {congestion}"), remedy))?;
    }
    let attempt = format!("connecting to {to}");
    if let Some(name) = how.interface {
        let remedy = "look whether the interface is up";
        socket.bind_device(Some(name.as_bytes())).map_err(failed(&format!("{attempt} over {name}"), remedy))?;
    }
    let remedy = "start `crosslane receive` there, or mend the address";
    socket.set_nonblocking(true).map_err(failed(&attempt, remedy))?;
    match socket.connect(&SockAddr::from(to)) {
        Ok(()) => {}
        Err(cause) if cause.raw_os_error() == Some(libc::EINPROGRESS) => {
            established(&socket, clock, stop).map_err(failed(&attempt, remedy))?;
        }
        Err(cause) => return Err(failed(&attempt, remedy)(cause)),
    }
    Ok(socket)
}

/// Listens, for MPTCP where this kernel has it and for plain TCP in any case.
///
/// # Errors
/// The address is not ours, or taken.
pub fn listen(at: SocketAddr) -> Result<Socket, TransferError> {
    let prepare = || {
        let socket = open(at)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SockAddr::from(at))?;
        socket.listen(BACKLOG)?;
        Ok(socket)
    };
    let remedy = "give --listen an address of this machine and a port that is free";
    prepare().map_err(failed(&format!("listening on {at}"), remedy))
}

/// Tells a sender that nothing is taken from it, and why; takes up to a second,
/// for what it has sent meanwhile must not take our words away from it.
pub fn turn_away(socket: &Socket, text: &str) {
    const PATIENCE: Duration = Duration::from_millis(100);
    const READS: usize = 10;
    let mut words = frame::PREFACE.to_vec();
    let (number, outcome, waited) = (frame::CONNECTION, Outcome::Refused, Duration::ZERO);
    frame::receipt(&mut words, &Receipt { number, outcome, waited, text: text.into() });
    let mut stream = socket;
    // A sender that is gone needs no words.
    let said = socket.set_nonblocking(false).and_then(|()| socket.set_read_timeout(Some(PATIENCE)));
    let said = said.and_then(|()| stream.write_all(&words)).and_then(|()| socket.shutdown(Shutdown::Write));
    let mut buffer = [0; 4096];
    for _ in 0..if said.is_ok() { READS } else { 0 } {
        if stream.read(&mut buffer).is_ok_and(|count| count == 0) {
            break;
        }
    }
}

/// Notices in some minutes when the other end is gone without a word.
pub fn keep_alive(socket: &Socket) -> io::Result<()> {
    let minute = Duration::from_secs(60);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(minute).with_interval(minute))
}

/// False for plain TCP: since this kernel or the peer has no MPTCP, or something
/// between them took its options away.
pub fn is_multipath(socket: &Socket) -> bool {
    const SOL_MPTCP: libc::c_int = 284;
    const MPTCP_INFO: libc::c_int = 1;
    const FLAGS: usize = 8;
    const FALLBACK: u32 = 1;
    let mut info = [0_u8; 128];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and the kernel writes at most `length` bytes.
    let asked = unsafe {
        let place = info.as_mut_ptr().cast();
        libc::getsockopt(socket.as_fd().as_raw_fd(), SOL_MPTCP, MPTCP_INFO, place, &raw mut length)
    };
    // A connection that fell back passes the question on to TCP, which knows no such option.
    let flags = info.get(FLAGS..).and_then(<[u8]>::first_chunk).map_or(FALLBACK, |word| u32::from_ne_bytes(*word));
    asked == 0 && length as usize >= FLAGS + 4 && flags & FALLBACK == 0
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

/// An MPTCP socket without a subflow takes any name and drops it later, so a
/// plain one is asked first.
fn choose_congestion(socket: &Socket, to: SocketAddr, name: &str) -> io::Result<()> {
    Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?.set_tcp_congestion(name.as_bytes())?;
    socket.set_tcp_congestion(name.as_bytes())
}

fn established(socket: &Socket, clock: Clock, stop: &AtomicBool) -> io::Result<()> {
    let until = clock.now() + CONNECT_WITHIN;
    while clock.now() < until {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::new(ErrorKind::Interrupted, "it was interrupted"));
        }
        let timeout = PollTimeout::try_from(NAP).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return socket.take_error()?.map_or(Ok(()), Err),
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(io::Error::new(ErrorKind::TimedOut, format!("no answer in {} s", CONNECT_WITHIN.as_secs())))
}

fn failed(attempt: &str, remedy: &'static str) -> impl FnOnce(io::Error) -> TransferError {
    let attempt = attempt.to_owned();
    move |cause| TransferError::Connection { attempt, cause, remedy }
}
