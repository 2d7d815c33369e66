//! When a peer was last received from, and since when an answer of it is due.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crosslane_core::time::Instant;

/// Without an answer for this time, the peer may have restarted and lost our
/// keys.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_millis(400);

/// Contact with one peer, for both threads. Times are in ns, 0: none.
#[derive(Debug, Default)]
pub(super) struct Contact {
    last_received_ns: AtomicU64,
    /// When something to be answered was first sent since then.
    unanswered_since_ns: AtomicU64,
}

impl Contact {
    /// An authentic packet of the peer arrived.
    pub(super) fn on_receive(&self, now: Instant) {
        self.last_received_ns.store(now.as_nanos(), Relaxed);
        self.unanswered_since_ns.store(0, Relaxed);
    }

    /// Something was sent that the peer answers.
    pub(super) fn on_send(&self, now: Instant) {
        let _ = self.unanswered_since_ns.compare_exchange(0, now.as_nanos(), Relaxed, Relaxed);
    }

    /// Time since the last packet; none: never received.
    pub(super) fn last_received_ago(&self, now: Instant) -> Option<Duration> {
        since(&self.last_received_ns, now)
    }

    /// Time since the first packet that is not answered; none: no answer is due.
    pub(super) fn unanswered(&self, now: Instant) -> Option<Duration> {
        since(&self.unanswered_since_ns, now)
    }

    /// Whether an answer is overdue.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        self.unanswered(now).is_some_and(|unanswered| unanswered > SILENCE_TIMEOUT)
    }
}

fn since(ns: &AtomicU64, now: Instant) -> Option<Duration> {
    let ns = ns.load(Relaxed);
    (ns > 0).then(|| now.since(Instant::from_nanos(ns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_silent_from_400_ms_after_the_first_unanswered_packet_on() {
        let (contact, at) = (Contact::default(), Instant::from_millis);
        assert_eq!((contact.last_received_ago(at(1)), contact.unanswered(at(1))), (None, None));
        contact.on_send(at(100));
        contact.on_send(at(300));
        assert_eq!(contact.unanswered(at(500)), Some(Duration::from_millis(400)));
        assert!(!contact.is_silent(at(500)) && contact.is_silent(at(501)));
        contact.on_receive(at(600));
        assert!(!contact.is_silent(at(5000)));
        assert_eq!(contact.last_received_ago(at(700)), Some(Duration::from_millis(100)));
    }
}
