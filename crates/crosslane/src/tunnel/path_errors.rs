//! Reports paths that cannot send, by errors of the kernel, to the user.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;

use super::socket::PathSocket;
use crate::error::Error;

/// Reports each socket's fault once.
pub(super) struct Faults {
    /// Sockets whose fault was reported, by bit.
    reported: AtomicU32,
    sender: SyncSender<Error>,
}

impl Faults {
    /// No fault is reported yet; faults go to `sender`.
    pub(super) fn new(sender: SyncSender<Error>) -> Faults {
        Faults { reported: AtomicU32::new(0), sender }
    }

    /// Forgets the fault of a socket that was replaced.
    pub(super) fn forget(&self, place: usize) {
        self.reported.fetch_and(!bit_of(place), Relaxed);
    }

    /// Reports a send error, unless it concerns a single datagram only.
    pub(super) fn note(&self, place: usize, socket: &PathSocket, to: SocketAddr, cause: &io::Error) {
        let bit = bit_of(place);
        if !is_of_the_path(cause) || self.reported.fetch_or(bit, Relaxed) & bit != 0 {
            return;
        }
        let fault = Error::failure(format!("sending from {} to {to}", socket.description()), cause)
            .with_remedy("the other paths continue; give this one a route there");
        // If the buffer is full, the fault is dropped.
        let _ = self.sender.try_send(fault);
    }
}

fn bit_of(place: usize) -> u32 {
    1 << (place % 32)
}

/// True if no datagram can be sent over the path; false if one is too long,
/// a queue is full, or the destination port is closed.
fn is_of_the_path(cause: &io::Error) -> bool {
    let faults =
        [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ENETDOWN, libc::EADDRNOTAVAIL, libc::EACCES, libc::EPERM];
    cause.raw_os_error().is_some_and(|number| faults.contains(&number))
}
