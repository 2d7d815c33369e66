//! Bytes that the tunnel adds to an inner packet, from the outside in: IP and UDP headers,
//! the security layer, and GRE with key and sequence number.

/// IPv4 header without options, and UDP header, in bytes.
const IPV4_UDP_BYTES: u32 = 20 + 8;
/// IPv6 header without extension headers, and UDP header, in bytes.
const IPV6_UDP_BYTES: u32 = 40 + 8;
/// Headers around an IPv4 packet in a VXLAN tunnel over IPv4 (RFC 7348 §5), in bytes: IPv4, UDP,
/// VXLAN and the inner Ethernet header.
pub const VXLAN_BYTES: u32 = IPV4_UDP_BYTES + 8 + 14;
/// Security layer, in bytes: type, session and counter before a GRE packet, the tag after it.
pub const SECURITY_BYTES: u32 = 8 + 16;
/// GRE header with key (RFC 2890), in bytes.
pub const KEYED_BYTES: u32 = 4 + 4;
/// Sequence number field of GRE, in bytes.
pub const SEQUENCE_BYTES: u32 = 4;
/// GRE header with key and sequence number, in bytes.
pub const NUMBERED_BYTES: u32 = KEYED_BYTES + SEQUENCE_BYTES;

/// The headers of one tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    outer_bytes: u32,
    security_bytes: u32,
}

impl Overhead {
    /// The headers over IPv6 or IPv4, encrypted or not.
    pub fn new(outer_is_v6: bool, is_encrypted: bool) -> Overhead {
        Overhead {
            outer_bytes: if outer_is_v6 { IPV6_UDP_BYTES } else { IPV4_UDP_BYTES },
            security_bytes: if is_encrypted { SECURITY_BYTES } else { 0 },
        }
    }

    /// Around a UDP payload, in bytes: IP and UDP.
    pub fn around_datagram(self) -> u32 {
        self.outer_bytes
    }

    /// Around a GRE packet, in bytes: IP, UDP and security layer.
    pub fn around_gre(self) -> u32 {
        self.outer_bytes + self.security_bytes
    }

    /// Around an inner packet, in bytes.
    pub fn around_packet(self) -> u32 {
        self.around_gre() + NUMBERED_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::wire::gre::{Header, Payload};

    #[test]
    fn an_encrypted_packet_over_ipv4_has_64_bytes_around_it() {
        let encrypted = Overhead::new(false, true);
        assert_eq!((encrypted.around_datagram(), encrypted.around_gre(), encrypted.around_packet()), (28, 52, 64));
        assert_eq!(Overhead::new(true, false).around_packet(), 48 + 12);
    }

    #[test]
    fn gre_headers_are_as_long_as_written() {
        let bytes =
            |sequence| Header { payload: Payload::Ipv4, key: Some(1), sequence, checksum: false }.bytes() as u32;
        assert_eq!((bytes(None), bytes(Some(1))), (KEYED_BYTES, NUMBERED_BYTES));
    }
}
