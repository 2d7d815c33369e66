//! How long the packets may be, and how many may wait.

use super::fq_codel::MAX_WAIT;
use super::send_path::{Liveness, PathMtu};
use super::{Path, Tunnel};
use crate::path::{PathId, PathState};
use crate::time::Instant;

impl<P: Clone> Tunnel<P> {
    /// Finds by probes which datagrams of up to `most_bytes` (outer IP header included) each path carries; called before
    /// there is a path.
    pub fn probe_mtu_up_to(&mut self, max_datagram_bytes: u32) {
        self.max_datagram_bytes = Some(max_datagram_bytes);
    }

    /// The longest datagram that is known to pass a path, outer IP header included, in bytes: what is longer may have
    /// to be cut on its way. `None` if nobody looks, or the path is not there.
    pub fn passes_bytes(&self, path: PathId) -> Option<u32> {
        Some(self.at(path)?.out.mtu.as_ref()?.passes())
    }

    /// The longest datagram that passes every path that is used or may be; `None` if nobody looks, or there is none.
    pub fn passes_all_bytes(&self) -> Option<u32> {
        let used = |path: &&Path<P>| path.out.wanted_state != PathState::Closed && path.out.liveness != Liveness::Down;
        let paths = self.paths.iter().flatten().filter(used);
        paths.filter_map(|path| path.out.mtu.as_ref()).map(PathMtu::settled).min()
    }

    /// Bytes of packets that wait for a path.
    pub fn waiting_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// Drops one packet that waits, the oldest of the flow that has the most.
    pub fn shed(&mut self) {
        self.queue.shed();
    }

    /// Drops what waited for longer than 5 s, as for an end that is gone, and gives its memory back. To be called every
    /// few seconds.
    pub fn expire(&mut self, now: Instant) {
        self.queue.expire(now);
        self.next.take_if(|next| now.since(next.arrived) > MAX_WAIT);
        self.retransmits.retain(|copy| copy.until > now);
        if self.retransmits.is_empty() {
            self.retransmits.shrink_to_fit();
        }
        self.paths_mut().for_each(|(_, path)| path.out.release_memory());
    }
}
