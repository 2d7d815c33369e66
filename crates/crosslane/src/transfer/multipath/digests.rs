//! The digest of an object: SHA-256 over the SHA-256 of each of its pieces, in order.

use std::collections::BTreeMap;

use crosslane_core::transfer::multipath::extent;
use crosslane_core::transfer::multipath::frame::DIGEST_BYTES;
use crosslane_core::transfer::multipath::ranges::Ranges;
use sha2::{Digest, Sha256};

/// Pieces are read and arrive in any order. Those that are not transferred, since the receiver has them, are read
/// from the disk meanwhile.
#[derive(Default)]
pub(super) struct Digests {
    /// Over the digests of the pieces before `next`.
    digest: Sha256,
    next: u32,
    /// The digests of pieces after a gap.
    after_gap: BTreeMap<u32, [u8; DIGEST_BYTES]>,
    /// Pieces to be read from the disk.
    unread: Ranges,
}

impl Digests {
    /// Adds a piece, once or more often.
    pub(super) fn add(&mut self, index: u32, bytes: &[u8]) {
        if index >= self.next && !self.after_gap.contains_key(&index) {
            self.after_gap.insert(index, Sha256::digest(bytes).into());
        }
        while let Some(digest) = self.after_gap.remove(&self.next) {
            self.digest.update(digest);
            self.next += 1;
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
        self.digest.clone().finalize().into()
    }
}
