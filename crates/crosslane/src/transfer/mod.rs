//! Sending and receiving objects over one connection: feeds the engines of
//! `core::transfer` with bytes, digests and acknowledgements.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use socket2::Socket;

pub mod receiving;
pub mod sending;

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The connection.
    #[error("while {attempt}: {cause}; {remedy}")]
    Connection {
        /// What was tried.
        attempt: &'static str,
        /// What the system said.
        cause: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// What came is not what the other end of a transfer says.
    #[error("while {attempt}: {cause}; look whether both ends are Crosslane's, of versions that fit")]
    Stream {
        /// What was tried.
        attempt: &'static str,
        /// What is wrong, and where.
        cause: crosslane_core::transfer::frame::Fault,
    },
}

// SIOCOUTQ of a TCP or MPTCP socket: bytes written and not acknowledged (tcp(7)).
mod request {
    #![allow(missing_docs)]
    nix::ioctl_read_bad!(outstanding, nix::libc::TIOCOUTQ, nix::libc::c_int);
}

/// Bytes written and not acknowledged by the peer.
///
/// # Errors
/// No socket of TCP or MPTCP.
pub fn outstanding_bytes(socket: &Socket) -> io::Result<u64> {
    let mut bytes = 0;
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and the kernel writes one int.
    unsafe { request::outstanding(socket.as_fd().as_raw_fd(), &raw mut bytes) }?;
    Ok(bytes.max(0) as u64)
}
