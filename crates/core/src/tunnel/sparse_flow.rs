//! Sparse flows: those that send little at a time and build no queue (RFC 8290). Their packets take the path on which
//! they arrive soonest, also if a loss has to be repaired; no primary path.

use crate::time::{Duration, Instant};

/// Token bucket of a sparse flow: bytes/s, and bytes at once. TCP's initial window has 14 kB (RFC 6928).
const RATE_BYTES_S: f64 = 250e3;
const DEPTH_BYTES: f64 = 8e3;
/// Packets after which a flow may be sparse: a handshake tells nothing about what follows.
const MIN_PACKETS: u32 = 6;
/// How long a flow is bulk after more than that: longer than BBR's probe of the min RTT (200 ms), in which it sends
/// four packets per RTT.
const BULK_FOR: Duration = Duration::from_millis(500);
/// Pause after which nothing is known about a flow: its slot may have another.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// What a flow sent lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SparseFlow {
    /// Bytes in the bucket at the last packet.
    bytes: f64,
    last: Instant,
    packets: u32,
    bulk_until: Instant,
}

impl SparseFlow {
    /// Counts a packet, which finds others of its flow in the queue or not; whether the flow is sparse.
    pub(super) fn note(&mut self, now: Instant, bytes: u32, has_queue: bool) -> bool {
        let pause = now.since(self.last);
        if pause > MAX_PAUSE {
            *self = SparseFlow::default();
        }
        self.last = now;
        self.bytes = (self.bytes - pause.as_secs_f64() * RATE_BYTES_S).max(0.0) + f64::from(bytes);
        self.packets = self.packets.saturating_add(1);
        if has_queue || self.bytes > DEPTH_BYTES {
            self.bulk_until = now + BULK_FOR;
        }
        self.packets > MIN_PACKETS && now >= self.bulk_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the flow is sparse after packets of 1250 bytes at these times, in ms.
    fn is_sparse(times_ms: impl IntoIterator<Item = u64>) -> bool {
        let mut flow = SparseFlow::default();
        times_ms.into_iter().map(|ms| flow.note(Instant::from_millis(ms), 1250, false)).last().unwrap_or(false)
    }

    #[test]
    fn messages_are_sparse_and_a_window_at_once_is_not() {
        assert!(is_sparse((0..7).map(|n| 5000 + n * 10)), "1 Mbit/s");
        assert!(!is_sparse((0..6).map(|n| 5000 + n * 10)), "few packets");
        assert!(!is_sparse((0..10).map(|_| 5000)), "an initial window");
        assert!(!is_sparse((0..200).map(|n| 5000 + n * 4)), "2.5 Mbit/s");
    }

    #[test]
    fn a_bulk_flow_is_sparse_half_a_second_after_it_became_slow() {
        let burst = || (0..10).map(|_| 5000);
        assert!(!is_sparse(burst().chain((1..50).map(|n| 5000 + n * 10))));
        assert!(is_sparse(burst().chain((1..60).map(|n| 5000 + n * 10))));
    }

    #[test]
    fn packets_that_wait_make_a_flow_bulk() {
        let mut flow = SparseFlow::default();
        let mut note = |ms: u64, has_queue| flow.note(Instant::from_millis(ms), 1250, has_queue);
        assert!((0..20).map(|n| note(n * 10, false)).last() == Some(true));
        assert!(!note(200, true) && !note(210, false));
    }

    #[test]
    fn after_a_pause_nothing_is_known_of_a_flow() {
        assert!(is_sparse((0..20).map(|n| n * 2000)));
        assert!(!is_sparse((0..20).map(|n| n * 2001)));
    }
}
