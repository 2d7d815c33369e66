//! Records the messages of a run as they are written and read.

use std::collections::VecDeque;

use crosslane_core::time::Instant;

use super::histogram::Histogram;
use super::rows::{MessageRow, Reads};

/// Results over the messages of a run.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Messages written.
    pub written: u64,
    /// Bytes of the messages that were read.
    pub delivered_bytes: u64,
    /// Messages that were read again.
    pub duplicates: u64,
    /// Delays of the messages that were read.
    pub delays: Histogram,
    /// Reads of the byte stream.
    pub reads: Reads,
}

/// The messages of a run.
#[derive(Debug)]
pub struct MessageLog {
    /// The messages from number `first` on.
    rows: VecDeque<MessageRow>,
    first: u64,
    /// All rows are kept, else only those from the first unread message on.
    keep: bool,
    results: Results,
}

impl MessageLog {
    /// No messages; `keep` if [`MessageLog::finish`] shall return them.
    pub fn new(keep: bool) -> MessageLog {
        MessageLog { rows: VecDeque::new(), first: 0, keep, results: Results::default() }
    }

    /// A message begins; returns its number. `sent` is the start of its write, or
    /// the generation time of an object.
    pub fn begin(&mut self, sent: Instant, size_bytes: u64) -> u64 {
        let number = self.results.written;
        let (sent_ns, size_bytes) = (sent.as_nanos(), size_bytes as u32);
        self.results.written += 1;
        self.rows.push_back(MessageRow { number, sent_ns, written_ns: None, received_ns: None, size_bytes });
        number
    }

    /// The connection has accepted the last byte of an object.
    pub fn accepted(&mut self, now: Instant, number: u64) {
        if let Some(row) = self.row(number) {
            row.written_ns = Some(now.as_nanos());
        }
    }

    /// The last byte of a message was read.
    pub fn received(&mut self, now: Instant, number: u64) {
        let Some(row) = self.row(number).filter(|row| row.received_ns.is_none()) else {
            self.results.duplicates += 1;
            return;
        };
        row.received_ns = Some(now.as_nanos());
        let (sent, bytes) = (Instant::from_nanos(row.sent_ns), u64::from(row.size_bytes));
        self.results.delivered_bytes += bytes;
        self.results.delays.note(now.since(sent));
        while !self.keep && self.rows.front().is_some_and(|row| row.received_ns.is_some()) {
            self.rows.pop_front();
            self.first += 1;
        }
    }

    /// Bytes of the stream were read.
    pub fn read(&mut self, now: Instant) {
        self.results.reads.note(now);
    }

    /// The number of messages that have begun.
    pub fn count(&self) -> u64 {
        self.results.written
    }

    /// The kept messages, and the results over all.
    pub fn finish(self) -> (Vec<MessageRow>, Results) {
        (if self.keep { self.rows.into() } else { Vec::new() }, self.results)
    }

    fn row(&mut self, number: u64) -> Option<&mut MessageRow> {
        self.rows.get_mut(number.checked_sub(self.first)? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(keep: bool) -> MessageLog {
        let mut log = MessageLog::new(keep);
        for sent_ms in [0, 10, 20] {
            log.begin(Instant::from_millis(sent_ms), 100);
        }
        for (number, at_ms) in [(1, 30), (0, 40), (1, 50), (9, 60)] {
            log.received(Instant::from_millis(at_ms), number);
        }
        log
    }

    #[test]
    fn a_message_counts_once_and_its_duplicates_are_counted() {
        for keep in [true, false] {
            let (rows, results) = log(keep).finish();
            assert_eq!((results.written, results.delivered_bytes, results.duplicates), (3, 200, 2), "{keep}");
            assert_eq!(results.delays.count(), 2);
            assert_eq!(rows.len(), if keep { 3 } else { 0 });
        }
    }

    #[test]
    fn read_messages_are_dropped_unless_they_are_kept() {
        assert_eq!(log(false).rows.iter().map(|row| row.number).collect::<Vec<_>>(), [2]);
    }
}
