//! Packets for unit tests, built and checked by etherparse.

use alloc::vec;
use alloc::vec::Vec;

use etherparse::{PacketBuilder, PacketBuilderStep, SlicedPacket, TransportSlice, ip_number};

use super::checksum::Sum;
use super::gso::{HEADER_BYTES, Header};

/// Fields of a TCP segment.
#[derive(Clone, Debug)]
pub struct Tcp {
    pub v6: bool,
    pub port: u16,
    pub sequence: u32,
    pub flags: u8,
    pub tos: u8,
    /// As in the header, a multiple of four bytes.
    pub options: Vec<u8>,
    pub id: u16,
    pub dont_fragment: bool,
}

impl Default for Tcp {
    fn default() -> Tcp {
        // Timestamps, as sent by Linux.
        let options = vec![1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
        Tcp { v6: false, port: 443, sequence: 1000, flags: 0x10, tos: 0, options, id: 7, dont_fragment: true }
    }
}

impl Tcp {
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let mut header = etherparse::TcpHeader::new(5000, self.port, self.sequence, 1234);
        header.set_options_raw(&self.options).unwrap();
        header.acknowledgment_number = 99;
        let step = ip(self.v6).tcp_header(header);
        let mut bytes = vec![0; step.size(payload.len())];
        step.write_to_slice(&mut bytes, payload).unwrap();
        self.finished(bytes)
    }

    /// May be longer than an IPv4 fragment, but fits its length field.
    pub fn frame(&self, payload: &[u8], segment: u16) -> Vec<u8> {
        let packet = self.packet(payload);
        let transport = if self.v6 { 40 } else { 20 };
        let header = Header {
            flags: 1,
            gso_type: if self.v6 { 4 } else { 1 },
            headers: (packet.len() - payload.len()) as u16,
            segment,
            checksum_start: transport,
            checksum_offset: 16,
        };
        [&header.emit()[..], &packet].concat()
    }

    fn finished(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        let transport = if self.v6 { 40 } else { 20 };
        bytes[transport + 13] = self.flags;
        bytes[transport + 16..transport + 18].fill(0);
        set_ip(&mut bytes, self.tos, self.id, self.dont_fragment);
        let addresses = if self.v6 { &bytes[8..40] } else { &bytes[12..20] };
        let covered = &bytes[transport..];
        let checksum = Sum::default().with_pseudo_header(addresses, 6, covered.len()).with(covered).checksum();
        bytes[transport + 16..transport + 18].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

/// A UDP datagram.
pub fn udp(v6: bool, port: u16, payload: &[u8]) -> Vec<u8> {
    let step = ip(v6).udp(5000, port);
    let mut bytes = vec![0; step.size(payload.len())];
    step.write_to_slice(&mut bytes, payload).unwrap();
    bytes
}

/// A UDP GSO packet.
pub fn udp_frame(v6: bool, payload: &[u8], segment: u16) -> Vec<u8> {
    let (start, gso_type) = if v6 { (40, 5) } else { (20, 5) };
    let header = Header { flags: 1, gso_type, headers: start + 8, segment, checksum_start: start, checksum_offset: 6 };
    [&header.emit()[..], &udp(v6, 53, payload)].concat()
}

fn ip(v6: bool) -> PacketBuilderStep<etherparse::IpHeaders> {
    if v6 {
        let (mut from, mut to) = ([0; 16], [0; 16]);
        (from[0], from[15], to[0], to[15]) = (0xfd, 1, 0xfd, 2);
        PacketBuilder::ipv6(from, to, 64)
    } else {
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
    }
}

/// Sets the fields that the builder lacks.
pub fn set_ip(bytes: &mut [u8], tos: u8, id: u16, dont_fragment: bool) {
    if bytes[0] >> 4 == 6 {
        bytes[0] = 0x60 | tos >> 4;
        bytes[1] = bytes[1] & 0xf | tos << 4;
        return;
    }
    bytes[1] = tos;
    bytes[4..6].copy_from_slice(&id.to_be_bytes());
    bytes[6..8].copy_from_slice(&if dont_fragment { [0x40, 0] } else { [0, 0] });
    sum_ip(bytes);
}

/// Recomputes the checksum of the IPv4 header.
pub fn sum_ip(bytes: &mut [u8]) {
    let len = usize::from(bytes[0] & 0xf) * 4;
    bytes[10..12].fill(0);
    let checksum = Sum::default().with(&bytes[..len]).checksum();
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Asserts that everything etherparse can check is correct.
pub fn assert_valid(packet: &[u8]) {
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    let net = sliced.net.clone().unwrap();
    if let Some(v4) = net.ipv4_ref() {
        let header = v4.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum(), "IPv4 header");
        assert_eq!(usize::from(header.total_len), packet.len(), "IPv4 length");
    }
    if let Some(v6) = net.ipv6_ref() {
        assert_eq!(usize::from(v6.header().payload_length()) + 40, packet.len(), "IPv6 length");
    }
    let addresses = |packet: &[u8]| {
        if packet[0] >> 4 == 4 { packet[12..20].to_vec() } else { packet[8..40].to_vec() }
    };
    let (both, v4) = (addresses(packet), packet[0] >> 4 == 4);
    let half = both.len() / 2;
    let (from, to) = both.split_at(half);
    match sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let expected = if v4 {
                tcp.calc_checksum_ipv4(from.try_into().unwrap(), to.try_into().unwrap())
            } else {
                tcp.calc_checksum_ipv6(from.try_into().unwrap(), to.try_into().unwrap())
            };
            assert_eq!(Ok(tcp.checksum()), expected, "TCP");
        }
        Some(TransportSlice::Udp(udp)) => {
            assert_eq!(usize::from(udp.length()), udp.payload().len() + 8, "UDP length");
            let header = udp.to_header();
            let expected = if v4 {
                header.calc_checksum_ipv4_raw(from.try_into().unwrap(), to.try_into().unwrap(), udp.payload())
            } else {
                header.calc_checksum_ipv6_raw(from.try_into().unwrap(), to.try_into().unwrap(), udp.payload())
            };
            assert_eq!(Ok(udp.checksum()), expected, "UDP");
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            assert_eq!(Sum::default().with(icmp.slice()).checksum(), 0, "ICMP");
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            let sum = Sum::default().with_pseudo_header(&both, ip_number::IPV6_ICMP.0, icmp.slice().len());
            assert_eq!(sum.with(icmp.slice()).checksum(), 0, "ICMPv6");
        }
        _ => {}
    }
}

/// The contents of one write of a coalescer: header and packet.
pub fn frame(parts: &[&[u8]]) -> Vec<u8> {
    assert_eq!(parts[0].len(), HEADER_BYTES);
    parts.iter().flat_map(|part| part.to_vec()).collect()
}
