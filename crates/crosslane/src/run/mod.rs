//! `crosslane run`: a program whose TCP sockets are MPTCP sockets, whatever it is written in and linked with.
//!
//! A filter of system calls holds each `socket` call of the program that asks for TCP, and a supervisor, which is a
//! process in the background, answers it with an MPTCP socket. The program takes the place of this process: its id,
//! signals, exit code and terminal are as without it.

use std::ffi::OsString;
use std::io::{self, ErrorKind, IoSlice, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::error::{Error, Result};
use crate::output;
use crate::program::this_program;

mod filter;
mod supervisor;

pub use supervisor::supervise;

/// Exit codes of a program that is not found, or cannot be started, as of env(1).
const NOT_FOUND: u8 = 127;
const NOT_STARTED: u8 = 126;
const STARTING: &str = "starting the supervisor of its sockets";

/// Options of the command.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the program in the place of this one. If its connections cannot be MPTCP, a sentence says why, and it runs
/// with TCP.
///
/// # Errors
/// The program cannot be started.
pub fn run(options: &Options) -> Result<std::convert::Infallible> {
    let (name, arguments) = options.program.split_first().ok_or_else(|| {
        Error::usage("reading the command line", "no program is named", "name one, as `crosslane run -- PROGRAM`")
    })?;
    match prepare() {
        // Without a supervisor each held call would fail.
        Ok((mut channel, listener)) => {
            hand_over(&mut channel, &listener).map_err(|cause| Error::failure(STARTING, cause))?;
        }
        Err(fault) => output::message(format_args!("{fault}; {} runs as it is", name.to_string_lossy())),
    }
    #[expect(clippy::disallowed_methods, reason = "the program that the user names")]
    let cause = Command::new(name).args(arguments).exec();
    let exit_code = if cause.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_STARTED };
    let attempt = format!("starting {}", name.to_string_lossy());
    Err(Error::failure(attempt, cause).with_exit_code(exit_code))
}

/// Starts the supervisor and sets the filter of this process; returns the way to the supervisor, and its listener.
fn prepare() -> Result<(UnixStream, OwnedFd)> {
    supervisor::mptcp_socket(libc::AF_INET, 0).map_err(|cause| no_mptcp(&cause))?;
    // The filter holds for all that is started after it, so the supervisor precedes it.
    let channel = start_supervisor().map_err(|cause| Error::failure(STARTING, cause))?;
    let listener = filter::set().map_err(|cause| no_filter(&cause))?;
    Ok((channel, listener))
}

fn no_mptcp(cause: &io::Error) -> Error {
    let fault = Error::failure("opening an MPTCP socket", cause);
    match cause.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOPROTOOPT) => fault.with_remedy("`sysctl net.mptcp.enabled=1` enables MPTCP"),
        _ => fault.with_remedy("it needs Linux 5.6 or newer with CONFIG_MPTCP"),
    }
}

fn no_filter(cause: &io::Error) -> Error {
    let fault = Error::failure("setting a filter of system calls", cause);
    match cause.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EBUSY) => fault.with_remedy("another supervisor answers system calls already"),
        _ => fault.with_remedy("it needs Linux 5.14 or newer with CONFIG_SECCOMP_FILTER, on x86-64, arm64 or riscv64"),
    }
}

/// Starts the supervisor as a process that is no child of this one, so that the program has none that it did not start.
fn start_supervisor() -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut starter = this_program()?;
    starter.arg("run-supervisor").stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    if starter.current_dir("/").status()?.success() { Ok(ours) } else { Err(io::Error::other("it ended")) }
}

/// Passes the listener to the supervisor and waits until it listens.
fn hand_over(channel: &mut UnixStream, listener: &OwnedFd) -> io::Result<()> {
    let descriptors = [listener.as_raw_fd()];
    let message = [ControlMessage::ScmRights(&descriptors)];
    sendmsg::<()>(channel.as_raw_fd(), &[IoSlice::new(&[0])], &message, MsgFlags::MSG_NOSIGNAL, None)?;
    channel.read_exact(&mut [0])
}
