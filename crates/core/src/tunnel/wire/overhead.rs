//! Bytes that the tunnel adds to an inner packet, from the outside in: IP and UDP headers,
//! the security layer, and GRE with key and sequence number, compressed where it is encrypted.

/// IPv4 header without options, and UDP header, in bytes.
const IPV4_UDP_BYTES: u32 = 20 + 8;
/// IPv6 header without extension headers, and UDP header, in bytes.
const IPV6_UDP_BYTES: u32 = 40 + 8;
/// Headers around an IPv4 packet in a VXLAN tunnel over IPv4 (RFC 7348 §5), in bytes: IPv4, UDP,
/// VXLAN and the inner Ethernet header.
pub const VXLAN_BYTES: u32 = IPV4_UDP_BYTES + 8 + 14;
/// Security layer, in bytes: type, session and counter before a GRE packet, the tag after it.
pub const SECURITY_BYTES: u32 = 8 + 16;
/// GRE header with key and sequence number (RFC 2890), in bytes, and the latter alone.
const NUMBERED_BYTES: u32 = 4 + 4 + NUMBER_BYTES;
const NUMBER_BYTES: u32 = 4;
/// The same in an encrypted message: the key, and the sequence number.
pub(super) const COMPRESSED_BYTES: u32 = 4;
pub(super) const COMPRESSED_NUMBER_BYTES: u32 = 3;

/// The headers of one tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    outer_bytes: u32,
    is_encrypted: bool,
}

impl Overhead {
    /// The headers over IPv6 or IPv4, encrypted or not.
    pub const fn new(outer_is_v6: bool, is_encrypted: bool) -> Overhead {
        Overhead { outer_bytes: if outer_is_v6 { IPV6_UDP_BYTES } else { IPV4_UDP_BYTES }, is_encrypted }
    }

    /// Around a UDP payload, in bytes: IP and UDP.
    pub const fn around_datagram(self) -> u32 {
        self.outer_bytes
    }

    /// Around a packet, or a numbered message, in bytes: IP, UDP, security layer and GRE.
    pub const fn around_packet(self) -> u32 {
        let gre_bytes = if self.is_encrypted { COMPRESSED_BYTES + COMPRESSED_NUMBER_BYTES } else { NUMBERED_BYTES };
        let security_bytes = if self.is_encrypted { SECURITY_BYTES } else { 0 };
        self.outer_bytes + security_bytes + gre_bytes
    }

    /// Around a message without a sequence number, in bytes.
    pub const fn around_unnumbered(self) -> u32 {
        self.around_packet() - if self.is_encrypted { COMPRESSED_NUMBER_BYTES } else { NUMBER_BYTES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::wire::gre::{Header, Payload};

    #[test]
    fn an_encrypted_packet_over_ipv4_has_59_bytes_around_it() {
        let encrypted = Overhead::new(false, true);
        let around = (encrypted.around_datagram(), encrypted.around_unnumbered(), encrypted.around_packet());
        assert_eq!(around, (28, 56, 59));
        assert_eq!(Overhead::new(true, false).around_packet(), 48 + 12);
    }

    #[test]
    fn gre_headers_are_as_long_as_written() {
        let bytes =
            |sequence| Header { payload: Payload::Ipv4, key: Some(1), sequence, checksum: false }.bytes() as u32;
        assert_eq!((bytes(None), bytes(Some(1))), (NUMBERED_BYTES - NUMBER_BYTES, NUMBERED_BYTES));
    }
}
