//! What packets may be long, and how much may wait, over all other ends.

use std::sync::atomic::Ordering::Relaxed;

use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_core::tunnel::Tunnel;
use crosslane_core::tunnel::wire::control_message::MAX_PATHS;
use crosslane_core::tunnel::wire::gre::NUMBERED_BYTES;

use super::super::security::DATA_OVERHEAD_BYTES;
use super::{Carried, End, Peer, lock};

/// What IPv6 inside needs (RFC 8200, section 5): a path that carries less gets what is longer in fragments.
const MIN_INNER_BYTES: u32 = 1280;
/// Bytes of packets that wait at most, over all peers: 50 ms at 10 Gbit/s.
pub(super) const MOST_WAITING_BYTES: u64 = 64 << 20;
/// Freeing so much is worth telling the allocator.
const WORTH_TRIMMING_BYTES: u64 = 1 << 20;

impl End {
    /// The longest datagram that is known to pass each path whole, as UDP's payload.
    pub(super) fn passes(&self, tunnel: &Tunnel<Carried>) -> [usize; MAX_PATHS] {
        let sealed = if self.security.is_some() { DATA_OVERHEAD_BYTES as u32 } else { 0 };
        let outer = self.overhead_bytes - NUMBERED_BYTES - sealed;
        std::array::from_fn(|path| {
            let passes = tunnel.passes_bytes(PathId(path as u8));
            passes.map_or(usize::MAX, |bytes| bytes.saturating_sub(outer) as usize)
        })
    }

    /// Packets inside are as long as every path of the peer carries, but never shorter than IPv6 needs.
    pub(super) fn follow_paths(&self, peer: &Peer, tunnel: &Tunnel<Carried>) {
        let passes = tunnel.passes_all_bytes().map_or(self.mtu, |bytes| bytes.saturating_sub(self.overhead_bytes));
        peer.mtu.store(passes.clamp(self.mtu.min(MIN_INNER_BYTES), self.mtu), Relaxed);
    }

    /// What waits for a peer has changed to this.
    pub(super) fn count_waiting(&self, peer: &Peer, bytes: u64) {
        let before = peer.waiting_bytes.swap(bytes, Relaxed);
        // Wraps where there is less than before: the sum does not.
        self.waiting_bytes.fetch_add(bytes.wrapping_sub(before), Relaxed);
    }

    /// While too much waits, the peer for which most does loses its oldest.
    pub(super) fn shed(&self) {
        while self.waiting_bytes.load(Relaxed) > MOST_WAITING_BYTES {
            let Some(peer) = self.peers.iter().max_by_key(|peer| peer.waiting_bytes.load(Relaxed)) else { return };
            let mut tunnel = lock(&peer.tunnel);
            tunnel.shed();
            self.count_waiting(peer, tunnel.waiting_bytes());
        }
    }

    /// Forgets what waits for ends that are gone, and gives its memory back.
    pub(super) fn forget_old(&self, now: Instant) {
        let before = self.waiting_bytes.load(Relaxed);
        for peer in &self.peers {
            let mut tunnel = lock(&peer.tunnel);
            tunnel.expire(now);
            self.count_waiting(peer, tunnel.waiting_bytes());
        }
        if before.saturating_sub(self.waiting_bytes.load(Relaxed)) >= WORTH_TRIMMING_BYTES {
            give_back_memory();
        }
    }
}

/// Small blocks that are free stay with the process until it says so.
fn give_back_memory() {
    // SAFETY: it has no preconditions, and frees nothing that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
