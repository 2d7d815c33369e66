//! The GRE key between two endpoints of Crosslane.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! | path  |  flow slot    |         flow sequence number          |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! The key identifies a flow inside the tunnel (RFC 8086, section 3.2); it is not secret.

use crate::path::PathId;

/// Bits of a flow sequence number, in serial arithmetic.
pub const SEQUENCE_BITS: u32 = 20;
/// Bits of a path sequence number that are read, in serial arithmetic: what an encrypted message and feedback on a packet
/// have of it.
pub const NUMBER_BITS: u32 = 24;
/// Number of flow sequence numbers.
pub const SEQUENCES: u32 = 1 << SEQUENCE_BITS;

/// The fields of a GRE key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GreKey {
    /// The path on which the packet is sent (0 to 15).
    pub path: PathId,
    /// Slot of its flow.
    pub flow: u8,
    /// Its flow sequence number, modulo [`SEQUENCES`].
    pub sequence: u32,
}

impl GreKey {
    /// The GRE key.
    pub fn key(self) -> u32 {
        u32::from(self.path.0 & 0xf) << 28 | u32::from(self.flow) << SEQUENCE_BITS | self.sequence & (SEQUENCES - 1)
    }

    /// The fields of a GRE key; every key is valid.
    pub fn of_key(key: u32) -> GreKey {
        let flow = (key >> SEQUENCE_BITS & 0xff) as u8;
        GreKey { path: PathId((key >> 28) as u8), flow, sequence: key & (SEQUENCES - 1) }
    }
}

/// The integer closest to `near` whose lowest `bits` bits are `low`. A peer that always takes the largest
/// step reaches the end of the range after hours; the result stays there.
pub(in crate::tunnel) fn unwrap(near: u64, low: u32, bits: u32) -> u64 {
    let span = 1u64 << bits;
    let ahead = u64::from(low).wrapping_sub(near) & (span - 1);
    let number = near.saturating_add(ahead);
    if ahead < span / 2 || number < span { number } else { number - span }
}

/// Whether a path sequence number is in a range of this first number (modulo 2²⁴) and length.
pub(in crate::tunnel) fn is_in_range(number: u64, (first, length): (u32, u16)) -> bool {
    (number as u32).wrapping_sub(first) & ((1 << NUMBER_BITS) - 1) < length.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_key_is_its_fields(key in any::<u32>()) {
            prop_assert_eq!(GreKey::of_key(key).key(), key);
        }

        #[test]
        fn the_closest_number_is_found(near in (1u64 << 32)..(1 << 40), off in -500_000i64..500_000) {
            let expected = near.wrapping_add_signed(off);
            prop_assert_eq!(unwrap(near, (expected & u64::from(SEQUENCES - 1)) as u32, SEQUENCE_BITS), expected);
            prop_assert_eq!(unwrap(near, expected as u32, 32), expected);
            prop_assert_eq!(unwrap(near, expected as u32, NUMBER_BITS), expected);
        }
    }

    #[test]
    fn a_range_is_compared_modulo_its_bits() {
        let number = (7 << NUMBER_BITS) + 2;
        for (first, length, is_in) in [(2, 1, true), (0xff_ffff, 4, true), (0xff_ffff, 3, false), (3, 9, false)] {
            assert_eq!(is_in_range(number, (first, length)), is_in, "{first}, {length}");
        }
        assert!(is_in_range(number, (number as u32, 1)));
    }

    #[test]
    fn no_number_is_negative() {
        assert_eq!(unwrap(0, 0xf_ffff, SEQUENCE_BITS), 0xf_ffff);
        assert_eq!(unwrap(5, 3, SEQUENCE_BITS), 3);
    }

    #[test]
    fn no_number_exceeds_the_range() {
        for near in [u64::MAX, u64::MAX - 1, u64::MAX - (1 << 31)] {
            for low in [0, 1, 1 << 19, 1 << 31, u32::MAX - 1, u32::MAX] {
                assert!(unwrap(near, low, 32) > u64::MAX - (1 << 33));
                assert!(unwrap(near, low, SEQUENCE_BITS) > u64::MAX - (1 << 33));
            }
        }
    }
}
