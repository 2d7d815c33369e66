//! What the GRE key of a packet says between two ends of Crosslane.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! | path  |  flow slot    |         order within the flow         |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! The key names a flow inside the tunnel (RFC 8086, section 3.2); it is no secret.

use crate::path::PathId;

/// Orders count in serial arithmetic over so many bits.
pub const SEQUENCE_BITS: u32 = 20;
/// One more than the greatest order.
pub const SEQUENCES: u32 = 1 << SEQUENCE_BITS;

/// Path, flow and place of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GreKey {
    /// The path it was sent on (0 to 15).
    pub path: PathId,
    /// Slot of its flow.
    pub flow: u8,
    /// Its place among the packets of that slot, modulo [`ORDERS`].
    pub sequence: u32,
}

impl GreKey {
    /// The GRE key.
    pub fn key(self) -> u32 {
        u32::from(self.path.0 & 0xf) << 28 | u32::from(self.flow) << SEQUENCE_BITS | self.sequence & (SEQUENCES - 1)
    }

    /// What a GRE key says; every key says something.
    pub fn of_key(key: u32) -> GreKey {
        let flow = (key >> SEQUENCE_BITS & 0xff) as u8;
        GreKey { path: PathId((key >> 28) as u8), flow, sequence: key & (SEQUENCES - 1) }
    }
}

/// The whole number nearest to `near` whose lowest `bits` bits are `low`. Who takes
/// the longest steps all the time is at the end of the numbers after hours, and stays there.
pub(in crate::tunnel) fn unwrap(near: u64, low: u32, bits: u32) -> u64 {
    let span = 1u64 << bits;
    let ahead = u64::from(low).wrapping_sub(near) & (span - 1);
    let number = near.saturating_add(ahead);
    if ahead < span / 2 || number < span { number } else { number - span }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_key_says_what_the_label_was(key in any::<u32>()) {
            prop_assert_eq!(GreKey::of_key(key).key(), key);
        }

        #[test]
        fn the_nearest_number_is_found(near in (1u64 << 32)..(1 << 40), off in -500_000i64..500_000) {
            let wanted = near.wrapping_add_signed(off);
            prop_assert_eq!(unwrap(near, (wanted & u64::from(SEQUENCES - 1)) as u32, SEQUENCE_BITS), wanted);
            prop_assert_eq!(unwrap(near, wanted as u32, 32), wanted);
        }
    }

    #[test]
    fn nothing_is_before_the_first() {
        assert_eq!(unwrap(0, 0xf_ffff, SEQUENCE_BITS), 0xf_ffff);
        assert_eq!(unwrap(5, 3, SEQUENCE_BITS), 3);
    }

    #[test]
    fn nothing_is_beyond_the_last() {
        for near in [u64::MAX, u64::MAX - 1, u64::MAX - (1 << 31)] {
            for low in [0, 1, 1 << 19, 1 << 31, u32::MAX - 1, u32::MAX] {
                assert!(unwrap(near, low, 32) > u64::MAX - (1 << 33));
                assert!(unwrap(near, low, SEQUENCE_BITS) > u64::MAX - (1 << 33));
            }
        }
    }
}
