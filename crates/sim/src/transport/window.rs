//! The connection's receive side: data in order for the application, and the
//! window that all subflows share.
//!
//! The window follows the reader (`mptcp_rcv_space_adjust`): when more was read
//! within the longest round-trip time of the subflows than ever before, it
//! becomes twice that and what the growth suggests, up to half of
//! `net.ipv4.tcp_rmem[2]`. Its right edge never moves back (RFC 8684 §3.3.5).

use std::collections::BTreeMap;

use crosslane_core::time::{Duration, Instant};

use super::receiver::Mapping;

/// First window: half of `net.ipv4.tcp_rmem[1]`.
const FIRST_BYTES: u64 = 65_536;
/// Greatest window: half of `net.ipv4.tcp_rmem[2]`, 32 MiB since Linux 6.16.
const GREATEST_BYTES: u64 = 16 * 1024 * 1024;
/// What a reader is taken to read before it is measured.
const FIRST_SPACE_BYTES: u64 = 14_240;
const FULL_BYTES: u64 = 1424;

/// The side.
#[derive(Clone, Debug)]
pub struct Inbox {
    /// Next byte for the application.
    next: u64,
    /// What came too early, by data sequence number: at most a window of it.
    early: BTreeMap<u64, u64>,
    early_bytes: u64,
    size: u64,
    edge: u64,
    read: u64,
    space: u64,
    since: Instant,
}

impl Inbox {
    /// A side that has received nothing.
    pub fn new() -> Inbox {
        Inbox {
            next: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            size: FIRST_BYTES,
            edge: FIRST_BYTES,
            read: 0,
            space: FIRST_SPACE_BYTES,
            since: Instant::ZERO,
        }
    }

    /// Bytes that the application has had.
    pub fn delivered(&self) -> u64 {
        self.next
    }

    /// Takes a piece that a subflow has in order; true if the application gets
    /// data by it. What lies beyond the window is dropped: no peer sends it.
    pub fn take(&mut self, piece: Mapping) -> bool {
        let (begin, end) = (piece.dsn.max(self.next), piece.dsn + piece.len);
        if end <= begin || end > self.edge {
            return false;
        }
        if begin > self.next {
            let known = self.early.get(&begin).copied().unwrap_or(begin);
            if end > known {
                self.early_bytes += end - known;
                self.early.insert(begin, end);
            }
            return false;
        }
        self.next = end;
        while let Some((&first, &last)) = self.early.first_key_value()
            && first <= self.next
        {
            self.early.pop_first();
            self.early_bytes -= last - first;
            self.next = self.next.max(last);
        }
        true
    }

    /// The application has read everything; `rtt` is the longest of the
    /// subflows'.
    pub fn measure(&mut self, now: Instant, rtt: Duration) {
        if now.since(self.since) < rtt {
            return;
        }
        let read = self.next - self.read;
        if read > self.space {
            let want = 2 * read + 16 * FULL_BYTES;
            let growth = want * (read - self.space) / self.space.max(1);
            self.size = self.size.max((want + 2 * growth).min(GREATEST_BYTES));
            self.space = read;
        }
        (self.read, self.since) = (self.next, now);
    }

    /// Data acknowledgement and window to tell.
    pub fn tell(&mut self) -> (u64, u64) {
        let free = self.size.saturating_sub(self.early_bytes);
        self.edge = self.edge.max(self.next + free);
        (self.next, self.edge - self.next)
    }

    #[cfg(test)]
    fn waiting(&self) -> u64 {
        self.early_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_comes_out_once_and_in_order() {
        let mut inbox = Inbox::new();
        assert!(!inbox.take(Mapping { dsn: 1000, len: 1000 }));
        assert!(!inbox.take(Mapping { dsn: 1000, len: 1000 }));
        assert_eq!(inbox.waiting(), 1000);
        assert!(inbox.take(Mapping { dsn: 0, len: 1500 }));
        assert_eq!((inbox.delivered(), inbox.waiting()), (2000, 0));
        assert!(!inbox.take(Mapping { dsn: 0, len: 1500 }));
    }

    #[test]
    fn the_window_grows_with_the_reader_and_its_edge_never_moves_back() {
        let mut inbox = Inbox::new();
        let (rtt, mut edge) = (Duration::from_millis(50), 0);
        for round in 0..20 {
            let (data_ack, window) = inbox.tell();
            assert!(data_ack + window >= edge);
            edge = data_ack + window;
            inbox.take(Mapping { dsn: data_ack, len: window });
            inbox.measure(Instant::from_millis(round * 50), rtt);
        }
        assert_eq!(inbox.tell().1, GREATEST_BYTES);
    }

    #[test]
    fn what_lies_beyond_the_window_is_not_kept() {
        let mut inbox = Inbox::new();
        assert!(!inbox.take(Mapping { dsn: FIRST_BYTES, len: 1000 }));
        assert_eq!(inbox.waiting(), 0);
    }
}
