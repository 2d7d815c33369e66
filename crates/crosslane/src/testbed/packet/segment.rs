//! One TCP segment with its MPTCP options (RFC 8684 §3).

use std::net::SocketAddr;

use crosslane_sim::transport::segment::MptcpOptions;
use etherparse::{IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice, TcpHeaderSlice};

const SYN: u8 = 2;
const ACK: u8 = 16;
const KIND_MPTCP: u8 = 30;

/// The fields of a TCP segment that the record needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Source.
    pub source: SocketAddr,
    /// Destination.
    pub destination: SocketAddr,
    /// Length of the payload, in bytes.
    pub payload_bytes: u16,
    /// Sequence number as on the wire.
    pub seq: u32,
    /// Acknowledgement number as on the wire.
    pub ack: u32,
    /// Flags as on the wire.
    pub flags: u8,
    /// MPTCP options in it.
    pub mptcp: MptcpOptions,
    /// Keys of the sender and of the receiver, from MP_CAPABLE.
    pub keys: [Option<u64>; 2],
    /// The receiver's token, from MP_JOIN.
    pub join_token: Option<u32>,
    /// Mapping of the payload to data sequence numbers.
    pub mapping: Option<Mapping>,
    /// Acknowledgement on the connection level.
    pub data_ack: Option<Number>,
}

/// Maps `bytes` bytes of the subflow from `subflow_seq` on to the data from
/// `dsn` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Data sequence number of the first byte.
    pub dsn: Number,
    /// Its sequence number, relative to the subflow's initial one.
    pub subflow_seq: u32,
    /// Length; an infinite mapping (fallback) has `u32::MAX`.
    pub bytes: u32,
}

/// A data sequence number as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// The connection's first byte (MP_CAPABLE with data contains no number).
    First,
    /// All 64 bits.
    Wide(u64),
    /// The last 32 bits.
    Narrow(u32),
}

impl Number {
    fn new(wide: bool, number: u64) -> Number {
        if wide { Number::Wide(number) } else { Number::Narrow(number as u32) }
    }
}

/// Length of the packet according to its IP header; 0 without one.
pub fn ip_bytes(head: &[u8]) -> u16 {
    match head.first().map(|byte| byte >> 4) {
        Some(4) => Ipv4HeaderSlice::from_slice(head).map_or(0, |ip| ip.total_len()),
        Some(6) => Ipv6HeaderSlice::from_slice(head).map_or(0, |ip| ip.payload_length().saturating_add(40)),
        _ => 0,
    }
}

/// Length of a UDP payload according to the IP header; `None` if the packet is
/// not UDP or not a first fragment.
pub fn datagram_bytes(head: &[u8]) -> Option<u16> {
    const UDP_HEADER_BYTES: usize = 8;
    let (_, _, header_bytes) = addresses(head, IpNumber::UDP)?;
    Some(ip_bytes(head).saturating_sub((header_bytes + UDP_HEADER_BYTES) as u16))
}

/// Whether it is an ICMP echo request (RFC 792, RFC 4443) or the answer to one.
pub fn is_echo(head: &[u8]) -> bool {
    let is_of = |protocol, types: [u8; 2]| {
        let kind = addresses(head, protocol).and_then(|(_, _, header_bytes)| head.get(header_bytes));
        kind.is_some_and(|kind| types.contains(kind))
    };
    is_of(IpNumber::ICMP, [8, 0]) || is_of(IpNumber::IPV6_ICMP, [128, 129])
}

impl Segment {
    /// Parses the first bytes of a packet; `None` if it is not TCP, not a first
    /// fragment, or truncated before the end of the TCP header.
    pub fn parse(head: &[u8]) -> Option<Segment> {
        let (source, destination, header_bytes) = addresses(head, IpNumber::TCP)?;
        let tcp = TcpHeaderSlice::from_slice(head.get(header_bytes..)?).ok()?;
        let headers = u16::try_from(header_bytes + tcp.slice().len()).ok()?;
        let mut segment = Segment {
            source: SocketAddr::new(source, tcp.source_port()),
            destination: SocketAddr::new(destination, tcp.destination_port()),
            payload_bytes: ip_bytes(head).saturating_sub(headers),
            seq: tcp.sequence_number(),
            ack: tcp.acknowledgment_number(),
            flags: tcp.slice()[13],
            mptcp: MptcpOptions::default(),
            keys: [None, None],
            join_token: None,
            mapping: None,
            data_ack: None,
        };
        segment.read_options(tcp.options());
        Some(segment)
    }

