//! Packet changes by middleboxes: IPv4 and IPv6 (without extension headers), TCP with
//! options. Other packets are not changed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crosslane_core::packet::checksum::Sum;

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
/// Option kind of MPTCP (RFC 8684, section 3).
const OPTION_MPTCP: u8 = 30;

/// Source or destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// Offset of the TCP header; `None` if the packet is not TCP or is truncated.
fn tcp_at(packet: &[u8]) -> Option<usize> {
    let at = match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&TCP) => usize::from(packet[0] & 15) * 4,
        6 if packet.get(6) == Some(&TCP) => 40,
        _ => return None,
    };
    let offset = usize::from(packet.get(at + 12)? >> 4) * 4;
    (offset >= 20 && packet.len() >= at + offset).then_some(at)
}

/// The source or destination address.
pub fn address(packet: &[u8], side: Side) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            let at = if side == Side::Source { 12 } else { 16 };
            Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?).into())
        }
        6 => {
            let at = if side == Side::Source { 8 } else { 24 };
            Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?).into())
        }
        _ => None,
    }
}

/// The source or destination TCP port.
pub fn port(packet: &[u8], side: Side) -> Option<u16> {
    let at = tcp_at(packet)? + if side == Side::Source { 0 } else { 2 };
    Some(u16::from_be_bytes([packet[at], packet[at + 1]]))
}

/// Replaces the source or destination address (same family) and port of a TCP packet.
pub fn rewrite(packet: &mut [u8], side: Side, address: IpAddr, port: u16) {
    let Some(tcp) = tcp_at(packet) else { return };
    match address {
        IpAddr::V4(address) => {
            let at = if side == Side::Source { 12 } else { 16 };
            packet[at..at + 4].copy_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            let at = if side == Side::Source { 8 } else { 24 };
            packet[at..at + 16].copy_from_slice(&address.octets());
        }
    }
    let at = tcp + if side == Side::Source { 0 } else { 2 };
    packet[at..at + 2].copy_from_slice(&port.to_be_bytes());
    update_checksums(packet);
}

/// Replaces MPTCP options with NOPs, as middleboxes do.
pub fn strip(packet: &mut [u8]) {
    let Some(tcp) = tcp_at(packet) else { return };
    let end = tcp + usize::from(packet[tcp + 12] >> 4) * 4;
    let mut at = tcp + 20;
    let mut found = false;
    while at < end && packet[at] != OPTION_END {
        let length = match packet[at] {
            OPTION_NOP => 1,
            _ => packet.get(at + 1).map_or(0, |&length| usize::from(length)).max(1),
        };
        let upto = (at + length).min(end);
        if packet[at] == OPTION_MPTCP {
            packet[at..upto].fill(OPTION_NOP);
            found = true;
        }
        at = upto;
    }
    if found {
        update_checksums(packet);
    }
}

/// The reset that answers a segment (RFC 9293, section 3.5.2); `None` if the packet
/// is a reset or not TCP.
pub fn reset(packet: &[u8]) -> Option<Vec<u8>> {
    let tcp = tcp_at(packet)?;
    let (flags, offset) = (packet[tcp + 13], usize::from(packet[tcp + 12] >> 4) * 4);
    if flags & RST != 0 {
        return None;
    }
    let word = |at: usize| u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
    let length = (packet.len() - tcp - offset) as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    let mut header = [0_u8; 20];
    header[0..2].copy_from_slice(&packet[tcp + 2..tcp + 4]);
    header[2..4].copy_from_slice(&packet[tcp..tcp + 2]);
    if flags & ACK != 0 {
        header[4..8].copy_from_slice(&packet[tcp + 8..tcp + 12]);
        header[13] = RST;
    } else {
        header[8..12].copy_from_slice(&word(tcp + 4).wrapping_add(length).to_be_bytes());
        header[13] = RST | ACK;
    }
    header[12] = 5 << 4;
    answer(packet, TCP, &header)
}

/// ICMP, destination unreachable: administratively prohibited (RFC 1812,
/// section 5.2.7.1; RFC 4443, section 3.1). `None` if the packet is not TCP.
pub fn unreachable(packet: &[u8]) -> Option<Vec<u8>> {
    tcp_at(packet)?;
    let (protocol, kind, code) = if packet[0] >> 4 == 4 { (ICMP, 3, 13) } else { (ICMPV6, 1, 1) };
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    message.extend(&packet[..packet.len().min(100)]);
    answer(packet, protocol, &message)
}

