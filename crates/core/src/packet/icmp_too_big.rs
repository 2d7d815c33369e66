//! ICMP messages for packets that are too big for the tunnel.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksum::Sum;
use super::ip::{Fragment, ICMP, ICMPV6, IpView};

/// RFC 1812, section 4.3.2.3: maximum length of the packet with the ICMP message, in bytes.
const V4_MAX: usize = 576;
/// RFC 4443, section 2.4 (c): the same for ICMPv6.
const V6_MAX: usize = 1280;

/// "Fragmentation needed" (RFC 1191) or "packet too big" (RFC 4443, section
/// 3.2) for a packet longer than `mtu` bytes, from `our_address`. `None` where
/// none may be sent: the packet fits or may be fragmented, is a later fragment, an ICMP
/// error, or its source is no single host; or our address is of the other
/// family. The caller must limit the rate.
pub fn too_big(packet: &IpView<impl AsRef<[u8]>>, mtu: u16, our_address: IpAddr) -> Option<Vec<u8>> {
    // IPv6 hosts cannot go below its minimum MTU (RFC 8200, section 5).
    let mtu = if packet.is_v6() { mtu.max(V6_MAX as u16) } else { mtu };
    let too_long = packet.packet().len() > usize::from(mtu) && packet.must_stay_whole();
    if !too_long || packet.fragment() == Fragment::Later || is_error(packet) {
        return None;
    }
    match (our_address, packet.source(), packet.destination()) {
        (IpAddr::V4(ours), IpAddr::V4(to), IpAddr::V4(original)) => {
            (is_single_host(to) && !original.is_multicast() && !original.is_broadcast())
                .then(|| message_v4(packet.packet(), mtu, ours, to))
        }
        // Multicast packets may be answered (RFC 4443, section 2.4 (e.3)).
        (IpAddr::V6(ours), IpAddr::V6(to), IpAddr::V6(_)) => {
            (!to.is_unspecified() && !to.is_multicast()).then(|| message_v6(packet.packet(), mtu, ours, to))
        }
        _ => None,
    }
}

/// RFC 1122, section 3.2.2: whether an address identifies a single host.
fn is_single_host(source: Ipv4Addr) -> bool {
    let group = source.is_unspecified() || source.is_loopback() || source.is_multicast();
    !group && source.octets()[0] != 0 && source.octets()[0] < 240
}

/// An unreadable message counts as an error.
fn is_error(packet: &IpView<impl AsRef<[u8]>>) -> bool {
    let kind = packet.payload().first().copied();
    match (packet.is_v6(), packet.protocol()) {
        // All but queries and replies (RFC 1122, section 3.2.2).
        (false, ICMP) => !matches!(kind, Some(0 | 8 | 9 | 10 | 13..=18 | 42 | 43)),
        // Types below 128 are errors; 137 is a redirect (RFC 4443, section 2.4 (e)).
        (true, ICMPV6) => kind.is_none_or(|kind| kind < 128 || kind == 137),
        _ => false,
    }
}

fn message_v4(packet: &[u8], mtu: u16, from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let quoted = &packet[..packet.len().min(V4_MAX - 28)];
    let total = (28 + quoted.len()) as u16;
    let mut message = Vec::with_capacity(usize::from(total));
    // Precedence 6 (RFC 1812, section 4.3.2.5); DF is set, so it needs no identification (RFC 6864).
    message.extend_from_slice(&[0x45, 0xc0]);
    message.extend_from_slice(&total.to_be_bytes());
    message.extend_from_slice(&[0, 0, 0x40, 0, 64, ICMP, 0, 0]);
    message.extend_from_slice(&from.octets());
    message.extend_from_slice(&to.octets());
    message.extend_from_slice(&[3, 4, 0, 0, 0, 0]);
    message.extend_from_slice(&mtu.to_be_bytes());
    message.extend_from_slice(quoted);
    let (ip, icmp) = message.split_at_mut(20);
    let (of_ip, of_icmp) = (Sum::default().with(ip).checksum(), Sum::default().with(icmp).checksum());
    ip[10..12].copy_from_slice(&of_ip.to_be_bytes());
    icmp[2..4].copy_from_slice(&of_icmp.to_be_bytes());
    message
}

fn message_v6(packet: &[u8], mtu: u16, from: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
    let quoted = &packet[..packet.len().min(V6_MAX - 48)];
    let length = (8 + quoted.len()) as u16;
    let mut message = Vec::with_capacity(40 + usize::from(length));
    message.extend_from_slice(&[0x60, 0, 0, 0]);
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(&[ICMPV6, 64]);
    message.extend_from_slice(&from.octets());
    message.extend_from_slice(&to.octets());
    message.extend_from_slice(&[2, 0, 0, 0]);
    message.extend_from_slice(&u32::from(mtu).to_be_bytes());
    message.extend_from_slice(quoted);
    let (ip, icmp) = message.split_at_mut(40);
    let sum = Sum::default().with_pseudo_header(&ip[8..40], ICMPV6, icmp.len()).with(icmp);
    icmp[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    message
}
