//! The connection of a path, which is opened again when it breaks or falls silent.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use crosslane_core::path::Transport;
use crosslane_core::time::Instant;
use crosslane_core::transfer::Late;
use crosslane_core::transfer::multipath::frame::{Greeting, Replies};
use crosslane_core::transfer::multipath::{CONNECT_TIMEOUT, RETRY_INTERVAL};
use nix::poll::{PollFd, PollFlags};
use socket2::Socket;

use super::super::beliefs::Beliefs;
use super::super::{TransferError, connection};
use super::keys::{AGREEING, Handshake, SenderKeys};
use super::stream::Stream;

/// Time between two attempts after this many failures in a row.
const SLOW_RETRY_INTERVAL: Duration = Duration::from_secs(5);
const QUICK_RETRIES: u32 = 20;

const START: &str = "start `crosslane receive` there, or correct the address";

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
    /// The keys of both ends; `None`: in the clear.
    pub keys: Option<&'a SenderKeys>,
    /// What an agent believes of the paths.
    pub beliefs: Option<&'a Beliefs>,
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
    attempt: Option<Attempt>,
    next_attempt: Instant,
    failures: u32,
    /// Why the last attempt failed.
    pub(super) fault: Option<TransferError>,
}

/// A connection that stands.
pub(super) struct Open {
    pub(super) stream: Stream,
    pub(super) replies: Replies,
}

/// A connection that is begun.
struct Attempt {
    socket: Socket,
    since: Instant,
    /// Once it is connected, if it is to be encrypted.
    handshake: Option<Handshake>,
}

/// How far an attempt is.
enum Progress {
    Waits(Box<Attempt>),
    Stands(Box<Stream>),
}

impl<'a> Link<'a> {
    pub(super) fn new(path: &'a Path, how: &'a How<'a>) -> Link<'a> {
        Link { path, how, open: None, attempt: None, next_attempt: Instant::ZERO, failures: 0, fault: None }
    }

    /// Connects where no connection stands, or where it `is_silent`; true if a new one stands, which
    /// replaces the other.
    pub(super) fn advance(&mut self, now: Instant, is_silent: bool, greeting: Greeting) -> bool {
        let is_needed = self.open.is_none() || is_silent;
        if let Some(attempt) = self.attempt.take().filter(|_| is_needed) {
            let since = attempt.since;
            match self.complete(attempt) {
                Ok(Progress::Stands(mut stream)) => {
                    stream.outbox.extend(greeting.emit());
                    self.open = Some(Open { stream: *stream, replies: Replies::default() });
                    return true;
                }
                Ok(Progress::Waits(attempt)) if now.since(since) < CONNECT_TIMEOUT => self.attempt = Some(*attempt),
                Ok(Progress::Waits(_)) => {
                    let text = format!("no answer in {} s", CONNECT_TIMEOUT.as_secs());
                    let cause = io::Error::new(ErrorKind::TimedOut, text);
                    self.failed(now, connection::connection_error(&self.attempt_text("connecting"), START)(cause));
                }
                Err(fault) => self.failed(now, fault),
            }
        } else if is_needed && now >= self.next_attempt {
            match connection::begin(self.target(), self.path.interface.as_deref(), self.how.congestion) {
                Ok(socket) => self.attempt = Some(Attempt { socket, since: now, handshake: None }),
                Err(fault) => self.failed(now, fault),
            }
        }
        false
    }

    /// Goes on with an attempt as far as it can.
    fn complete(&self, attempt: Attempt) -> Result<Progress, TransferError> {
        let Attempt { socket, since, handshake } = attempt;
        let agreeing = self.attempt_text(AGREEING);
        let Some(mut handshake) = handshake else {
            let connecting = self.attempt_text("connecting");
            if !is_connected(&socket).map_err(connection::connection_error(&connecting, START))? {
                return Ok(Progress::Waits(Box::new(Attempt { socket, since, handshake: None })));
            }
            let Some(keys) = self.how.keys else { return Ok(Progress::Stands(Box::new(Stream::new(socket, None)))) };
            // The buffer of a new socket has room for it.
            let begun = Handshake::begin(keys).and_then(|(handshake, wire)| {
                match connection::write_some(&socket, &wire)? == wire.len() {
                    true => Ok(handshake),
                    false => Err(ErrorKind::WriteZero.into()),
                }
            });
            let handshake = Some(begun.map_err(connection::connection_error(&agreeing, START))?);
            return Ok(Progress::Waits(Box::new(Attempt { socket, since, handshake })));
        };
        match handshake.read(&socket, &agreeing)? {
            true => Ok(Progress::Stands(Box::new(Stream::new(socket, Some(handshake.finish(&agreeing)?))))),
            false => Ok(Progress::Waits(Box::new(Attempt { socket, since, handshake: Some(handshake) }))),
        }
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

    /// The connection leads to no receiver; true if no attempt before had failed.
    pub(super) fn refuse(&mut self, now: Instant, fault: TransferError) -> bool {
        let is_new = self.fault.is_none();
        self.open = None;
        self.failed(now, fault);
        is_new
    }

    /// The receiver has answered; true if an attempt before had failed.
    pub(super) fn confirm(&mut self) -> bool {
        self.failures = 0;
        self.fault.take().is_some()
    }

    /// Whether its connection stands, and the receiver has answered.
    pub(super) fn is_greeted(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.instance().is_some())
    }

    /// Whether nothing but failed attempts is left of it.
    pub(super) fn is_refused(&self) -> bool {
        self.open.is_none() && self.attempt.is_none() && self.failures as usize >= self.how.targets.len()
    }

    /// What to wait for.
    pub(super) fn events(&self) -> impl Iterator<Item = PollFd<'_>> {
        let attempt = self.attempt.as_ref().map(|attempt| {
            let flags = if attempt.handshake.is_some() { PollFlags::POLLIN } else { PollFlags::POLLOUT };
            PollFd::new(attempt.socket.as_fd(), flags)
        });
        let open = self.open.as_ref().map(|open| {
            let blocked = if open.stream.unsent() == 0 { PollFlags::empty() } else { PollFlags::POLLOUT };
            PollFd::new(open.stream.socket.as_fd(), PollFlags::POLLIN | blocked)
        });
        attempt.into_iter().chain(open)
    }

    fn target(&self) -> SocketAddr {
        self.how.targets[self.failures as usize % self.how.targets.len()]
    }

    fn attempt_text(&self, attempt: &str) -> String {
        let over = self.path.interface.as_ref().map(|name| format!(" over {name}")).unwrap_or_default();
        let with = if attempt == AGREEING { "with" } else { "to" };
        format!("{attempt} {with} {}{over}", self.target())
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
    /// The receiver's instance, once it has answered; one that rejects the connection has none.
    pub(super) fn instance(&self) -> Option<u64> {
        self.replies.instance().filter(|instance| *instance != 0)
    }

    /// The kernel's statistics; what waits here is not sent.
    pub(super) fn statistics(&self) -> io::Result<Transport> {
        let transport = connection::statistics(&self.stream.socket)?;
        let waiting = self.stream.unsent() as u32;
        Ok(Transport { notsent_bytes: transport.notsent_bytes + waiting, ..transport })
    }
}

/// Whether the connection stands.
fn is_connected(socket: &Socket) -> io::Result<bool> {
    if !connection::wait(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], Duration::ZERO)? {
        return Ok(false);
    }
    socket.take_error()?.map_or(Ok(true), Err)
}
