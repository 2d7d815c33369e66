//! Sending and receiving objects: feeds the engines of `core::transfer` with
//! bytes, digests and acknowledgements. `crosslane send` and `crosslane receive`
//! are [`multipath`] with files; `docs/guide/transfer.md` lists its guarantees.
//! [`sending`] and [`receiving`] are the same over one MPTCP connection, for the
//! drives that compare MPTCP's strategies.
//!
//! A [`Source`](source::Source) supplies objects as they are generated and
//! receives their results; a [`Sink`](receiving::Sink) accepts them at the
//! receiver. The commands use [`files::Files`] and [`folder::Folder`].
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//!
//! use crosslane::clock::Clock;
//! use crosslane::transfer::files::{Ending, Files, Upload};
//! use crosslane::transfer::folder::{Folder, Parts};
//! use crosslane::transfer::connection;
//! use crosslane::transfer::multipath::receiving;
//! use crosslane::transfer::multipath::sending::{self, How, Path};
//! use crosslane_core::transfer::Late;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (here, there) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # let (file, folder) = (here.path().join("lidar.bin"), there.path());
//! # std::fs::write(&file, vec![7; 100_000])?;
//! let clock = Clock::start();
//! let stop = AtomicBool::new(false);
//! let listener = connection::listen("127.0.0.1:0".parse()?)?;
//! let address = listener.local_addr()?.as_socket().ok_or("no address")?;
//! let outcome = std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         let (socket, _) = listener.accept()?;
//!         // In the clear; with keys, here and below, the connections are encrypted.
//!         let (_, joined) = receiving::greet(socket, None, clock, &stop)?;
//!         let parts = Parts::new(folder);
//!         let mut sink = Folder::new(&parts, |notice| println!("{notice:?}"));
//!         // A program with several paths passes further connections of the transfer to this channel.
//!         let (_more, join) = std::sync::mpsc::channel();
//!         receiving::receive(joined, &join, &mut sink, clock, &stop)?;
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     });
//!     let deadline = Some(clock.now() + Duration::from_secs(10));
//!     let upload = Upload { path: file, name: "lidar.bin".into(), start: clock.now(), deadline };
//!     let mut files = Files::new([upload], |_, _| {});
//!     let paths = [Path { interface: None, unit_cost: 0.0 }];
//!     let how = How { targets: &[address], keys: None, beliefs: None, congestion: None, late: Late::GiveUp };
//!     sending::send(&paths, &how, &mut files, clock, &stop)?;
//!     Ok::<_, crosslane::transfer::TransferError>(files.all()[0].ending)
//! })?;
//! assert_eq!(outcome, Some(Ending::Stored));
//! assert_eq!(std::fs::read(folder.join("lidar.bin"))?.len(), 100_000);
//! # Ok(())
//! # }
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::Socket;

pub mod beliefs;
pub mod connection;
pub mod files;
pub mod folder;
pub mod followed;
pub mod multipath;
pub mod receiving;
pub mod sending;
pub mod source;

/// Default port of a receiver: it needs no privilege and is below the kernel's
/// ephemeral ports (32768 and above).
pub const PORT: u16 = 7411;

/// Timeout for the receiver's preface; a receiver may be busy.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The connection failed.
    #[error("while {attempt}: {cause}; {remedy}")]
    Connection {
        /// The attempt.
        attempt: String,
        /// The system's error.
        cause: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// The peer violates the protocol.
    #[error("while {attempt}: {cause}; check that both sides run Crosslane in compatible versions")]
    Stream {
        /// The attempt.
        attempt: &'static str,
        /// What is wrong, and where.
        cause: crosslane_core::transfer::frame::Fault,
    },
    /// The peer sends no preface or no data.
    #[error("while {attempt}: the peer has sent nothing for {} s; {remedy}", limit.as_secs())]
    Silent {
        /// The attempt.
        attempt: &'static str,
        /// The timeout.
        limit: Duration,
        /// The remedy.
        remedy: &'static str,
    },
    /// The sender has no key that this receiver accepts, or the receiver none.
    #[error("while agreeing on keys: {cause}; {remedy}")]
    Keys {
        /// What is wrong.
        cause: String,
        /// The remedy.
        remedy: String,
    },
    /// A later transfer sends an object of this one: its sender was started again.
    #[error("while receiving: another sender has offered the same file, which goes on there; send each file once")]
    Superseded,
    /// The receiver does not serve this sender, by an answer that anyone on the way could have sent.
    #[error("while agreeing on keys: the answer, which is not authentic, rejects the connection: {text}")]
    RejectedInClear {
        /// The message: reason and remedy.
        text: String,
    },
    /// The receiver does not serve this sender now.
    #[error("while sending: the receiver rejects the connection: {text}")]
    Rejected {
        /// The receiver's message: reason and remedy.
        text: String,
    },
}

/// The result of a transfer: an error after `stop` was set is no fault.
fn unless_stopped(result: Result<(), TransferError>, stop: &AtomicBool) -> Result<(), TransferError> {
    if stop.load(Ordering::Relaxed) { Ok(()) } else { result }
}

/// Text of an unauthenticated peer, which must not control the terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).collect()
}

// SIOCOUTQ of a TCP or MPTCP socket: bytes written and not acknowledged (tcp(7)).
mod request {
    #![allow(missing_docs)]
    nix::ioctl_read_bad!(outstanding, nix::libc::TIOCOUTQ, nix::libc::c_int);
}

/// Bytes written and not acknowledged by the peer.
///
/// # Errors
/// It is not a socket of TCP or MPTCP.
pub fn outstanding_bytes(socket: &Socket) -> io::Result<u64> {
    let mut bytes = 0;
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and the kernel writes one int.
    unsafe { request::outstanding(socket.as_fd().as_raw_fd(), &raw mut bytes) }?;
    Ok(bytes.max(0) as u64)
}
