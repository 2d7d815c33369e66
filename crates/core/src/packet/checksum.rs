//! The Internet checksum (RFC 1071), and its update after a change of one field (RFC 1624).

/// A one's complement sum, not folded yet. It is computed in this machine's byte
/// order, which is swapped once at the end (RFC 1071, section 2,
/// (B)).
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds these bytes, as if they began at an even offset; an odd last byte is
    /// padded with a zero. At most 2^32 bytes in all.
    #[inline]
    pub fn with(self, bytes: &[u8]) -> Sum {
        Sum(self.0 + words(bytes))
    }

    /// Adds one 16-bit field.
    #[inline]
    pub fn with_field(self, value: u16) -> Sum {
        Sum(self.0 + u64::from(value.to_be()))
    }

    /// Adds the sum of the pseudo-header (RFC 9293, section 3.1; RFC 8200,
    /// section 8.1): both addresses, protocol and length of the summed bytes.
    #[inline]
    pub fn with_pseudo_header(self, addresses: &[u8], protocol: u8, bytes: usize) -> Sum {
        let length = bytes as u32;
        self.with(addresses).with_field(u16::from(protocol)).with_field((length >> 16) as u16).with_field(length as u16)
    }

    /// The sum, folded to 16 bits and not complemented.
    #[inline]
    pub fn folded(self) -> u16 {
        let mut sum = self.0;
        for _ in 0..4 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::from_be(sum as u16)
    }

    /// The value of a header's checksum field: the complement.
    #[inline]
    pub fn checksum(self) -> u16 {
        !self.folded()
    }
}

/// A checksum after a change of one 16-bit field that it covers (RFC 1624,
/// equation 3).
pub fn changed(checksum: u16, before: u16, after: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Sums in parallel lanes, so that the compiler can use vector instructions; those beyond
/// x86-64's baseline did not make it faster.
fn words(bytes: &[u8]) -> u64 {
    let mut lanes = [0_u64; 16];
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let mut sum: u64 = lanes.iter().sum();
    let (pairs, last) = rest.as_chunks::<2>();
    for pair in pairs {
        sum += u64::from(u16::from_ne_bytes(*pair));
    }
    if let [last] = last {
        sum += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slow(bytes: &[u8]) -> u16 {
        let sum: u64 =
            bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum();
        !((sum % 0xffff) as u16)
    }

    #[test]
    fn the_example_of_rfc_1071_is_reproduced() {
        assert_eq!(Sum::default().with(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).folded(), 0xddf2);
    }

    proptest! {
        #[test]
        fn the_fast_sum_is_the_sum(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            let (fast, slow) = (Sum::default().with(&bytes).checksum(), slow(&bytes));
            // 0 and 0xffff are the same number in one's complement.
            prop_assert!(fast == slow || (fast ^ slow) == 0xffff && (fast == 0 || slow == 0), "{fast:x} {slow:x}");
        }

        #[test]
        fn a_changed_field_changes_the_checksum_as_if_recomputed(
            mut bytes in proptest::collection::vec(any::<u8>(), 40), after: u16, place in 0_usize..20,
        ) {
            bytes[0] |= 1;
            let before = Sum::default().with(&bytes).checksum();
            let field = u16::from_be_bytes([bytes[place * 2], bytes[place * 2 + 1]]);
            bytes[place * 2..place * 2 + 2].copy_from_slice(&after.to_be_bytes());
            let recomputed = Sum::default().with(&bytes).checksum();
            let changed = changed(before, field, after);
            prop_assert!(changed == recomputed || changed ^ recomputed == 0xffff, "{changed:x} {recomputed:x}");
        }
    }
}
