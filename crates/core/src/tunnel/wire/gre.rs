//! Generic Routing Encapsulation: RFC 2784 with the key and sequence number of RFC 2890, in a UDP datagram
//! as in RFC 8086.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |C| |K|S|     reserved    | ver |             protocol          |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |      checksum (if C)          |        reserved (if C)        |
//! |                            key (if K)                         |
//! |                      sequence number (if S)                   |
//! ```

use alloc::vec::Vec;

use crate::packet::checksum::Sum;

/// Length of the longest header, in bytes.
pub const MAX_HEADER_BYTES: usize = 16;

const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
/// Bits 1, 4 and 5: a receiver without RFC 1701 discards packets with one of them set (RFC 2784, section
/// 2.3).
const MUST_BE_ZERO: u16 = 0x4c00;
const VERSION: u16 = 0x0007;

/// The payload of a packet, by EtherType (RFC 7042).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// An IPv4 packet.
    Ipv4,
    /// An IPv6 packet.
    Ipv6,
    /// A control message between the endpoints (IEEE 802 local experimental 1).
    Control,
    /// Feedback on a path, then an IPv4 or IPv6 packet (IEEE 802 local experimental 2).
    WithFeedback,
}

impl Payload {
    /// The EtherType.
    pub fn ether_type(self) -> u16 {
        match self {
            Payload::Ipv4 => 0x0800,
            Payload::Ipv6 => 0x86dd,
            Payload::Control => 0x88b5,
            Payload::WithFeedback => 0x88b6,
        }
    }

    /// `None` for an EtherType that the tunnel does not carry.
    pub fn of_ether_type(ether_type: u16) -> Option<Payload> {
        [Payload::Ipv4, Payload::Ipv6, Payload::Control, Payload::WithFeedback]
            .into_iter()
            .find(|known| known.ether_type() == ether_type)
    }
}

/// A header; a field that is `None` or false is not on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The payload's type.
    pub payload: Payload,
    /// Identifies a flow inside the tunnel; it is not secret.
    pub key: Option<u32>,
    /// Sequence number, in serial arithmetic.
    pub sequence: Option<u32>,
    /// Whether a checksum over header and payload is present.
    pub checksum: bool,
}

/// Why a packet is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Discard {
    /// It is shorter than its header.
    #[error("the packet is shorter than its GRE header")]
    Truncated,
    /// Its version is not 0, as with PPTP.
    #[error("GRE version {0} is not supported, only 0 is")]
    Version(u8),
    /// Reserved bits are set.
    #[error("reserved bits of the GRE header are set")]
    Reserved,
    /// Its EtherType is not carried.
    #[error("EtherType {0:#06x} is not carried")]
    Protocol(u16),
    /// Its checksum is wrong.
    #[error("the GRE checksum is wrong")]
    Checksum,
}

/// Splits a packet into header and payload.
///
/// # Errors
/// The reason for which the packet is to be discarded silently.
pub fn read(packet: &[u8]) -> Result<(Header, &[u8]), Discard> {
    let (&[first, second, third, fourth], mut rest) = packet.split_first_chunk().ok_or(Discard::Truncated)?;
    let [flags, ether_type] = [[first, second], [third, fourth]].map(u16::from_be_bytes);
    if flags & VERSION != 0 {
        return Err(Discard::Version((flags & VERSION) as u8));
    }
    if flags & MUST_BE_ZERO != 0 {
        return Err(Discard::Reserved);
    }
    let mut field = |flag: u16| -> Result<Option<u32>, Discard> {
        if flags & flag == 0 {
            return Ok(None);
        }
        let (word, after) = rest.split_first_chunk::<4>().ok_or(Discard::Truncated)?;
        rest = after;
        Ok(Some(u32::from_be_bytes(*word)))
    };
    let checksum = field(CHECKSUM)?.is_some();
    let (key, sequence) = (field(KEY)?, field(SEQUENCE)?);
    if checksum && Sum::default().with(packet).checksum() != 0 {
        return Err(Discard::Checksum);
    }
    let payload = Payload::of_ether_type(ether_type).ok_or(Discard::Protocol(ether_type))?;
    Ok((Header { payload, key, sequence, checksum }, rest))
}

