//! Bytes queued in the engines of all peers, and their limit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::memory::trim_heap;

/// Maximum number of queued bytes, over all peers: 50 ms at 10 Gbit/s.
pub(super) const MAX_QUEUED_BYTES: u64 = 64 << 20;

/// From this number of freed bytes on, memory is returned to the system.
const WORTH_TRIMMING_BYTES: u64 = 1 << 20;

/// Queued bytes of each peer and of all.
#[derive(Debug)]
pub(super) struct QueuedBytes {
    total: AtomicU64,
    of_peers: Vec<AtomicU64>,
}

impl QueuedBytes {
    pub(super) fn new(peers: usize) -> QueuedBytes {
        QueuedBytes { total: AtomicU64::new(0), of_peers: (0..peers).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Sets the number of bytes queued for a peer; the caller holds the lock of its engine.
    pub(super) fn set(&self, peer: usize, bytes: u64) {
        let before = self.of_peers[peer].swap(bytes, Relaxed);
        // The difference may wrap; the sum does not.
        self.total.fetch_add(bytes.wrapping_sub(before), Relaxed);
    }

    pub(super) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// The peer with the most, if too many bytes are queued.
    pub(super) fn must_shed(&self) -> Option<usize> {
        let longest = || (0..self.of_peers.len()).max_by_key(|peer| self.of_peers[*peer].load(Relaxed));
        (self.total() > MAX_QUEUED_BYTES).then(longest).flatten()
    }

    /// Returns memory to the system if far fewer bytes are queued than `before`.
    pub(super) fn trim_memory(&self, before: u64) {
        if before.saturating_sub(self.total()) < WORTH_TRIMMING_BYTES {
            return;
        }
        trim_heap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_limit_the_longest_queue_is_named() {
        let queued = QueuedBytes::new(3);
        queued.set(0, MAX_QUEUED_BYTES / 2);
        queued.set(1, MAX_QUEUED_BYTES / 2);
        assert_eq!(queued.must_shed(), None);
        queued.set(1, MAX_QUEUED_BYTES / 2 + 1);
        assert_eq!(queued.must_shed(), Some(1));
        queued.set(1, 7);
        assert_eq!((queued.must_shed(), queued.total()), (None, MAX_QUEUED_BYTES / 2 + 7));
    }
}