    /// True for SYN, with or without ACK.
    pub fn is_syn(&self) -> bool {
        self.flags & SYN != 0
    }

    /// True if the ACK flag is set.
    pub fn acks(&self) -> bool {
        self.flags & ACK != 0
    }

    /// True if it carries MP_CAPABLE.
    pub fn is_capable(&self) -> bool {
        self.mptcp.contains(MptcpOptions::CAPABLE)
    }

    fn read_options(&mut self, mut options: &[u8]) {
        while let Some((&kind, rest)) = options.split_first() {
            let length = match (kind, rest.first()) {
                (0, _) => return,
                (1, _) => 1,
                (_, Some(&length)) if length >= 2 => usize::from(length),
                _ => return,
            };
            let Some(option) = options.get(..length) else { return };
            if kind == KIND_MPTCP {
                self.read_mptcp(option);
            }
            options = &options[length..];
        }
    }

    /// `option` begins with kind and length.
    fn read_mptcp(&mut self, option: &[u8]) {
        let Some(subtype) = option.get(2).map(|byte| byte >> 4) else { return };
        let kind = MptcpOptions::of_subtype(subtype);
        self.mptcp.insert(kind);
        match kind {
            MptcpOptions::CAPABLE => self.read_capable(option),
            MptcpOptions::JOIN if self.is_syn() && !self.acks() => {
                self.join_token = number(option, 4, 4).map(|token| token as u32);
            }
            MptcpOptions::DSS => {
                let _ = self.read_dss(option);
            }
            _ => {}
        }
    }

    /// §3.1: the option's length identifies the packet of the handshake.
    fn read_capable(&mut self, option: &[u8]) {
        self.keys = [number(option, 4, 8), number(option, 12, 8)];
        self.mapping =
            number(option, 20, 2).map(|bytes| Mapping { dsn: Number::First, subflow_seq: 1, bytes: bytes as u32 });
    }

    /// §3.3; `None` if the option is shorter than its flags say.
    fn read_dss(&mut self, option: &[u8]) -> Option<()> {
        let flags = *option.get(3)?;
        let mut at = 4;
        let mut take = |bytes: usize| {
            at += bytes;
            number(option, at - bytes, bytes)
        };
        let sized = |wide: bool| if wide { 8 } else { 4 };
        if flags & 1 != 0 {
            let wide = flags & 2 != 0;
            self.data_ack = Some(Number::new(wide, take(sized(wide))?));
        }
        if flags & 4 != 0 {
            let wide = flags & 8 != 0;
            let dsn = Number::new(wide, take(sized(wide))?);
            let subflow_seq = take(4)? as u32;
            let bytes = match take(2)? as u32 {
                0 => u32::MAX,
                bytes => bytes,
            };
            self.mapping = Some(Mapping { dsn, subflow_seq, bytes });
        }
        Some(())
    }
}

/// Source, destination and length of the IP header, if `protocol` follows it.
fn addresses(head: &[u8], protocol: IpNumber) -> Option<(std::net::IpAddr, std::net::IpAddr, usize)> {
    match head.first()? >> 4 {
        4 => {
            let ip = Ipv4HeaderSlice::from_slice(head).ok()?;
            let whole = ip.fragments_offset().value() == 0 && ip.protocol() == protocol;
            whole.then(|| (ip.source_addr().into(), ip.destination_addr().into(), ip.slice().len()))
        }
        6 => {
            let ip = Ipv6HeaderSlice::from_slice(head).ok()?;
            let plain = ip.next_header() == protocol;
            plain.then(|| (ip.source_addr().into(), ip.destination_addr().into(), ip.slice().len()))
        }
        _ => None,
    }
}

fn number(bytes: &[u8], from: usize, length: usize) -> Option<u64> {
    let field = bytes.get(from..from + length)?;
    Some(field.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}
