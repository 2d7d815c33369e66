//! Answers the `socket` calls that the filter holds, until no process of the program is left.

use std::fs;
use std::io::{self, IoSliceMut, Write};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::setsid;

use crate::error::{Error, Result};
use crate::program::this_program;

/// The command `run-supervisor`: starts the supervisor with the same standard input and ends, or is the supervisor.
///
/// # Errors
/// It cannot be started, or gets no listener.
pub fn supervise(is_detached: bool) -> Result<()> {
    let failed = |cause: io::Error| Error::failure("starting the supervisor", cause);
    if !is_detached {
        // Away from the terminal, whose signals are for the program.
        setsid().map_err(|cause| failed(cause.into()))?;
        let start = this_program().and_then(|mut command| command.args(["run-supervisor", "--detached"]).spawn());
        return start.map(drop).map_err(failed);
    }
    // A service manager ends all processes of a service at once; the program may still need sockets then.
    // SAFETY: no handler is set, the signal is only ignored.
    unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) }.map_err(|cause| failed(cause.into()))?;
    let listener = receive_listener().map_err(failed)?;
    while let Some(call) = next(&listener).map_err(failed)? {
        answer(&listener, &call);
    }
    Ok(())
}

/// An MPTCP socket, with `SOCK_NONBLOCK` if `flags` has it.
///
/// # Errors
/// The kernel offers none.
pub fn mptcp_socket(family: libc::c_int, flags: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | (flags & libc::SOCK_NONBLOCK);
    // SAFETY: socket(2) has no memory of ours.
    let descriptor = Errno::result(unsafe { libc::socket(family, kind, libc::IPPROTO_MPTCP) })?;
    // SAFETY: the kernel has made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The listener, from standard input, which is closed then.
fn receive_listener() -> io::Result<OwnedFd> {
    // SAFETY: the starter has set standard input, and nothing else here uses it.
    let mut channel = UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) });
    let mut space = nix::cmsg_space!(RawFd);
    let mut byte = [0];
    let mut into = [IoSliceMut::new(&mut byte)];
    let message = recvmsg::<()>(channel.as_raw_fd(), &mut into, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let listener = message.cmsgs()?.find_map(|part| match part {
        ControlMessageOwned::ScmRights(descriptors) => descriptors.first().copied(),
        _ => None,
    });
    let listener = listener.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    // SAFETY: the kernel has made this descriptor for us.
    let listener = unsafe { OwnedFd::from_raw_fd(listener) };
    channel.write_all(&[0])?;
    Ok(listener)
}

/// The next call; none when the last process with the filter has ended.
fn next(listener: &OwnedFd) -> io::Result<Option<libc::seccomp_notif>> {
    loop {
        let mut wanted = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut wanted, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(cause) => return Err(cause.into()),
        }
        let events = wanted[0].revents().unwrap_or(PollFlags::empty());
        if events.contains(PollFlags::POLLIN) {
            // SAFETY: zeros are a valid call, and the kernel requires them.
            let mut call: libc::seccomp_notif = unsafe { zeroed() };
            match request(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &mut call) {
                Ok(_) => return Ok(Some(call)),
                // The process ended, or a signal interrupted its call.
                Err(Errno::ENOENT | Errno::EINTR) => {}
                Err(cause) => return Err(cause.into()),
            }
        } else if events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL) {
            return Ok(None);
        }
    }
}

/// Answers with an MPTCP socket; otherwise the kernel executes the call as it is.
fn answer(listener: &OwnedFd, call: &libc::seccomp_notif) {
    let [family, kind] = [0, 1].map(|place| call.data.args[place] as libc::c_int);
    let socket = is_like_us(call.pid).then(|| mptcp_socket(family, kind)).and_then(Result::ok);
    let given = socket.and_then(|socket| {
        let mut given = libc::seccomp_notif_addfd {
            id: call.id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: socket.as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: (kind & libc::SOCK_CLOEXEC) as u32,
        };
        request(listener, libc::SECCOMP_IOCTL_NOTIF_ADDFD, &mut given).ok()
    });
    if given.is_none() {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let mut passed = libc::seccomp_notif_resp { id: call.id, val: 0, error: 0, flags };
        // It fails only if the process has ended.
        let _ = request(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &mut passed);
    }
}

fn request<T>(listener: &OwnedFd, request: libc::Ioctl, argument: &mut T) -> Result<libc::c_int, Errno> {
    // SAFETY: each request is called with the type that it has in linux/seccomp.h.
    Errno::result(unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw mut *argument) })
}

/// Whether a process has this one's network namespace and user: a socket belongs to those of the process that opens it.
fn is_like_us(process: u32) -> bool {
    let of = |process: &str| {
        let namespace = fs::metadata(format!("/proc/{process}/ns/net")).ok()?;
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?.to_owned();
        Some((namespace.dev(), namespace.ino(), users))
    };
    let own = of("self");
    own.is_some() && of(&process.to_string()) == own
}
