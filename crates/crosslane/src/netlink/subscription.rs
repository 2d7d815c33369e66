//! What the kernel tells unasked: one type for two ways of waiting.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use netlink_sys::Socket;
use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::message::{DecodeError, messages};
use super::socket::{DATAGRAM_LEN, connect, receive, wait};

/// Wanted receive buffer in bytes: some 10 000 events. Without privilege the
/// kernel gives `net.core.rmem_max` at most.
const RECEIVE_BUFFER_LEN: usize = 4 * 1024 * 1024;
/// Datagrams thrown away at most after an overrun.
const DRAIN_LIMIT: usize = 65_536;

/// Why there is no next event.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The kernel had more to tell than the receive buffer holds, and some of
    /// it is lost. What was still queued has been thrown away: ask for the
    /// present state (`diag::Diag::connections`, `links::snapshot`), then go on.
    #[error(
        "while waiting for events: the receive buffer overran; ask for the present state, and raise net.core.rmem_max if this recurs"
    )]
    Overrun,
    /// One message cannot be read; the following ones can.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The socket failed; open another.
    #[error("while waiting for events: {0}; open the socket anew")]
    Io(#[from] io::Error),
}

/// How a message becomes an event, `None` if it is none.
pub(super) type Decode<T> = fn(&[u8]) -> Result<Option<T>, DecodeError>;

/// Events of type `T` from a netlink multicast group, for a thread of its own.
/// In tokio: [`Subscription::into_stream`].
pub struct Subscription<T> {
    socket: Socket,
    decode: Decode<T>,
    ready: VecDeque<Result<T, DecodeError>>,
    buffer: Vec<u8>,
}

impl<T> Subscription<T> {
    /// Joins `groups` in the network namespace of this thread.
    pub(super) fn open(protocol: isize, groups: &[u32], decode: Decode<T>) -> io::Result<Subscription<T>> {
        let socket = connect(protocol)?;
        socket.set_non_blocking(true)?;
        // Best effort: a smaller buffer serves too, it only overruns sooner.
        if setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER_LEN).is_err() {
            let _ = setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER_LEN);
        }
        for group in groups {
            socket.add_membership(*group)?;
        }
        Ok(Subscription { socket, decode, ready: VecDeque::new(), buffer: vec![0; DATAGRAM_LEN] })
    }

    /// The next event; `None` when `timeout` is over, or earlier if what came
    /// was no event.
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<T>, EventError> {
        if let Some(event) = self.try_recv()? {
            return Ok(Some(event));
        }
        wait(&self.socket, timeout)?;
        self.try_recv()
    }

    /// The next event if there is one already.
    pub fn try_recv(&mut self) -> Result<Option<T>, EventError> {
        while self.ready.is_empty() {
            if !self.fill()? {
                return Ok(None);
            }
        }
        Ok(self.ready.pop_front().transpose()?)
    }

    /// The same events for tokio. Must be called within a runtime with I/O.
    pub fn into_stream(self) -> io::Result<Stream<T>> {
        // SAFETY: the descriptor is the socket's; nothing replaces the socket or
        // closes it before `Subscription`, which `AsyncFd` owns, is dropped.
        let inner = unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) };
        Ok(Stream { inner: inner.map_err(io::Error::from)? })
    }

    /// Takes one datagram; false if there is none.
    fn fill(&mut self) -> Result<bool, EventError> {
        let length = match receive(&self.socket, &mut self.buffer) {
            Ok(length) => length,
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(cause) if cause.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                self.drain();
                return Err(EventError::Overrun);
            }
            Err(cause) => return Err(cause.into()),
        };
        for message in messages(&self.buffer[..length]) {
            let event = message.and_then(|message| (self.decode)(message.bytes));
            self.ready.extend(event.transpose());
        }
        Ok(true)
    }

    /// Throws away what is queued: it is older than the state that the caller
    /// will now ask for, and would undo it.
    fn drain(&mut self) {
        self.ready.clear();
        for _ in 0..DRAIN_LIMIT {
            if receive(&self.socket, &mut self.buffer).is_err() {
                return;
            }
        }
    }
}

impl<T> AsFd for Subscription<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<T> AsRawFd for Subscription<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// A [`Subscription`] in tokio.
pub struct Stream<T> {
    inner: AsyncFd<Subscription<T>>,
}

impl<T> Stream<T> {
    /// The next event. Safe to cancel: an event not returned is not lost.
    pub async fn next(&mut self) -> Result<T, EventError> {
        loop {
            // Readiness is cleared only once the socket has said "would block"
            // and nothing is queued, so what is queued is found here.
            let mut guard = self.inner.readable_mut().await?;
            match guard.get_inner_mut().try_recv()? {
                Some(event) => return Ok(event),
                None => guard.clear_ready(),
            }
        }
    }
}
