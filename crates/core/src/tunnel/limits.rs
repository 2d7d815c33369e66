//! Limits of packet length and queues.

use super::fq_codel::MAX_WAIT;
use super::send_path::{Liveness, PathMtu};
use super::{Path, Tunnel};
use crate::path::{PathId, PathState};
use crate::time::Instant;

impl<P: Clone> Tunnel<P> {
    /// Enables path MTU discovery by probes of up to `max_datagram_bytes` (outer IP header included). To be
    /// called before a path is added.
    pub fn probe_mtu_up_to(&mut self, max_datagram_bytes: u32) {
        self.max_datagram_bytes = Some(max_datagram_bytes);
    }

    /// The longest datagram confirmed on a path, in bytes, outer IP header included; a longer one may be
    /// fragmented. `None` without path MTU discovery, or if the path is not present.
    pub fn passes_bytes(&self, path: PathId) -> Option<u32> {
        Some(self.at(path)?.sender.mtu.as_ref()?.passes())
    }

    /// The longest datagram that every usable path carries; `None` without path MTU discovery, or without a
    /// path.
    pub fn passes_all_bytes(&self) -> Option<u32> {
        let used =
            |path: &&Path<P>| path.sender.wanted_state != PathState::Closed && path.sender.liveness != Liveness::Down;
        let paths = self.paths.iter().flatten().filter(used);
        paths.filter_map(|path| path.sender.mtu.as_ref()).map(PathMtu::settled).min()
    }

    /// Bytes queued for a path.
    pub fn waiting_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// Drops one queued packet: the oldest of the flow with the most bytes.
    pub fn shed(&mut self) {
        self.queue.shed();
    }

    /// Drops packets queued for longer than 5 s, such as those for an absent peer, and frees their memory.
    /// To be called every few seconds.
    pub fn expire(&mut self, now: Instant) {
        self.queue.expire(now);
        self.next.take_if(|next| now.since(next.arrived) > MAX_WAIT);
        self.retransmits.retain(|copy| copy.until > now);
        if self.retransmits.is_empty() {
            self.retransmits.shrink_to_fit();
        }
        self.paths_mut().for_each(|(_, path)| path.sender.release_memory());
    }
}
