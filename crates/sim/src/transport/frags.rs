//! The connection's retransmission queue: data that the application has written
//! and the peer has not acknowledged.
//!
//! Linux stores it in page fragments (`struct mptcp_data_frag`): a write starts a
//! new fragment unless earlier data still waits, and re-injection works per
//! fragment.

use std::collections::VecDeque;

use super::receiver::Mapping;

/// Maximum size of a fragment (Linux: a page fragment of order 3), in bytes.
pub const FRAG_BYTES: u64 = 32_768;
/// Send-buffer overhead of a fragment, in bytes.
const OVERHEAD_BYTES: u64 = 64;

#[derive(Clone, Copy, Debug)]
struct Frag {
    dsn: u64,
    len: u64,
    /// Bytes of it that have been passed to a subflow.
    sent: u64,
}

/// The queue. The send buffer limits its length.
#[derive(Clone, Debug, Default)]
pub struct Frags {
    queue: VecDeque<Frag>,
    /// Index of the first fragment that has not been sent completely.
    pending: usize,
    /// Send-buffer usage, in bytes.
    pub charged: u64,
    /// Bytes written so far.
    pub written: u64,
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

    /// True if all data is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next data to send, if any.
    pub fn next(&self) -> Option<Mapping> {
        let frag = self.queue.get(self.pending)?;
        Some(Mapping { dsn: frag.dsn + frag.sent, len: frag.len - frag.sent })
    }

    /// Marks the next `len` bytes as passed to a subflow.
    pub fn mark_sent(&mut self, len: u64) {
        if let Some(frag) = self.queue.get_mut(self.pending) {
            frag.sent = (frag.sent + len).min(frag.len);
            if frag.sent == frag.len {
                self.pending += 1;
            }
        }
    }

    /// Removes everything below `una`, which is acknowledged.
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

    /// The oldest data that was sent and is not acknowledged.
    pub fn head(&self) -> Option<Mapping> {
        let frag = self.queue.front().filter(|frag| frag.sent > 0)?;
        Some(Mapping { dsn: frag.dsn, len: frag.sent })
    }

    /// Marks all data as not sent (`__mptcp_retransmit_pending_data`).
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

    fn run(dsn: u64, len: u64) -> Option<Mapping> {
        Some(Mapping { dsn, len })
    }

    #[test]
    fn a_write_extends_a_waiting_fragment_but_not_a_sent_one() {
        let mut frags = Frags::default();
        frags.write(1000);
        frags.write(500);
        assert_eq!(frags.next(), run(0, 1500));
        frags.mark_sent(1500);
        frags.write(1000);
        assert_eq!(frags.next(), run(1500, 1000));
        assert_eq!(frags.charged, 2500 + 2 * OVERHEAD_BYTES);
    }

    #[test]
    fn acknowledged_data_is_removed_and_a_restart_covers_the_rest() {
        let mut frags = Frags::default();
        for _ in 0..3 {
            frags.write(1000);
            frags.mark_sent(1000);
        }
        frags.write(1000);
        frags.acknowledge(1400);
        assert_eq!(frags.head(), run(1400, 600));
        assert_eq!(frags.next(), run(3000, 1000));
        frags.restart();
        assert_eq!(frags.next(), run(1400, 600));
        frags.acknowledge(4000);
        assert!(frags.is_empty());
        assert_eq!((frags.next(), frags.charged), (None, 0));
    }
}
