//! Events of the kernel: one type for blocking and for tokio.

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

/// Requested receive buffer in bytes: some 10 000 events. Without privilege the
/// kernel grants `net.core.rmem_max` at most.
const RECEIVE_BUFFER_LEN: usize = 4 * 1024 * 1024;
/// Maximum number of datagrams discarded after an overrun.
const DRAIN_LIMIT: usize = 65_536;

/// Why there is no next event.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The kernel had more events than the receive buffer holds, and some are
    /// lost. The queued ones have been discarded: read the present
    /// state (`diag::Diag::connections`, `links::snapshot`), then continue.
    #[error(
        "while waiting for events: the receive buffer overran; read the present state, and raise net.core.rmem_max if this recurs"
    )]
    Overrun,
    /// One message cannot be read; the following ones can.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The socket failed; open another.
    #[error("while waiting for events: {0}; open a new socket")]
    Io(#[from] io::Error),
}

/// Decodes a message into an event, `None` if it is none.
pub(super) type Decode<T> = fn(&[u8]) -> Result<Option<T>, DecodeError>;

/// Events of type `T` from a netlink multicast group, for a separate thread.
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
        // Best effort: a smaller buffer also works, but overruns earlier.
        if setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER_LEN).is_err() {
            let _ = setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER_LEN);
        }
        for group in groups {
            socket.add_membership(*group)?;
        }
        Ok(Subscription { socket, decode, ready: VecDeque::new(), buffer: vec![0; DATAGRAM_LEN] })
    }

    /// The next event; `None` after `timeout`, or earlier if the message received
    /// was no event.
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<T>, EventError> {
        if let Some(event) = self.try_recv()? {
            return Ok(Some(event));
        }
        wait(&self.socket, timeout)?;
        self.try_recv()
    }

    /// The next event if there is one.
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

    /// Reads one datagram; false if there is none.
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

    /// Discards the queued events: they are older than the state that the caller
    /// will now read, and would undo it.
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
            // Readiness is cleared only after the socket has returned "would block"
            // with an empty queue, so queued events are found here.
            let mut guard = self.inner.readable_mut().await?;
            match guard.get_inner_mut().try_recv()? {
                Some(event) => return Ok(event),
                None => guard.clear_ready(),
            }
        }
    }
}
