//! Fields of an IP packet.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;
const DCCP: u8 = 33;

/// The flags (RFC 9293, section 3.1).
const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
/// Port of HTTP/3.
const QUIC: [u8; 2] = 443u16.to_be_bytes();
/// Longest UDP datagram that counts as a mere QUIC acknowledgement.
const MAX_QUIC_ACK_BYTES: usize = 200;

/// Maximum number of extension headers parsed in one IPv6 packet; one of each kind and
/// a second of destination options make 6 (RFC 8200, section 4.1).
const EXTENSIONS_MAX: usize = 8;

/// A checked view of an IP packet. It is made once, where the packet enters; whatever reads
/// or changes the packet after that takes the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpView<B> {
    bytes: B,
    pub(crate) layout: Layout,
}

/// What parsing finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Length of the packet, in bytes.
    pub(super) len: usize,
    pub(super) protocol: u8,
    /// Offset of the IP payload, after options and extension headers.
    pub(crate) payload: usize,
    pub(super) fragment: Fragment,
}

/// Which part of a datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// All of it.
    Whole,
    /// The first part, with the header of the protocol above.
    First,
    /// Another one.
    Later,
}

impl Layout {
    fn parse_v4(bytes: &[u8]) -> Option<Layout> {
        let header: &[u8; 20] = bytes.first_chunk()?;
        let payload = usize::from(header[0] & 0xf) * 4;
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        (payload >= 20 && payload <= len && len <= bytes.len()).then_some(())?;
        let parts = u16::from_be_bytes([header[6], header[7]]);
        let fragment = match (parts & 0x1fff, parts & 0x2000) {
            (0, 0) => Fragment::Whole,
            (0, _) => Fragment::First,
            _ => Fragment::Later,
        };
        Some(Layout { len, protocol: header[9], payload, fragment })
    }

    fn parse_v6(bytes: &[u8]) -> Option<Layout> {
        let header: &[u8; 40] = bytes.first_chunk()?;
        let packet = bytes.get(..40 + usize::from(u16::from_be_bytes([header[4], header[5]])))?;
        let (mut protocol, mut payload, mut fragment) = (header[6], 40, Fragment::Whole);
        for _ in 0..EXTENSIONS_MAX {
            // RFC 8200, section 4: hop-by-hop, routing, destination options;
            // mobility, HIP and shim6 have the same form. After a later
            // fragment's header there is no other header.
            let len = match (protocol, packet.get(payload..)) {
                _ if fragment == Fragment::Later => break,
                (0 | 43 | 60 | 135 | 139 | 140, Some([_, len, ..])) => 8 + usize::from(*len) * 8,
                (44, Some([_, _, offset, flags, ..])) => {
                    fragment = match (u16::from_be_bytes([*offset, *flags]) & 0xfff8, flags & 1) {
                        (0, 0) => Fragment::Whole,
                        (0, _) => Fragment::First,
                        _ => Fragment::Later,
                    };
                    8
                }
                // Authentication (RFC 4302): in words of four bytes.
                (51, Some([_, len, ..])) => 8 + usize::from(*len) * 4,
                _ => break,
            };
            let next = *packet.get(payload)?;
            payload += len;
            (payload <= packet.len()).then_some(())?;
            protocol = next;
        }
        Some(Layout { len: packet.len(), protocol, payload, fragment })
    }
}

impl<B: AsRef<[u8]>> IpView<B> {
    /// The packet that begins with `bytes` and ends as its header says; `None`
    /// unless they are a whole IPv4 or IPv6 packet.
    pub fn parse(bytes: B) -> Option<IpView<B>> {
        let layout = match bytes.as_ref() {
            packet @ [0x40..=0x4f, ..] => Layout::parse_v4(packet),
            packet @ [0x60..=0x6f, ..] => Layout::parse_v6(packet),
            _ => None,
        };
        Some(IpView { layout: layout?, bytes })
    }

    /// A view of bytes that are laid out so.
    pub(super) fn of(bytes: B, layout: Layout) -> IpView<B> {
        IpView { bytes, layout }
    }

    /// The same view, over borrowed bytes.
    pub fn borrowed(&self) -> IpView<&[u8]> {
        IpView::of(self.packet(), self.layout)
    }

    /// The whole packet, without bytes after its end.
    pub fn packet(&self) -> &[u8] {
        &self.bytes.as_ref()[..self.layout.len]
    }

