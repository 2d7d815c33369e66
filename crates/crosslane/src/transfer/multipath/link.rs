//! The connection of a path, which is opened again when it breaks or falls silent.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use crosslane_core::path::Transport;
use crosslane_core::time::Instant;
use crosslane_core::transfer::Late;
use crosslane_core::transfer::multipath::frame::{Greeting, Replies};
use nix::poll::{PollFd, PollFlags};
use socket2::Socket;

use super::super::{TransferError, connection};

/// An attempt to connect ends after this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The same after this many failures in a row.
const SLOW_RETRY_INTERVAL: Duration = Duration::from_secs(5);
const QUICK_RETRIES: u32 = 20;

/// A path of the transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Its interface; `None`: chosen by the routing table.
    pub interface: Option<String>,
    /// Its price of a byte, in any unit that is the same for all paths.
    pub unit_cost: f64,
}

/// Options of the connections.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// Addresses of the receiver, at least one; the next is tried when one does not answer.
    pub targets: &'a [SocketAddr],
    /// Congestion control; `None`: the kernel's default.
    pub congestion: Option<&'a str>,
    /// What to do with an object past its deadline.
    pub late: Late,
}

/// A path's connection.
pub(super) struct Link<'a> {
    path: &'a Path,
    how: &'a How<'a>,
    pub(super) open: Option<Open>,
    attempt: Option<(Socket, Instant)>,
    next_attempt: Instant,
    failures: u32,
    /// Why the last attempt failed.
    pub(super) fault: Option<TransferError>,
}

/// A connection that stands.
pub(super) struct Open {
    pub(super) socket: Socket,
    pub(super) replies: Replies,
    /// Bytes that the socket has not accepted, from `written` on.
    pub(super) buffer: Vec<u8>,
    written: usize,
}

impl<'a> Link<'a> {
    pub(super) fn new(path: &'a Path, how: &'a How<'a>) -> Link<'a> {
        Link { path, how, open: None, attempt: None, next_attempt: Instant::ZERO, failures: 0, fault: None }
    }

    /// Connects where no connection stands, or where it `is_silent`; true if a new one stands, which
    /// replaces the other.
    pub(super) fn advance(&mut self, now: Instant, is_silent: bool, greeting: Greeting) -> bool {
        let is_needed = self.open.is_none() || is_silent;
        if let Some((socket, since)) = self.attempt.take().filter(|_| is_needed) {
            match is_connected(&socket) {
                Ok(true) => {
                    let buffer = greeting.emit().to_vec();
                    self.open = Some(Open { socket, replies: Replies::default(), buffer, written: 0 });
                    (self.failures, self.fault) = (0, None);
                    return true;
                }
                Ok(false) if now.since(since) < CONNECT_TIMEOUT => self.attempt = Some((socket, since)),
                Ok(false) => {
                    let text = format!("no answer in {} s", CONNECT_TIMEOUT.as_secs());
                    self.fail(now, io::Error::new(ErrorKind::TimedOut, text));
                }
                Err(cause) => self.fail(now, cause),
            }
        } else if is_needed && now >= self.next_attempt {
            match connection::begin(self.target(), self.path.interface.as_deref(), self.how.congestion) {
                Ok(socket) => self.attempt = Some((socket, now)),
                Err(fault) => self.failed(now, fault),
            }
        }
        false
    }

    /// The connection broke.
    pub(super) fn close(&mut self, now: Instant) {
        self.open = None;
        self.next_attempt = now + RETRY_INTERVAL;
    }

    /// The connection is to be opened again at once.
    pub(super) fn reopen(&mut self, now: Instant) {
        self.open = None;
        self.next_attempt = now;
    }

    /// Whether nothing but failed attempts is left of it.
    pub(super) fn is_refused(&self) -> bool {
        self.open.is_none() && self.attempt.is_none() && self.failures as usize >= self.how.targets.len()
    }

    /// What to wait for.
    pub(super) fn events(&self) -> impl Iterator<Item = PollFd<'_>> {
        let attempt = self.attempt.as_ref().map(|(socket, _)| PollFd::new(socket.as_fd(), PollFlags::POLLOUT));
        let open = self.open.as_ref().map(|open| {
            let blocked = if open.buffer.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            PollFd::new(open.socket.as_fd(), PollFlags::POLLIN | blocked)
        });
        attempt.into_iter().chain(open)
    }

    fn target(&self) -> SocketAddr {
        self.how.targets[self.failures as usize % self.how.targets.len()]
    }

    fn fail(&mut self, now: Instant, cause: io::Error) {
        let over = self.path.interface.as_ref().map(|name| format!(" over {name}")).unwrap_or_default();
        let attempt = format!("connecting to {}{over}", self.target());
        let remedy = "start `crosslane receive` there, or correct the address";
        self.failed(now, TransferError::Connection { attempt, cause, remedy });
    }

    fn failed(&mut self, now: Instant, fault: TransferError) {
        self.failures = self.failures.saturating_add(1);
        let has_next_target = (self.failures as usize) < self.how.targets.len();
        self.next_attempt = match self.failures {
            _ if has_next_target => now,
            0..QUICK_RETRIES => now + RETRY_INTERVAL,
            _ => now + SLOW_RETRY_INTERVAL,
        };
        self.fault = Some(fault);
    }
}

impl Open {
    /// Writes what waits; true once nothing does.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        while self.written < self.buffer.len() {
            match connection::write_some(&self.socket, &self.buffer[self.written..])? {
                0 => return Ok(false),
                count => self.written += count,
            }
        }
        self.buffer.clear();
        self.written = 0;
        Ok(true)
    }

    /// The kernel's statistics; what waits here is not sent.
    pub(super) fn statistics(&self) -> io::Result<Transport> {
        let transport = connection::statistics(&self.socket)?;
        let waiting = (self.buffer.len() - self.written) as u32;
        Ok(Transport { notsent_bytes: transport.notsent_bytes + waiting, ..transport })
    }
}

/// Whether the handshake is complete.
fn is_connected(socket: &Socket) -> io::Result<bool> {
    if !connection::wait(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], Duration::ZERO)? {
        return Ok(false);
    }
    socket.take_error()?.map_or(Ok(true), Err)
}
