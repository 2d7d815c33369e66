//! What is known of a tunnel.

use super::{Mode, PathStats, Tunnel};
use crate::path::{PathId, Sample};
use crate::time::Instant;

impl<P: Clone> Tunnel<P> {
    /// The present mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether two endpoints that run at the same time speak as the peer: two vehicles with one key.
    pub fn has_doubled_peer(&self, now: Instant) -> bool {
        self.peer.is_doubled(now)
    }

    /// Status of a path; `None` if it is not present.
    pub fn path(&self, path: PathId) -> Option<PathStats> {
        self.paths.stats(path, self.explain(path))
    }

    /// The tunnel's measurements of a path as a sample for an assessor; `token` identifies the tunnel among
    /// connections. The unacknowledged count is always 0, because the tunnel itself detects stalls of a
    /// path and reacts to them.
    pub fn sample(&self, path: PathId, token: u32) -> Option<Sample> {
        self.paths.get(path)?.sender.sample(path, token)
    }

    /// Number of packets dropped from the queue: by CoDel, after queueing for too long, and beyond the limits.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped
    }

    /// Number of packets delivered after later packets of their flow.
    pub fn late(&self) -> u64 {
        self.reorder.late
    }

    /// Bytes queued for a path.
    pub fn waiting_bytes(&self) -> u64 {
        self.queue.bytes
    }

    /// The longest datagram confirmed on a path, in bytes, outer IP header included; a longer one may be
    /// fragmented. `None` without path MTU discovery, or if the path is not present.
    pub fn passes_bytes(&self, path: PathId) -> Option<u32> {
        Some(self.paths.get(path)?.sender.mtu.as_ref()?.passes)
    }

    /// The longest datagram that every usable path carries; `None` without path MTU discovery or path.
    pub fn passes_all_bytes(&self) -> Option<u32> {
        self.paths.passes_all_bytes()
    }
}
