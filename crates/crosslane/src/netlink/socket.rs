//! One netlink socket for requests and replies.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR, NetlinkSerializable};
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use socket2::SockRef;

use super::message::{DecodeError, KernelError, Message, frame, messages, request_bytes};

/// Buffer size for one datagram; the kernel's dumps do not exceed it.
pub(super) const DATAGRAM_LEN: usize = 32 * 1024;
/// The kernel replies within the system call: this limit only covers the case that
/// it does not.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// A netlink socket that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kernel has no such generic netlink family or multicast group.
    #[error("while looking for {what}: this kernel does not have it; {needs}")]
    Absent {
        /// What it lacks.
        what: String,
        /// The remedy.
        needs: &'static str,
    },
    /// Opening the socket failed.
    #[error("while opening a netlink socket: {0}; check the limit of open files and the sandbox, if any")]
    Socket(#[from] io::Error),
    /// The first request failed.
    #[error("while querying netlink: {0}")]
    Call(#[from] CallError),
}

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The kernel returned an error.
    #[error(transparent)]
    Refused(#[from] KernelError),
    /// The socket failed, or there was no reply within a second.
    #[error("the netlink socket failed: {0}")]
    Io(#[from] io::Error),
    /// The reply cannot be decoded.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
}

impl CallError {
    /// The kernel's error number, if the kernel returned an error.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            CallError::Refused(error) => Some(error.errno),
            _ => None,
        }
    }
}

/// A request to the kernel that failed.
#[derive(Debug, thiserror::Error)]
#[error("while asking the kernel to {attempt}: {cause}; {}", self.remedy())]
pub struct CommandError {
    /// The request, in words.
    pub attempt: &'static str,
    /// Its cause.
    #[source]
    pub cause: CallError,
}

impl CommandError {
    /// For `map_err`: the attempt, then the cause.
    pub(super) fn while_asked_to(attempt: &'static str) -> impl FnOnce(CallError) -> CommandError {
        move |cause| CommandError { attempt, cause }
    }

    /// The kernel's error number, if the kernel returned an error.
    pub fn errno(&self) -> Option<Errno> {
        self.cause.errno()
    }

    fn remedy(&self) -> &'static str {
        match self.errno() {
            Some(Errno::EPERM) => "run as root or with CAP_NET_ADMIN in this network namespace",
            Some(Errno::ESRCH | Errno::ENOTCONN) => "it is gone, no action is needed",
            Some(Errno::EINVAL) => {
                "check the request; a connection can be managed only if net.mptcp.path_manager was `userspace` when it began"
            }
            Some(Errno::EEXIST) => "it exists already, remove it first to change it",
            _ => "try again",
        }
    }
}

/// A socket of one netlink protocol for requests.
pub(crate) struct Channel {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Channel {
    /// A socket in the network namespace of this thread. `protocol` is one of
    /// `netlink_sys::protocols`.
    pub fn open(protocol: isize) -> io::Result<Channel> {
        Channel::with_buffer(protocol, DATAGRAM_LEN)
    }

    /// The same with a buffer of this length: the kernel sends no longer datagrams of a dump.
    pub fn with_buffer(protocol: isize, length: usize) -> io::Result<Channel> {
        let socket = connect(protocol)?;
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        SockRef::from(&socket).set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(Channel { socket, sequence: 0, buffer: vec![0; length] })
    }

    /// Sends a request and passes every message of the reply to `on_reply`. `flags`
    /// must ask for a dump or for an acknowledgement: either marks the end. A reply
    /// is read to its end even if part of it is malformed, or the kernel would find
    /// the socket busy.
    pub fn call(
        &mut self,
        payload: impl NetlinkSerializable,
        flags: u16,
        mut on_reply: impl FnMut(Message<'_>) -> Result<(), DecodeError>,
    ) -> Result<(), CallError> {
        self.request(payload, flags)?;
        let mut outcome = Ok(());
        let mut keep_first_error = |message: Message<'_>| {
            let read = on_reply(message);
            if outcome.is_ok() {
                outcome = read;
            }
        };
        while self.next_part(&mut keep_first_error)? {}
        Ok(outcome?)
    }

    /// Sends a request whose reply is read in parts.
    pub fn request(&mut self, payload: impl NetlinkSerializable, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&request_bytes(payload, flags, self.sequence), 0).map(drop)
    }

    /// Reads one datagram of the reply; false after the last one.
    pub fn next_part(&mut self, mut on_reply: impl FnMut(Message<'_>)) -> Result<bool, CallError> {
        let length = receive(&self.socket, &mut self.buffer)?;
        for message in messages(&self.buffer[..length]) {
            let message = message?;
            if message.sequence != self.sequence {
                continue;
            }
            match message.kind {
                NLMSG_ERROR | NLMSG_DONE => return message.verdict()?.map_or(Ok(false), |error| Err(error.into())),
                _ => on_reply(message),
            }
        }
        Ok(true)
    }
}

/// A socket connected to the kernel: it receives messages from no other sender.
pub(super) fn connect(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Reads the next datagram into `buffer`; returns its length.
pub(super) fn receive(socket: &Socket, mut buffer: &mut [u8]) -> io::Result<usize> {
    let room = buffer.len();
    let length = loop {
        match socket.recv(&mut buffer, libc::MSG_TRUNC) {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
            other => break other?,
        }
    };
    if length > room {
        let cause = frame("a datagram", &[], format!("{length} bytes do not fit into {room}"));
        return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
    }
    Ok(length)
}

/// Waits until there is something to read, `timeout` has passed, or a signal
/// arrived.
pub(super) fn wait(socket: &Socket, timeout: Duration) -> io::Result<()> {
    let mut sockets = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    match ppoll(&mut sockets, Some(timeout.into()), None) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
