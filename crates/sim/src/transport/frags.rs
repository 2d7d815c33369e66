//! What the application has written and the peer has not acknowledged: the
//! connection's retransmission queue.
//!
//! Linux keeps it in fragments of a page (`struct mptcp_data_frag`): a write
//! begins one of its own unless earlier data still waits, and re-injection
//! works fragment by fragment.

use std::collections::VecDeque;

/// Bytes of a fragment at most (Linux: a page fragment of order 3).
const FRAG_BYTES: u64 = 32_768;
/// What a fragment costs of the send buffer beside its bytes.
const OVERHEAD_BYTES: u64 = 64;

#[derive(Clone, Copy, Debug)]
struct Frag {
    dsn: u64,
    len: u64,
    /// How much of it has been handed to a subflow.
    sent: u64,
}

/// The queue. Its length is bounded by the send buffer.
#[derive(Clone, Debug, Default)]
pub struct Frags {
    queue: VecDeque<Frag>,
    /// Place of the first fragment not wholly handed out.
    pending: usize,
    charged: u64,
    written: u64,
}

/// Bytes to be handed to a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Data sequence number of the first.
    pub dsn: u64,
    /// How many.
    pub len: u64,
}

impl Frags {
    /// Appends `len` bytes of the application.
    pub fn write(&mut self, mut len: u64) {
        while len > 0 {
            let waits = self.pending < self.queue.len();
            if !self.queue.back().is_some_and(|last| waits && last.len < FRAG_BYTES) {
                self.queue.push_back(Frag { dsn: self.written, len: 0, sent: 0 });
                self.charged += OVERHEAD_BYTES;
            }
            let Some(last) = self.queue.back_mut() else { return };
            let part = len.min(FRAG_BYTES.saturating_sub(last.len));
            last.len += part;
            self.charged += part;
            self.written += part;
            len -= part;
        }
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// What counts against the send buffer, in bytes.
    pub fn charged(&self) -> u64 {
        self.charged
    }

    /// True if all is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next bytes to be handed out, if any.
    pub fn next(&self) -> Option<Run> {
        let frag = self.queue.get(self.pending)?;
        Some(Run { dsn: frag.dsn + frag.sent, len: frag.len - frag.sent })
    }

    /// So many of the next bytes have been handed out.
    pub fn hand_out(&mut self, len: u64) {
        if let Some(frag) = self.queue.get_mut(self.pending) {
            frag.sent = (frag.sent + len).min(frag.len);
            if frag.sent == frag.len {
                self.pending += 1;
            }
        }
    }

    /// Everything below `una` is acknowledged.
    pub fn acknowledge(&mut self, una: u64) {
        while let Some(frag) = self.queue.front().filter(|frag| frag.dsn + frag.len <= una) {
            self.charged -= frag.len + OVERHEAD_BYTES;
            self.queue.pop_front();
            self.pending = self.pending.saturating_sub(1);
        }
        if let Some(frag) = self.queue.front_mut().filter(|frag| frag.dsn < una) {
            let part = una - frag.dsn;
            frag.dsn = una;
            frag.len -= part;
            frag.sent = frag.sent.saturating_sub(part);
            self.charged -= part;
        }
    }

    /// The first bytes that were handed out and are not acknowledged.
    pub fn head(&self) -> Option<Run> {
        let frag = self.queue.front().filter(|frag| frag.sent > 0)?;
        Some(Run { dsn: frag.dsn, len: frag.sent })
    }

    /// Everything is to be handed out anew (`__mptcp_retransmit_pending_data`).
    pub fn restart(&mut self) {
        for frag in self.queue.iter_mut().take_while(|frag| frag.sent > 0) {
            frag.sent = 0;
        }
        self.pending = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(dsn: u64, len: u64) -> Option<Run> {
        Some(Run { dsn, len })
    }

    #[test]
    fn a_write_joins_what_waits_and_nothing_that_was_handed_out() {
        let mut frags = Frags::default();
        frags.write(1000);
        frags.write(500);
        assert_eq!(frags.next(), run(0, 1500));
        frags.hand_out(1500);
        frags.write(1000);
        assert_eq!(frags.next(), run(1500, 1000));
        assert_eq!(frags.charged(), 2500 + 2 * OVERHEAD_BYTES);
    }

    #[test]
    fn what_is_acknowledged_leaves_and_what_restarts_is_the_rest() {
        let mut frags = Frags::default();
        for _ in 0..3 {
            frags.write(1000);
            frags.hand_out(1000);
        }
        frags.write(1000);
        frags.acknowledge(1400);
        assert_eq!(frags.head(), run(1400, 600));
        assert_eq!(frags.next(), run(3000, 1000));
        frags.restart();
        assert_eq!(frags.next(), run(1400, 600));
        frags.acknowledge(4000);
        assert!(frags.is_empty());
        assert_eq!((frags.next(), frags.charged()), (None, 0));
    }
}
