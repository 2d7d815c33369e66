//! Sparse flows: those that send little at a time and build no queue (RFC 8290). Their packets take the path on which
//! they arrive soonest, also if a loss has to be repaired; no primary path.

use crate::time::{Duration, Instant};

/// Token bucket of a sparse flow: bytes/s, and bytes at once. TCP's initial window has 14 kB (RFC 6928).
const RATE_BYTES_S: f64 = 250e3;
const DEPTH_BYTES: f64 = 8e3;
/// The same, and bytes that wait, for a flow that has been sparse: messages that waited for room in the initial window, or for
/// the repair of a loss, follow at once.
const BURST_BYTES: f64 = 24e3;
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
    is_sparse: bool,
}

impl SparseFlow {
    /// Counts a packet, which finds so many bytes of its flow in the queue; whether the flow is sparse.
    pub(super) fn note(&mut self, now: Instant, bytes: u32, queued_bytes: u64) -> bool {
        let pause = now.since(self.last);
        if pause > MAX_PAUSE {
            *self = SparseFlow::default();
        }
        self.last = now;
        self.bytes = (self.bytes - pause.as_secs_f64() * RATE_BYTES_S).max(0.0) + f64::from(bytes);
        self.packets = self.packets.saturating_add(1);
        let (most_bytes, most_queued) = if self.is_sparse { (BURST_BYTES, BURST_BYTES) } else { (DEPTH_BYTES, 0.0) };
        if self.bytes > most_bytes || queued_bytes as f64 > most_queued {
            self.bulk_until = now + BULK_FOR;
        }
        self.is_sparse = self.packets > MIN_PACKETS && now >= self.bulk_until;
        self.is_sparse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the flow is sparse after packets of 1250 bytes at these times, in ms.
    fn is_sparse(times_ms: impl IntoIterator<Item = u64>) -> bool {
        let mut flow = SparseFlow::default();
        times_ms.into_iter().map(|ms| flow.note(Instant::from_millis(ms), 1250, 0)).last().unwrap_or(false)
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
    fn packets_that_wait_make_a_flow_bulk_and_a_burst_does_not_if_it_was_sparse() {
        let mut flow = SparseFlow::default();
        let mut note = |ms: u64, queued_bytes| flow.note(Instant::from_millis(ms), 1250, queued_bytes);
        assert!((0..20).all(|n| !note(n * 10, 1250)), "it was never known to be sparse");
        assert_eq!((0..60).map(|n| note(200 + n * 10, 0)).last(), Some(true));
        assert!((0..12).all(|n| note(800, n * 1250)), "a window at once");
        assert!(!note(900, 25_000) && !note(910, 0));
    }

    #[test]
    fn after_a_pause_nothing_is_known_of_a_flow() {
        assert!(is_sparse((0..20).map(|n| n * 2000)));
        assert!(!is_sparse((0..20).map(|n| n * 2001)));
    }
}
