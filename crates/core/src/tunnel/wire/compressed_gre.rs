//! The GRE header inside an encrypted message, without what the counter of the message or the payload tells.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! | type  |  flow slot    |         flow sequence number          |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |     path sequence number (not in type 3)      |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use alloc::vec::Vec;

use super::gre::{Header, Payload};
use super::gre_key::{GreKey, NUMBER_BITS};
use crate::path::PathId;

const PACKET: u8 = 0;
const WITH_FEEDBACK: u8 = 1;
const NUMBERED_CONTROL: u8 = 2;
const CONTROL: u8 = 3;

/// Appends a header with a key, compressed, without its path. `None`: it has no key, or no sequence number although it
/// is not that of a control message.
pub fn write(header: &Header, into: &mut Vec<u8>) -> Option<()> {
    let key = GreKey::of_key(header.key?);
    let kind = match (header.payload, header.sequence) {
        (Payload::Ipv4 | Payload::Ipv6, Some(_)) => PACKET,
        (Payload::WithFeedback, Some(_)) => WITH_FEEDBACK,
        (Payload::Control, Some(_)) => NUMBERED_CONTROL,
        (Payload::Control, None) => CONTROL,
        (_, None) => return None,
    };
    into.extend(GreKey { path: PathId(kind), ..key }.key().to_be_bytes());
    header.sequence.iter().for_each(|number| into.extend_from_slice(&number.to_be_bytes()[1..]));
    Some(())
}

/// Splits what arrived on a path into header and payload; `None` if it is too short or of an unknown type.
pub fn read(path: PathId, bytes: &[u8]) -> Option<(Header, &[u8])> {
    let (key, rest) = bytes.split_first_chunk()?;
    let GreKey { path: PathId(kind), flow, sequence } = GreKey::of_key(u32::from_be_bytes(*key));
    let key = Some(GreKey { path, flow, sequence }.key());
    if kind == CONTROL {
        return Some((Header { payload: Payload::Control, key, sequence: None, checksum: false }, rest));
    }
    let (&[high, middle, low], rest) = rest.split_first_chunk()?;
    let payload = match kind {
        PACKET if rest.first().is_some_and(|first| first >> 4 == 6) => Payload::Ipv6,
        PACKET => Payload::Ipv4,
        WITH_FEEDBACK => Payload::WithFeedback,
        NUMBERED_CONTROL => Payload::Control,
        _ => return None,
    };
    let sequence = Some(u32::from_be_bytes([0, high, middle, low]));
    Some((Header { payload, key, sequence, checksum: false }, rest))
}

const _: () = assert!(NUMBER_BITS == 24);

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::tunnel::wire::overhead::{COMPRESSED_BYTES, COMPRESSED_NUMBER_BYTES};

    proptest! {
        #[test]
        fn a_header_is_read_as_written_but_for_the_upper_bits_of_its_number(
            key in any::<u32>(), number in any::<u32>(), kind in 0u8..5
        ) {
            let (payload, first) = match kind {
                0 => (Payload::Ipv4, 0x45),
                1 => (Payload::Ipv6, 0x60),
                2 => (Payload::WithFeedback, 7),
                _ => (Payload::Control, 1),
            };
            let sequence = (kind < 4).then_some(number);
            let header = Header { payload, key: Some(key), sequence, checksum: false };
            let mut bytes = Vec::new();
            prop_assert_eq!(write(&header, &mut bytes), Some(()));
            prop_assert_eq!(bytes.len() as u32, COMPRESSED_BYTES + sequence.map_or(0, |_| COMPRESSED_NUMBER_BYTES));
            bytes.push(first);
            let expected = Header { sequence: sequence.map(|number| number & 0xff_ffff), ..header };
            prop_assert_eq!(read(GreKey::of_key(key).path, &bytes), Some((expected, &[first][..])));
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let _ = read(PathId(3), &bytes);
        }
    }

    #[test]
    fn what_cannot_be_compressed_or_read_is_refused() {
        let header = Header { payload: Payload::Ipv4, key: Some(1), sequence: None, checksum: false };
        assert_eq!(write(&header, &mut Vec::new()), None);
        assert_eq!(write(&Header { key: None, sequence: Some(1), ..header }, &mut Vec::new()), None);
        for bytes in [vec![], vec![0; 3], vec![0; 6], vec![0x2f; 6], vec![0x40; 9], vec![0xf0; 9]] {
            assert_eq!(read(PathId(0), &bytes), None, "{bytes:?}");
        }
    }
}
