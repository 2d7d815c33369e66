//! Captures the vehicle's packets with the kernel's timestamps.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crosslane::testbed::packet::HEAD_BYTES;
use crosslane::testbed::packet::segment::Segment;
use nix::sys::socket::sockopt::{RcvBuf, ReceiveTimeout, ReceiveTimestampns};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, setsockopt, socket,
};
use nix::sys::time::{TimeSpec, TimeVal, TimeValLike};

use super::LISTENER;

/// Timeout for a second subflow.
const TIMEOUT_MS: i64 = 200;
const BUFFER_BYTES: usize = 1 << 20;

/// A capture of all packets on all interfaces of this thread's network
/// namespace.
pub struct Capture {
    socket: OwnedFd,
}

/// Times at which a connection's second subflow was opened.
#[derive(Clone, Copy)]
pub struct Opening {
    third_ack: Duration,
    data_ack: Duration,
    join: Duration,
}

impl Opening {
    /// Time from the handshake's third packet to the SYN with MP_JOIN.
    pub fn after_handshake(&self) -> Duration {
        self.join.saturating_sub(self.third_ack)
    }

    /// Time from the server's first packet with a DATA_ACK to the SYN with MP_JOIN.
    pub fn after_data_ack(&self) -> Duration {
        self.join.saturating_sub(self.data_ack)
    }
}

impl Capture {
    /// Starts a capture.
    pub fn open() -> io::Result<Capture> {
        // Without a link-layer header, so that a packet begins with IP.
        let socket = socket(AddressFamily::Packet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
        setsockopt(&socket, ReceiveTimestampns, &true)?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::milliseconds(TIMEOUT_MS))?;
        setsockopt(&socket, RcvBuf, &BUFFER_BYTES)?;
        Ok(Capture { socket })
    }

    /// Discards the captured packets.
    pub fn clear(&mut self) {
        while self.next(MsgFlags::MSG_DONTWAIT).is_ok() {}
    }

    /// The times of the connection from `client`; `None` without a second subflow.
    pub fn opening_of(&mut self, client: SocketAddr) -> Option<Opening> {
        let (mut third_ack, mut data_ack) = (None, None);
        while let Ok((at, segment)) = self.next(MsgFlags::empty()) {
            let Some(segment) = segment else { continue };
            let joins = segment.is_syn() && segment.join_token.is_some() && segment.destination == LISTENER;
            if joins {
                return Some(Opening { third_ack: third_ack?, data_ack: data_ack?, join: at });
            } else if segment.source == client && !segment.is_syn() {
                third_ack.get_or_insert(at);
            } else if segment.destination == client && segment.data_ack.is_some() {
                data_ack.get_or_insert(at);
            }
        }
        None
    }

    fn next(&mut self, flags: MsgFlags) -> nix::Result<(Duration, Option<Segment>)> {
        let mut head = [0; HEAD_BYTES];
        let mut control = nix::cmsg_space!(TimeSpec);
        let mut parts = [io::IoSliceMut::new(&mut head)];
        let message = recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
        let at = message.cmsgs()?.find_map(|part| match part {
            ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
            _ => None,
        });
        let length = message.bytes;
        Ok((at.unwrap_or_default(), Segment::parse(&head[..length])))
    }
}
