//! The digest of an object: BLAKE3 over the BLAKE3 of each of its pieces, in order.

use std::collections::BTreeMap;

use blake3::Hasher;
use crosslane_core::transfer::multipath::extent;
use crosslane_core::transfer::multipath::frame::DIGEST_BYTES;
use crosslane_core::transfer::multipath::ranges::Ranges;

/// Pieces are read and arrive in any order. Those that are not transferred, since the receiver has them, are read
/// from the disk meanwhile.
#[derive(Default)]
pub(super) struct Digests {
    /// Over the digests of the pieces before `next`.
    digest: Hasher,
    next: u32,
    /// The digests of pieces after a gap.
    after_gap: BTreeMap<u32, [u8; DIGEST_BYTES]>,
    /// Pieces to be read from the disk.
    unread: Ranges,
}

impl Digests {
    /// Adds a piece, once or more often.
    pub(super) fn add(&mut self, index: u32, bytes: &[u8]) {
        if index > self.next {
            self.after_gap.entry(index).or_insert_with(|| *blake3::hash(bytes).as_bytes());
        } else if index == self.next {
            let mut digest = *blake3::hash(bytes).as_bytes();
            loop {
                self.digest.update(&digest);
                self.next += 1;
                match self.after_gap.remove(&self.next) {
                    Some(next) => digest = next,
                    None => break,
                }
            }
        }
    }

    /// These pieces are to be read from the disk, unless they were added.
    pub(super) fn await_pieces(&mut self, pieces: Ranges) {
        self.unread = pieces;
        self.unread.remove(0..self.next);
    }

    /// Whether pieces are to be read from the disk.
    pub(super) fn is_waiting(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Reads up to this number of pieces of an object of this size from the disk.
    pub(super) fn catch_up<E>(
        &mut self,
        most: usize,
        size: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = Vec::new();
        for _ in 0..most {
            let Some(index) = self.unread.first() else { break };
            let (offset, length) = extent(size, index);
            buffer.resize(length as usize, 0);
            read(offset, &mut buffer)?;
            self.add(index, &buffer);
            self.unread.remove(index..index + 1);
        }
        Ok(())
    }

    /// The digest of the object, once all pieces are added.
    pub(super) fn finish(&self) -> [u8; DIGEST_BYTES] {
        self.digest.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_and_repeated_have_one_digest() {
        let pieces: Vec<Vec<u8>> = (0..4).map(|index| vec![index; 100 + usize::from(index)]).collect();
        let each: Vec<u8> = pieces.iter().flat_map(|piece| *blake3::hash(piece).as_bytes()).collect();
        for order in [&[0, 1, 2, 3][..], &[3, 2, 1, 0], &[1, 3, 3, 1, 0, 0, 2, 1], &[0, 2, 1, 3]] {
            let mut digests = Digests::default();
            for index in order {
                // A later copy may differ: the first one was stored.
                digests.add(*index as u32, &pieces[*index]);
                digests.add(*index as u32, b"another");
            }
            assert_eq!(digests.finish(), *blake3::hash(&each).as_bytes(), "{order:?}");
        }
    }
}