impl Header {
    /// Length on the wire, in bytes (4 to [`MAX_HEADER_BYTES`]).
    pub fn bytes(&self) -> usize {
        4 + 4 * [self.checksum, self.key.is_some(), self.sequence.is_some()]
            .into_iter()
            .filter(|is_present| *is_present)
            .count()
    }

    /// Appends the header and the payload.
    pub fn write(&self, payload: &[u8], into: &mut Vec<u8>) {
        let begin = into.len();
        let flag = |is_present: bool, flag: u16| if is_present { flag } else { 0 };
        let flags =
            flag(self.checksum, CHECKSUM) | flag(self.key.is_some(), KEY) | flag(self.sequence.is_some(), SEQUENCE);
        into.extend(flags.to_be_bytes());
        into.extend(self.payload.ether_type().to_be_bytes());
        for word in [self.checksum.then_some(0), self.key, self.sequence].into_iter().flatten() {
            into.extend(word.to_be_bytes());
        }
        into.extend(payload);
        if self.checksum {
            let checksum = Sum::default().with(&into[begin..]).checksum();
            into[begin + 4..begin + 6].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn headers() -> impl Strategy<Value = Header> {
        let payload = prop::sample::select(vec![Payload::Ipv4, Payload::Ipv6, Payload::Control]);
        (payload, any::<Option<u32>>(), any::<Option<u32>>(), any::<bool>())
            .prop_map(|(payload, key, sequence, checksum)| Header { payload, key, sequence, checksum })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(header in headers(), payload in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut packet = vec![7];
            header.write(&payload, &mut packet);
            prop_assert_eq!(packet.len(), 1 + header.bytes() + payload.len());
            prop_assert_eq!(read(&packet[1..]), Ok((header, payload.as_slice())));
        }

        #[test]
        fn a_truncated_header_is_detected(header in headers(), cut in 0usize..MAX_HEADER_BYTES) {
            let mut packet = Vec::new();
            header.write(&[], &mut packet);
            prop_assert_eq!(read(&packet[..cut.min(packet.len() - 1)]), Err(Discard::Truncated));
        }

        #[test]
        fn a_flipped_bit_does_not_pass_a_checksum(
            header in headers(), payload in prop::collection::vec(any::<u8>(), 1..100), bit in 32usize..800
        ) {
            let mut packet = Vec::new();
            Header { checksum: true, ..header }.write(&payload, &mut packet);
            let bit = 32 + bit % (packet.len() * 8 - 32);
            packet[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(read(&packet), Err(Discard::Checksum));
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Err(discard) = read(&bytes) {
                prop_assert!(!discard.to_string().is_empty());
            }
        }
    }

    #[test]
    fn reserved_bits_versions_and_protocols_are_checked() {
        for (packet, discard) in [
            ([0x00, 0x01, 0x08, 0x00], Discard::Version(1)),
            ([0x40, 0x00, 0x08, 0x00], Discard::Reserved),
            ([0x08, 0x00, 0x08, 0x00], Discard::Reserved),
            ([0x00, 0x00, 0x88, 0x47], Discard::Protocol(0x8847)),
        ] {
            assert_eq!(read(&packet), Err(discard));
        }
        // The other reserved bits are ignored on receipt (RFC 2784, section 2.3).
        assert!(read(&[0x03, 0xf8, 0x08, 0x00]).is_ok());
    }

    #[test]
    fn a_known_packet() {
        // RFC 2890: key and sequence, IPv4.
        let packet = [0x30, 0x00, 0x08, 0x00, 0, 0, 0, 42, 0, 0, 1, 0, 0x45];
        let header = Header { payload: Payload::Ipv4, key: Some(42), sequence: Some(256), checksum: false };
        assert_eq!(read(&packet), Ok((header, &packet[12..])));
        assert_eq!(header.bytes(), 12);
    }
}
