//! Ancillary data and options of the tunnel's sockets for which nix has no
//! types.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use libc::c_int;
use socket2::Socket;

/// Room for two messages of an integer and two of an address, and some more.
const CONTROL_BYTES: usize = 160;
/// A machine word, to which messages are padded.
const WORD: usize = size_of::<usize>();
/// The fields of `struct cmsghdr`: length (a machine word), level and kind.
const HEAD: usize = WORD + 8;

/// Ancillary data of one message, aligned as the kernel requires.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; CONTROL_BYTES],
    len: usize,
}

impl Control {
    /// Room for the kernel's data.
    pub(super) const EMPTY: Control = Control { bytes: [0; CONTROL_BYTES], len: 0 };

    /// Data for sending a message: DSCP and ECN, the segment length, and the
    /// local address to send from.
    pub(super) fn of(v4: bool, tos: u8, segment_bytes: Option<u16>, from: Option<IpAddr>) -> Control {
        let mut control = Control::EMPTY;
        let (level, kind) = if v4 { (libc::IPPROTO_IP, libc::IP_TOS) } else { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) };
        control.push(level, kind, &c_int::from(tos).to_ne_bytes());
        if let Some(segment) = segment_bytes {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        match from {
            // struct in_pktinfo: interface, local address, and one that is not read.
            Some(IpAddr::V4(from)) if v4 => {
                let mut value = [0; 12];
                value[4..8].copy_from_slice(&from.octets());
                control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &value);
            }
            // struct in6_pktinfo: local address, interface.
            Some(IpAddr::V6(from)) if !v4 => {
                let mut value = [0; 20];
                value[..16].copy_from_slice(&from.octets());
                control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &value);
            }
            _ => {}
        }
        control
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The whole buffer, to be written by the kernel.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.len = 0;
        &mut self.bytes
    }

    /// Records how much the kernel has written.
    pub(super) fn written(&mut self, bytes: usize) {
        self.len = bytes.min(CONTROL_BYTES);
    }

    /// Appends a message. All that is pushed fits.
    fn push(&mut self, level: c_int, kind: c_int, value: &[u8]) {
        let all = HEAD + value.len();
        let Some(place) = self.bytes.get_mut(self.len..self.len + all.next_multiple_of(WORD)) else { return };
        place[..WORD].copy_from_slice(&all.to_ne_bytes());
        place[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        place[WORD + 4..HEAD].copy_from_slice(&kind.to_ne_bytes());
        place[HEAD..all].copy_from_slice(value);
        self.len += place.len();
    }

    /// Data of a received message: DSCP and ECN, the length of each datagram if the kernel
    /// coalesced several, and the local address that received it.
    pub(super) fn read(&self) -> (u8, Option<usize>, Option<IpAddr>) {
        let (mut tos, mut segment, mut at) = (0, None, None);
        let mut rest = self.bytes();
        while let Some((head, _)) = rest.split_at_checked(HEAD) {
            let number = |at: usize| c_int::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let length = head.first_chunk().map_or(0, |length| usize::from_ne_bytes(*length));
            let Some(value) = rest.get(HEAD..length) else { break };
            match (number(WORD), number(WORD + 4)) {
                // IP_TOS is a byte, the others are integers.
                (libc::IPPROTO_IP, libc::IP_TOS) => tos = value.first().copied().unwrap_or(0),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => tos = integer(value).unwrap_or(0) as u8,
                (libc::SOL_UDP, libc::UDP_GRO) => segment = integer(value).and_then(|size| usize::try_from(size).ok()),
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let address = value.get(8..12).and_then(|address| <[u8; 4]>::try_from(address).ok());
                    at = address.map(|address| Ipv4Addr::from(address).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    at = value.first_chunk::<16>().map(|address| IpAddr::V6(Ipv6Addr::from(*address)).to_canonical());
                }
                _ => {}
            }
            rest = rest.get(length.next_multiple_of(WORD)..).unwrap_or_default();
        }
        (tos, segment, at)
    }
}

fn integer(value: &[u8]) -> Option<c_int> {
    value.first_chunk().map(|value| c_int::from_ne_bytes(*value))
}

/// An option of every socket of the tunnel.
pub(super) struct SocketOption {
    level: c_int,
    name: c_int,
    value: c_int,
    /// For IPv6 sockets only.
    v6_only: bool,
}

/// Coalesce received datagrams, and report their DSCP, ECN and local address.
pub(super) const OPTIONS: [SocketOption; 5] = [
    option(libc::IPPROTO_IP, libc::IP_RECVTOS, 1, false),
    option(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1, true),
    option(libc::IPPROTO_IP, libc::IP_PKTINFO, 1, false),
    option(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1, true),
    option(libc::SOL_UDP, libc::UDP_GRO, 1, false),
];

/// Never fragment (RFC 8900: fragments are lost), whatever ICMP reports of the path MTU.
pub(super) const DONT_FRAGMENT: [SocketOption; 2] = [
    option(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE, false),
    option(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE, true),
];

/// Without DF. Over IPv6, where routers do not fragment, the kernel does, by ICMP messages: forged ones
/// only cause fragments of 1280 bytes.
pub(super) const MAY_FRAGMENT: [SocketOption; 2] = [
    option(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT, false),
    option(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_WANT, true),
];

/// The kernel fragments by ICMP messages; DF is set on datagrams that fit.
pub(super) const TRUST_ICMP_MTU: [SocketOption; 2] = [
    option(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_WANT, false),
    option(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_WANT, true),
];

const fn option(level: c_int, name: c_int, value: c_int, v6_only: bool) -> SocketOption {
    SocketOption { level, name, value, v6_only }
}

/// Sets options. Kernels before 5.0 have no UDP_GRO; then datagrams are received one by one.
pub(super) fn set(options: &[SocketOption], socket: &Socket, v6: bool) -> io::Result<()> {
    for SocketOption { level, name, value, .. } in options.iter().filter(|option| v6 || !option.v6_only) {
        let (value, bytes) = (&raw const *value, size_of::<c_int>() as u32);
        // SAFETY: the value is an integer that outlives the call.
        let done = unsafe { libc::setsockopt(socket.as_raw_fd(), *level, *name, value.cast(), bytes) };
        if done != 0 && *name != libc::UDP_GRO {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
