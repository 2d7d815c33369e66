//! Paths that nothing can be sent over, as the kernel tells, for the user.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;

use super::socket::PathSocket;
use crate::error::Error;

/// Tells each socket's fault once.
pub(super) struct Faults {
    /// Sockets whose fault was told, by bit.
    told: AtomicU32,
    tell: SyncSender<Error>,
}

impl Faults {
    /// Nothing was told yet; faults go to `tell`.
    pub(super) fn new(tell: SyncSender<Error>) -> Faults {
        Faults { told: AtomicU32::new(0), tell }
    }

    /// The socket at this place is another from now on.
    pub(super) fn forget(&self, place: usize) {
        self.told.fetch_and(!bit_of(place), Relaxed);
    }

    /// The kernel did not send. What concerns a datagram only is not told.
    pub(super) fn note(&self, place: usize, socket: &PathSocket, to: SocketAddr, cause: &io::Error) {
        let bit = bit_of(place);
        if !is_of_the_path(cause) || self.told.fetch_or(bit, Relaxed) & bit != 0 {
            return;
        }
        let fault = Error::failure(format!("sending from {} to {to}", socket.place()), cause);
        let remedy = "the other paths go on; give this one a route there";
        // Nobody listens: then nobody needs to know.
        let _ = self.tell.try_send(fault.with_remedy(remedy));
    }
}

fn bit_of(place: usize) -> u32 {
    1 << (place % 32)
}

/// Nothing can be sent this way, whatever it is: not that a datagram is too long,
/// or a queue full, or that nobody listens there.
fn is_of_the_path(cause: &io::Error) -> bool {
    let faults =
        [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ENETDOWN, libc::EADDRNOTAVAIL, libc::EACCES, libc::EPERM];
    cause.raw_os_error().is_some_and(|number| faults.contains(&number))
}
