//! The UDP socket of one path: many datagrams per system call, never fragmented
//! on the path (DF) unless requested, with DSCP and ECN of
//! each. ICMP messages about the path MTU are ignored
//! (PMTUDISC_PROBE): any host can forge them.
//!
//! Nothing blocks: the caller polls. A socket bound to `::` also carries IPv4. A socket
//! without a bound address reports the local address of each datagram, and can
//! reply from it: firewalls block replies from another address.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::error::{Error, Result};

mod control;
mod receive;

use control::Control;
pub use receive::{Datagram, ReceiveBuffers};

/// Maximum bytes of one send: the longest payload of one UDP datagram over IPv4.
pub const SEND_BYTES_MAX: usize = 65_507;
/// Maximum datagrams of one send (the kernel's former UDP_MAX_SEGMENTS).
pub const SEGMENTS_MAX: usize = 64;
/// Buffer size requested of the kernel for each direction: 20 ms at 1.6 Gbit/s.
const BUFFER_BYTES: usize = 4 << 20;

/// A UDP socket of the network namespace whose thread opened it.
#[derive(Debug)]
pub struct PathSocket {
    socket: Socket,
    local: SocketAddr,
    interface: Option<String>,
    /// Whether the kernel segments for us (UDP_SEGMENT); tried until it refuses.
    has_gso: AtomicBool,
}

impl PathSocket {
    /// A socket bound to `address` (port 0 for any) and to `interface`, if the
    /// kernel allows that: see [`PathSocket::interface`].
    ///
    /// # Errors
    /// The address is not local or taken, or there is no such interface.
    pub fn bind(address: SocketAddr, interface: Option<&str>) -> Result<PathSocket> {
        let attempt = || match interface {
            Some(interface) => format!("binding a UDP socket to {address} at {interface}"),
            None => format!("binding a UDP socket to {address}"),
        };
        Self::try_bind(address, interface).map_err(|cause| match cause.raw_os_error() {
            Some(libc::EADDRINUSE) => Error::usage(attempt(), cause, "choose another port"),
            Some(libc::EADDRNOTAVAIL) => Error::usage(attempt(), cause, "give an address of this machine"),
            Some(libc::ENODEV) => Error::usage(attempt(), cause, "give an interface of this machine"),
            _ => Error::failure(attempt(), cause),
        })
    }

