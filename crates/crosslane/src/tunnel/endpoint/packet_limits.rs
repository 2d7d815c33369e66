//! Limits of packet lengths and of queued bytes, over all peers.

use std::sync::atomic::Ordering::Relaxed;

use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_core::tunnel::Tunnel;
use crosslane_core::tunnel::wire::control_message::MAX_PATHS;
use crosslane_core::tunnel::wire::gre::NUMBERED_BYTES;

use super::super::security::DATA_OVERHEAD_BYTES;
use super::{Endpoint, Peer, TunnelPacket, lock};

/// Minimum MTU of IPv6 (RFC 8200, section 5): a path that carries less gets longer packets in fragments.
const MIN_INNER_BYTES: u32 = 1280;
/// Maximum number of queued bytes, over all peers: 50 ms at 10 Gbit/s.
pub(super) const MAX_QUEUED_BYTES: u64 = 64 << 20;
/// From this number of freed bytes on, memory is returned to the system.
const WORTH_TRIMMING_BYTES: u64 = 1 << 20;

impl Endpoint {
    /// The longest datagram known to pass each path unfragmented, as UDP payload.
    pub(super) fn passes(&self, tunnel: &Tunnel<TunnelPacket>) -> [usize; MAX_PATHS] {
        let sealed = if self.security.is_some() { DATA_OVERHEAD_BYTES as u32 } else { 0 };
        let outer = self.overhead_bytes - NUMBERED_BYTES - sealed;
        std::array::from_fn(|path| {
            let passes = tunnel.passes_bytes(PathId(path as u8));
            passes.map_or(usize::MAX, |bytes| bytes.saturating_sub(outer) as usize)
        })
    }

    /// Sets the inner MTU to what every path of the peer carries, but not below IPv6's minimum.
    pub(super) fn follow_paths(&self, peer: &Peer, tunnel: &Tunnel<TunnelPacket>) {
        let passes = tunnel.passes_all_bytes().map_or(self.mtu, |bytes| bytes.saturating_sub(self.overhead_bytes));
        peer.mtu.store(passes.clamp(self.mtu.min(MIN_INNER_BYTES), self.mtu), Relaxed);
    }

    /// Updates the number of bytes queued for a peer.
    pub(super) fn count_waiting(&self, peer: &Peer, bytes: u64) {
        let before = peer.waiting_bytes.swap(bytes, Relaxed);
        // The difference may wrap; the sum does not.
        self.waiting_bytes.fetch_add(bytes.wrapping_sub(before), Relaxed);
    }

    /// While too many bytes are queued, the peer with the most drops its oldest packet.
    pub(super) fn shed(&self) {
        while self.waiting_bytes.load(Relaxed) > MAX_QUEUED_BYTES {
            let Some(peer) = self.peers.iter().max_by_key(|peer| peer.waiting_bytes.load(Relaxed)) else { return };
            let mut tunnel = lock(&peer.tunnel);
            tunnel.shed();
            self.count_waiting(peer, tunnel.waiting_bytes());
        }
    }

    /// Drops expired packets of peers that are gone, and frees their memory.
    pub(super) fn expire_queues(&self, now: Instant) {
        let before = self.waiting_bytes.load(Relaxed);
        for peer in &self.peers {
            let mut tunnel = lock(&peer.tunnel);
            tunnel.expire(now);
            self.count_waiting(peer, tunnel.waiting_bytes());
        }
        if before.saturating_sub(self.waiting_bytes.load(Relaxed)) >= WORTH_TRIMMING_BYTES {
            trim_memory();
        }
    }
}

/// Returns free small blocks to the system, which the allocator otherwise keeps.
fn trim_memory() {
    // SAFETY: it has no preconditions, and frees no used memory.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