    /// Whether it is IPv6.
    pub fn is_v6(&self) -> bool {
        self.packet()[0] >> 4 == 6
    }

    /// The protocol above IP (that of the last extension header parsed).
    pub fn protocol(&self) -> u8 {
        self.layout.protocol
    }

    /// The payload of IP, without options and extension headers.
    pub fn payload(&self) -> &[u8] {
        &self.packet()[self.layout.payload..]
    }

    /// Which part of a datagram it is.
    pub fn fragment(&self) -> Fragment {
        self.layout.fragment
    }

    /// IPv4: routers must not fragment it (DF). IPv6: always true.
    pub fn must_stay_whole(&self) -> bool {
        self.is_v6() || self.packet()[6] & 0x40 != 0
    }

    /// Source address.
    pub fn source(&self) -> IpAddr {
        self.address(0)
    }

    /// Destination address.
    pub fn destination(&self) -> IpAddr {
        self.address(1)
    }

    fn address(&self, which: usize) -> IpAddr {
        let bytes = self.addresses();
        let bytes = &bytes[which * bytes.len() / 2..];
        match (self.is_v6(), bytes.first_chunk::<16>(), bytes.first_chunk::<4>()) {
            (true, Some(bytes), _) => Ipv6Addr::from(*bytes).into(),
            (_, _, Some(bytes)) => Ipv4Addr::from(*bytes).into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        }
    }

    /// Both addresses, as in the header.
    pub(super) fn addresses(&self) -> &[u8] {
        if self.is_v6() { &self.packet()[8..40] } else { &self.packet()[12..20] }
    }

    /// DSCP (upper 6 bits) and ECN (lower 2), which the outer packet gets, too (RFC 2983,
    /// uniform model; RFC 6040, section 4.1, normal mode).
    pub fn tos(&self) -> u8 {
        let packet = self.packet();
        if self.is_v6() { packet[0] << 4 | packet[1] >> 4 } else { packet[1] }
    }

    /// Whether it belongs to a bulk flow: data and SYN of TCP, and
    /// QUIC by its port, unless marked for another service than best effort (RFC
    /// 2474), as OpenSSH marks interactive traffic. A pure acknowledgement does not.
    pub fn is_bulk(&self) -> bool {
        if self.tos() >> 2 != 0 || self.layout.fragment != Fragment::Whole {
            return false;
        }
        let payload = self.payload();
        match (self.layout.protocol, payload.first_chunk::<14>()) {
            (TCP, Some(header)) => header[13] & SYN != 0 || payload.len() > usize::from(header[12] >> 4) * 4,
            (UDP, Some(header)) => header[..4].as_chunks().0.contains(&QUIC) && payload.len() > MAX_QUIC_ACK_BYTES,
            _ => false,
        }
    }

    /// Whether it is a pure acknowledgement of TCP: without data, and without a flag that must arrive in order.
    pub fn is_pure_ack(&self) -> bool {
        let payload = self.payload();
        self.layout.fragment == Fragment::Whole
            && self.layout.protocol == TCP
            && payload.first_chunk::<14>().is_some_and(|header| {
                payload.len() == usize::from(header[12] >> 4) * 4 && header[13] & (FIN | SYN | RST | ACK) == ACK
            })
    }

    /// The slot of its flow: a hash of addresses, protocol and ports, the same in
    /// every process. Fragments are hashed without ports, so that all parts of a
    /// datagram share a slot.
    pub fn flow_slot(&self) -> u8 {
        let has_ports = self.layout.fragment == Fragment::Whole
            && matches!(self.layout.protocol, TCP | UDP | SCTP | UDP_LITE | DCCP)
            && self.payload().len() >= 4;
        let ports = match self.payload().first_chunk() {
            Some(ports) if has_ports => u32::from_be_bytes(*ports),
            _ => 0,
        };
        // FNV-1a (draft-eastlake-fnv) over words instead of bytes; the highest byte, which
        // depends on all words, is taken after a last multiplication.
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let words = self.addresses().as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
        for word in words.chain([ports, u32::from(self.layout.protocol)]) {
            hash = (hash ^ u64::from(word)).wrapping_mul(PRIME);
        }
        ((hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }
}

impl<B: AsMut<[u8]>> IpView<B> {
    /// The packet, of which lengths, protocols and fragment offset must not be changed.
    pub(crate) fn packet_mut(&mut self) -> &mut [u8] {
        &mut self.bytes.as_mut()[..self.layout.len]
    }
}