/// A packet to the source of `packet`, with its destination as source address.
fn answer(packet: &[u8], protocol: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let (from, to) = (address(packet, Side::Destination)?, address(packet, Side::Source)?);
    let mut reply = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
            header[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
            header.extend(from.octets());
            header.extend(to.octets());
            header
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
            header[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
            header.extend(from.octets());
            header.extend(to.octets());
            header
        }
        _ => return None,
    };
    reply.extend(payload);
    update_checksums(&mut reply);
    Some(reply)
}

/// Writes the checksums of the IP header and of the payload.
fn update_checksums(packet: &mut [u8]) {
    let (at, protocol, addresses) = match packet[0] >> 4 {
        4 => (usize::from(packet[0] & 15) * 4, packet[9], 12..20),
        _ => (40, packet[6], 8..40),
    };
    if packet[0] >> 4 == 4 {
        packet[10..12].fill(0);
        let sum = Sum::default().with(&packet[..at]).checksum();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let place = at + if protocol == TCP { 16 } else { 2 };
    packet[place..place + 2].fill(0);
    let mut sum = Sum::default().with(&packet[at..]);
    if protocol != ICMP {
        sum = sum.with_pseudo_header(&packet[addresses], protocol, packet.len() - at);
    }
    packet[place..place + 2].copy_from_slice(&sum.checksum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SYN with MP_CAPABLE between NOPs and a window scale.
    fn syn(v6: bool) -> Vec<u8> {
        let mut tcp = vec![0x12, 0x34, 0x13, 0x89, 0, 0, 0, 9, 0, 0, 0, 0, 8 << 4, SYN, 0xff, 0xff, 0, 0, 0, 0];
        tcp.extend([1, OPTION_MPTCP, 4, 0, 0x81, 1, 3, 3, 7, 0, 0, 0]);
        tcp[20..32].copy_from_slice(&[1, OPTION_MPTCP, 4, 0, 1, 3, 3, 7, 0, 0, 0, 0]);
        let mut packet = if v6 {
            let mut header = vec![0x60, 0, 0, 0, 0, 32, TCP, 64];
            header.extend([0xfd; 16]);
            header.extend([0xfc; 16]);
            header
        } else {
            vec![0x45, 0, 0, 52, 0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 1, 0, 2, 10, 255, 0, 1]
        };
        packet.extend(tcp);
        update_checksums(&mut packet);
        packet
    }

    fn has_valid_checksums(packet: &[u8]) -> bool {
        let mut updated = packet.to_vec();
        update_checksums(&mut updated);
        updated == packet
    }

    #[test]
    fn only_mptcp_options_are_removed() {
        for v6 in [false, true] {
            let mut packet = syn(v6);
            let tcp = packet.len() - 32;
            strip(&mut packet);
            assert_eq!(&packet[tcp + 20..tcp + 28], [1, 1, 1, 1, 1, 3, 3, 7]);
            assert!(has_valid_checksums(&packet));
        }
    }

    #[test]
    fn an_address_and_port_are_rewritten_with_valid_checksums() {
        let mut packet = syn(false);
        rewrite(&mut packet, Side::Source, "10.101.0.1".parse().unwrap(), 20_000);
        assert_eq!(address(&packet, Side::Source), Some("10.101.0.1".parse().unwrap()));
        assert_eq!((port(&packet, Side::Source), port(&packet, Side::Destination)), (Some(20_000), Some(5001)));
        assert!(has_valid_checksums(&packet));
    }

    #[test]
    fn a_reset_is_sent_to_the_sender_and_never_answers_a_reset() {
        for v6 in [false, true] {
            let reply = reset(&syn(v6)).unwrap();
            assert_eq!(address(&reply, Side::Destination), address(&syn(v6), Side::Source));
            let tcp = reply.len() - 20;
            assert_eq!((reply[tcp + 13], &reply[tcp + 8..tcp + 12]), (RST | ACK, &[0, 0, 0, 10][..]));
            assert!(has_valid_checksums(&reply) && reset(&reply).is_none());
            assert!(has_valid_checksums(&unreachable(&syn(v6)).unwrap()));
        }
    }
}
