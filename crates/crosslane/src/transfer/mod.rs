//! Sending and receiving objects over one connection: feeds the engines of
//! `core::transfer` with bytes, digests and acknowledgements. `crosslane send`
//! and `crosslane receive` are this library with files; `docs/transfer.md` says
//! what it promises.
//!
//! A [`Source`](sending::Source) gives objects as they come up and hears what
//! becomes of them, a [`Sink`](receiving::Sink) takes them at the other end.
//! [`files::Files`] and [`folder::Folder`] are those of the commands.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//!
//! use crosslane::clock::Clock;
//! use crosslane::transfer::files::{Ending, Files, Upload};
//! use crosslane::transfer::folder::Folder;
//! use crosslane::transfer::{connection, receiving, sending};
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
//!         receiving::receive(&socket, &mut Folder::new(folder, |kept| println!("{kept:?}")), clock, &stop)?;
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     });
//!     let deadline = Some(clock.now() + Duration::from_secs(10));
//!     let upload = Upload { path: file, name: "lidar.bin".into(), start: clock.now(), deadline };
//!     let mut files = Files::new([upload], |_, _| {});
//!     let socket = connection::connect(address, &connection::How::default(), clock, &stop)?;
//!     sending::send(&socket, None, &mut files, Late::GiveUp, clock, &stop)?;
//!     Ok::<_, crosslane::transfer::TransferError>(files.all()[0].ending)
//! })?;
//! assert_eq!(outcome, Some(Ending::Stored));
//! assert_eq!(std::fs::read(folder.join("lidar.bin"))?.len(), 100_000);
//! # Ok(())
//! # }
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use socket2::Socket;

pub mod connection;
pub mod files;
pub mod folder;
pub mod receiving;
pub mod sending;

/// Port of a receiver, where none is named: one that needs no privilege and is
/// below those that the kernel gives out (32768 and above).
pub const PORT: u16 = 7411;

/// How long a receiver may take to say what it is; it may be busy.
const GREET_WITHIN: Duration = Duration::from_secs(30);

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The connection.
    #[error("while {attempt}: {cause}; {remedy}")]
    Connection {
        /// What was tried.
        attempt: String,
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
    /// The other end does not say what it is.
    #[error("while {attempt}: the other end has said nothing for {} s; {remedy}", limit.as_secs())]
    Silent {
        /// What was tried.
        attempt: &'static str,
        /// How long that may take.
        limit: Duration,
        /// What to do.
        remedy: &'static str,
    },
    /// The receiver takes nothing from this sender now.
    #[error("while sending: the receiver takes nothing: {text}")]
    TurnedAway {
        /// The receiver's words: why, and what to do.
        text: String,
    },
}

/// The receiver takes nothing over this connection; see [`connection::turn_away`].
fn turned_away(text: &str) -> TransferError {
    // What a stranger writes may not steer our terminal.
    let text: String = text.chars().filter(|letter| !letter.is_control()).collect();
    TransferError::TurnedAway { text }
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
