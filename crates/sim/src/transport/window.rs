//! The connection's receive queue: data in order for the application, and the
//! receive window that all subflows share.
//!
//! The window follows the reading application (`mptcp_rcv_space_adjust`): if the
//! application read more than before within the longest RTT of the subflows, the
//! window becomes twice that plus an allowance for the growth, up to half of
//! `net.ipv4.tcp_rmem[2]`. Its right edge never moves back (RFC 8684 §3.3.5).

use std::collections::BTreeMap;

use crosslane_core::time::{Duration, Instant};

use super::receiver::Mapping;

/// Initial window: half of `net.ipv4.tcp_rmem[1]`.
const INITIAL_BYTES: u64 = 65_536;
/// Maximum window: half of `net.ipv4.tcp_rmem[2]`, 32 MiB since Linux 6.16.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Assumed bytes read per RTT before the first measurement.
const INITIAL_SPACE_BYTES: u64 = 14_240;
const FULL_BYTES: u64 = 1424;

#[derive(Clone, Debug, Default)]
pub struct ReceiveQueue {
    /// Next byte for the application; the bytes below it are delivered.
    pub next: u64,
    /// Out-of-order data, by data sequence number: at most a window.
    early: BTreeMap<u64, u64>,
    early_bytes: u64,
    size: u64,
    edge: u64,
    read: u64,
    space: u64,
    since: Instant,
}

impl ReceiveQueue {
    pub fn new() -> ReceiveQueue {
        let (size, edge) = (INITIAL_BYTES, INITIAL_BYTES);
        ReceiveQueue { size, edge, space: INITIAL_SPACE_BYTES, ..ReceiveQueue::default() }
    }

    /// Adds a mapping that a subflow has received in order; true if it makes
    /// data available to the application. Data outside the window, which no
    /// correct peer sends, is dropped.
    pub fn add(&mut self, mapping: Mapping) -> bool {
        let (begin, end) = (mapping.dsn.max(self.next), mapping.dsn + mapping.len);
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

    /// Updates the window after the application has read everything; `rtt` is
    /// the longest of the subflows.
    pub fn measure(&mut self, now: Instant, rtt: Duration) {
        if now.since(self.since) < rtt {
            return;
        }
        let read = self.next - self.read;
        if read > self.space {
            let wanted = 2 * read + 16 * FULL_BYTES;
            let growth = wanted * (read - self.space) / self.space.max(1);
            self.size = self.size.max((wanted + 2 * growth).min(MAX_BYTES));
            self.space = read;
        }
        (self.read, self.since) = (self.next, now);
    }

    /// Data acknowledgement and window to advertise.
    pub fn advertise(&mut self) -> (u64, u64) {
        let free = self.size.saturating_sub(self.early_bytes);
        self.edge = self.edge.max(self.next + free);
        (self.next, self.edge - self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_comes_out_once_and_in_order() {
        let mut receive_queue = ReceiveQueue::new();
        assert!(!receive_queue.add(Mapping { dsn: 1000, len: 1000 }));
        assert!(!receive_queue.add(Mapping { dsn: 1000, len: 1000 }));
        assert_eq!(receive_queue.early_bytes, 1000);
        assert!(receive_queue.add(Mapping { dsn: 0, len: 1500 }));
        assert_eq!((receive_queue.next, receive_queue.early_bytes), (2000, 0));
        assert!(!receive_queue.add(Mapping { dsn: 0, len: 1500 }));
    }

    #[test]
    fn the_window_grows_with_the_reader_and_its_edge_never_moves_back() {
        let mut receive_queue = ReceiveQueue::new();
        let (rtt, mut edge) = (Duration::from_millis(50), 0);
        for round in 0..20 {
            let (data_ack, window) = receive_queue.advertise();
            assert!(data_ack + window >= edge);
            edge = data_ack + window;
            receive_queue.add(Mapping { dsn: data_ack, len: window });
            receive_queue.measure(Instant::from_millis(round * 50), rtt);
        }
        assert_eq!(receive_queue.advertise().1, MAX_BYTES);
    }

    #[test]
    fn data_outside_the_window_is_dropped() {
        let mut receive_queue = ReceiveQueue::new();
        assert!(!receive_queue.add(Mapping { dsn: INITIAL_BYTES, len: 1000 }));
        assert_eq!(receive_queue.early_bytes, 0);
    }
}