    fn try_bind(address: SocketAddr, interface: Option<&str>) -> io::Result<PathSocket> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), None)?;
        if address.is_ipv6() {
            socket.set_only_v6(address.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED))?;
        }
        let mut bound = None;
        if let Some(name) = interface {
            match socket.bind_device(Some(name.as_bytes())) {
                Ok(()) => bound = Some(name.to_owned()),
                // Without the privilege the address alone must suffice.
                Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {}
                Err(cause) => return Err(cause),
            }
        }
        control::set(&control::OPTIONS, &socket, address.is_ipv6())?;
        control::set(&control::DONT_FRAGMENT, &socket, address.is_ipv6())?;
        enlarge_buffers(&socket);
        socket.bind(&address.into())?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        Ok(PathSocket { socket, local, interface: bound, has_gso: AtomicBool::new(true) })
    }

    /// The bound address.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The bound interface: none, if none was given or the kernel
    /// did not permit it.
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Whether the kernel still segments for us.
    pub fn cuts(&self) -> bool {
        self.has_gso.load(Ordering::Relaxed)
    }

    /// Sends `buffer` as datagrams of `segment_bytes` each (the last may be
    /// shorter): 1 to [`SEGMENTS_MAX`], together at most [`SEND_BYTES_MAX`].
    /// They are sent from the local address `from`, if given; `tos` is DSCP and
    /// ECN. Returns how many datagrams the kernel accepted: fewer than all
    /// if its buffer is full.
    ///
    /// # Errors
    /// `WouldBlock` if the buffer was full before the first; `EMSGSIZE` if
    /// they exceed the interface's MTU; `InvalidInput` beyond the limits; the
    /// kernel's otherwise.
    pub fn send(
        &self,
        (from, to): (Option<IpAddr>, SocketAddr),
        tos: u8,
        segment_bytes: usize,
        buffer: &[u8],
    ) -> io::Result<usize> {
        let count = buffer.len().div_ceil(segment_bytes.max(1));
        if segment_bytes == 0 || count == 0 || count > SEGMENTS_MAX || buffer.len() > SEND_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let address = SockAddr::from(self.as_socket_family(to));
        let v4 = to.ip().to_canonical().is_ipv4();
        if count == 1 {
            return self.send_message(&address, &Control::of(v4, tos, None, from), buffer).map(|()| 1);
        }
        if self.cuts() {
            match self.send_message(&address, &Control::of(v4, tos, Some(segment_bytes as u16), from), buffer) {
                Ok(()) => return Ok(count),
                // Older kernels return EINVAL if the segments are too big for the
                // path; sending one by one shows which cause it was.
                Err(cause) if matches!(cause.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => {}
                Err(cause) => return Err(cause),
            }
        }
        let sent = self.send_one_by_one(&address, &Control::of(v4, tos, None, from), segment_bytes, buffer)?;
        self.has_gso.store(false, Ordering::Relaxed);
        Ok(sent)
    }

    /// As [`send`](Self::send), for datagrams longer than the path may carry: routers may fragment
    /// them (IPv4), or the kernel does (IPv6, by the routers' ICMP messages; or if the
    /// interface carries less).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_in_fragments(
        &self,
        (from, to): (Option<IpAddr>, SocketAddr),
        tos: u8,
        segment_bytes: usize,
        buffer: &[u8],
    ) -> io::Result<usize> {
        if segment_bytes == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (address, v4) = (SockAddr::from(self.as_socket_family(to)), to.ip().to_canonical().is_ipv4());
        let v6 = self.local.is_ipv6();
        control::set(&control::MAY_FRAGMENT, &self.socket, v6)?;
        // One by one: the kernel has no GSO for datagrams that it must fragment.
        let sent = self.send_one_by_one(&address, &Control::of(v4, tos, None, from), segment_bytes, buffer);
        control::set(&control::DONT_FRAGMENT, &self.socket, v6)?;
        sent
    }

    /// Lets the kernel fragment by the routers' ICMP messages, for a peer that
    /// answers no probes.
    ///
    /// # Errors
    /// The system's.
    pub fn trust_icmp_mtu(&self) -> io::Result<()> {
        control::set(&control::TRUST_ICMP_MTU, &self.socket, self.local.is_ipv6())
    }

    fn send_one_by_one(&self, to: &SockAddr, control: &Control, segment: usize, buffer: &[u8]) -> io::Result<usize> {
        for (sent, datagram) in buffer.chunks(segment).enumerate() {
            match self.send_message(to, control, datagram) {
                Ok(()) => {}
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock && sent > 0 => return Ok(sent),
                Err(cause) => return Err(cause),
            }
        }
        Ok(buffer.len().div_ceil(segment))
    }

    fn send_message(&self, to: &SockAddr, control: &Control, buffer: &[u8]) -> io::Result<()> {
        let mut part = libc::iovec { iov_base: buffer.as_ptr().cast_mut().cast(), iov_len: buffer.len() };
        // SAFETY: zeros are a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = to.as_ptr().cast_mut().cast();
        message.msg_namelen = to.len();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.bytes().as_ptr().cast_mut().cast();
        message.msg_controllen = control.bytes().len() as _;
        loop {
            // SAFETY: all that the message points to outlives the call, which only reads it.
            let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
            if sent >= 0 {
                return Ok(());
            }
            let cause = io::Error::last_os_error();
            if cause.kind() != io::ErrorKind::Interrupted {
                return Err(cause);
            }
        }
    }

    /// Receives as many datagrams as `buffers` hold; returns the number of messages, each of
    /// one or more datagrams. See [`ReceiveBuffers::datagrams`].
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing; the kernel's otherwise.
    pub fn receive(&self, buffers: &mut ReceiveBuffers) -> io::Result<usize> {
        buffers.fill(&self.socket)
    }

    /// Its address, and its interface if it is bound to one, for error messages.
    pub fn description(&self) -> String {
        let ip = self.local.ip();
        self.interface.as_ref().map_or_else(|| ip.to_string(), |interface| format!("{ip} at {interface}"))
    }

    /// An IPv6 socket needs IPv4 addresses mapped into IPv6.
    fn as_socket_family(&self, to: SocketAddr) -> SocketAddr {
        match (self.local, to.ip()) {
            (SocketAddr::V6(_), IpAddr::V4(ip)) => SocketAddr::new(ip.to_ipv6_mapped().into(), to.port()),
            _ => to,
        }
    }
}

impl AsFd for PathSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Beyond the system's limits if privileged, otherwise up to them.
fn enlarge_buffers(socket: &Socket) {
    if setsockopt(socket, sockopt::SndBufForce, &BUFFER_BYTES).is_err() {
        let _ = socket.set_send_buffer_size(BUFFER_BYTES);
    }
    if setsockopt(socket, sockopt::RcvBufForce, &BUFFER_BYTES).is_err() {
        let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
    }
}

#[cfg(test)]
mod tests;
