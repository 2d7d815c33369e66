//! Probes through the tunnel to a roadside unit: ICMP echo requests (RFC 792), which every kernel answers. By ping
//! sockets, for which the agent needs no further capability: `net.ipv4.ping_group_range` must hold its group.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::task::Poll;

use crosslane_core::roadside::connection_manager::MAX_PROBE_BYTES;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::home_address::Way;
use crate::error::{Error, Result};

/// Types of ICMP messages: the first byte.
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// Length of the header of both. The kernel sets its checksum and identifier.
const HEADER_BYTES: usize = 8;

/// The socket of probes to one unit.
pub struct ProbeSocket(UdpSocket);

impl ProbeSocket {
    /// A socket whose packets take this tunnel.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn open(way: &Way) -> Result<ProbeSocket> {
        let attempt = || format!("probing the roadside unit of {}", way.net);
        let unit = way.net.hosts().next().ok_or_else(|| Error::failure(attempt(), "its prefix has no address"))?;
        let socket = || {
            let socket = ping_socket(false)?;
            socket.bind(&SocketAddrV4::new(way.net.addr(), 0).into())?;
            socket.connect(&SocketAddrV4::new(unit, 0).into())?;
            UdpSocket::from_std(socket.into())
        };
        socket().map(ProbeSocket).map_err(|cause| explain(Error::failure(attempt(), &cause), &cause))
    }

    /// Sends a probe with this many bytes of payload. One that fails is a probe without an answer.
    pub fn send(&self, bytes: u16) {
        let mut probe = [0; HEADER_BYTES + MAX_PROBE_BYTES as usize];
        probe[0] = ECHO_REQUEST;
        drop(self.0.try_send(&probe[..HEADER_BYTES + usize::from(bytes.min(MAX_PROBE_BYTES))]));
    }

    /// The next answer. Safe to cancel.
    async fn answer(&self) {
        let mut kind = [0];
        // An error, as of an unreachable unit, is none.
        while !self.0.recv(&mut kind).await.is_ok_and(|bytes| bytes == 1 && kind[0] == ECHO_REPLY) {}
    }
}

/// A ping socket, of IPv6 or IPv4.
///
/// # Errors
/// The kernel rejects it.
pub fn ping_socket(is_v6: bool) -> io::Result<Socket> {
    let (domain, protocol) = if is_v6 { (Domain::IPV6, Protocol::ICMPV6) } else { (Domain::IPV4, Protocol::ICMPV4) };
    let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn explain(fault: Error, cause: &io::Error) -> Error {
    match cause.kind() {
        ErrorKind::PermissionDenied => fault.with_remedy(PERMIT),
        _ => fault,
    }
}

/// What lets every group open ping sockets, as systemd does by default.
pub const PERMIT: &str = "sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"";

/// Whether this process may send probes and other echo requests.
///
/// # Errors
/// The kernel rejects a ping socket.
pub fn check() -> Result<()> {
    let opened = ping_socket(false).and_then(|socket| socket.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into()));
    opened.map_err(|cause| explain(Error::failure("opening a ping socket", &cause), &cause))
}

/// The station of the next unit that answers. Safe to cancel.
pub async fn answer<'a>(sockets: impl Iterator<Item = (u32, &'a ProbeSocket)>) -> u32 {
    let mut answers: Vec<_> = sockets.map(|(station, socket)| (station, Box::pin(socket.answer()))).collect();
    poll_fn(|context| {
        let mut ready = answers
            .iter_mut()
            .filter_map(|(station, answer)| answer.as_mut().poll(context).is_ready().then_some(*station));
        ready.next().map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
