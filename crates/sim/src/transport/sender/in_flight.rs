//! The segments of a subflow that were sent and are not acknowledged in order.

use std::collections::VecDeque;

use crosslane_core::time::{Duration, Instant};

use super::super::receiver::Mapping;
use super::super::sack::Block;

/// State of the rate's estimator when a segment was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamp {
    pub(super) delivered: u64,
    pub(super) delivered_at: Instant,
    pub(super) first_sent: Instant,
    pub(super) app_limited: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    pub seq: u64,
    pub mapping: Mapping,
    /// Time of the last transmission.
    pub(super) at: Instant,
    pub(super) sacked: bool,
    pub(super) lost: bool,
    /// Retransmitted since it was marked lost.
    pub(super) retransmitted: bool,
    /// Sent more than once.
    pub(super) ever_retransmitted: bool,
    /// It ends the queued data (PSH).
    pub pushed: bool,
    pub(super) stamp: Stamp,
}

impl Sent {
    pub(super) fn end(&self) -> u64 {
        self.seq + self.mapping.len
    }
}

/// The segments, in order of their sequence number, with their counts.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    segments: VecDeque<Sent>,
    /// Their payload, in bytes.
    pub(super) bytes: u64,
    /// Segments that a selective acknowledgement named.
    pub sacked: u32,
    /// Segments marked lost.
    pub lost: u32,
    /// Retransmissions in flight.
    pub(super) retransmitted: u32,
    /// Highest sequence number that a selective acknowledgement named.
    newest_sacked: u64,
}

/// Result of [`InFlight::find_lost`].
#[derive(Debug, PartialEq)]
pub(super) struct FoundLost {
    /// Segments newly lost, also of those retransmitted.
    pub(super) count: u32,
    /// Retransmissions among them.
    pub(super) again: u32,
    /// Lowest sequence number among them.
    pub(super) lowest: u64,
    /// When the last of the others counts as lost.
    pub(super) wait: Option<Instant>,
}

impl InFlight {
    pub fn len(&self) -> u32 {
        self.segments.len() as u32
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Segments in the network (RFC 6675 §4, `pipe`).
    pub(super) fn pipe(&self) -> u32 {
        (self.len() + self.retransmitted).saturating_sub(self.sacked + self.lost)
    }

    /// True if a lost segment was not retransmitted.
    pub(super) fn needs_retransmission(&self) -> bool {
        self.lost > self.retransmitted
    }

    pub(super) fn front(&self) -> Option<&Sent> {
        self.segments.front()
    }

    pub(super) fn push(&mut self, sent: Sent) {
        self.bytes += sent.mapping.len;
        self.segments.push_back(sent);
    }

    /// Removes the oldest segment if everything below `ack` has arrived and it is
    /// below.
    pub(super) fn pop_acknowledged(&mut self, ack: u64) -> Option<Sent> {
        if self.segments.front()?.end() > ack {
            return None;
        }
        let head = self.segments.pop_front()?;
        self.bytes -= head.mapping.len;
        self.sacked -= u32::from(head.sacked);
        self.lost -= u32::from(head.lost);
        self.retransmitted -= u32::from(head.retransmitted);
        Some(head)
    }

    /// Sequence number of the newest segment that a selective acknowledgement named (Linux `tcp_highest_sack_seq`).
    pub(super) fn newest_sacked(&self) -> Option<u64> {
        (self.sacked > 0).then_some(self.newest_sacked)
    }

    /// Marks the segments within a block as arrived; `on_new` receives each that was
    /// not marked before, and whether a newer one was.
    pub(super) fn sack(&mut self, (begin, end): Block, mut on_new: impl FnMut(&Sent, bool)) {
        let first = self.segments.partition_point(|sent| sent.seq < begin);
        for sent in self.segments.range_mut(first..).take_while(|sent| sent.end() <= end) {
            if sent.sacked {
                continue;
            }
            on_new(sent, self.sacked > 0 && sent.seq < self.newest_sacked);
            self.newest_sacked = if self.sacked > 0 { self.newest_sacked.max(sent.seq) } else { sent.seq };
            self.sacked += 1;
            if sent.lost {
                self.lost -= 1;
                self.retransmitted -= u32::from(sent.retransmitted);
                (sent.lost, sent.retransmitted) = (false, false);
            }
            sent.sacked = true;
        }
    }

    /// Number of the segments within a block that arrived twice which were retransmitted.
    pub(super) fn duplicates(&mut self, (begin, end): Block) -> u32 {
        let first = self.segments.partition_point(|sent| sent.seq < begin);
        let mut count = 0;
        for sent in self.segments.range_mut(first..).take_while(|sent| sent.end() <= end) {
            count += u32::from(sent.ever_retransmitted);
            self.retransmitted -= u32::from(sent.retransmitted);
            sent.retransmitted = false;
        }
        count
    }

    /// Nothing counts as lost any more.
    pub(super) fn unmark_lost(&mut self) {
        self.segments.iter_mut().for_each(|sent| sent.lost = false);
        self.lost = 0;
    }

    /// Marks lost what was sent before `latest` (time and end of a delivered segment)
    /// and `patience` ago.
    pub(super) fn find_lost(&mut self, now: Instant, latest: (Instant, u64), patience: Duration) -> FoundLost {
        let mut found = FoundLost { count: 0, again: 0, lowest: u64::MAX, wait: None };
        for sent in &mut self.segments {
            if sent.sacked || (sent.lost && !sent.retransmitted) {
                continue;
            }
            if (sent.at, sent.end()) >= latest {
                // Segments are in order of their first transmission.
                if !sent.ever_retransmitted {
                    break;
                }
                continue;
            }
            let due = sent.at + patience;
            if due > now {
                found.wait = Some(found.wait.map_or(due, |wait| wait.max(due)));
                continue;
            }
            found.lowest = found.lowest.min(sent.seq);
            found.count += 1;
            if sent.lost {
                sent.retransmitted = false;
                self.retransmitted -= 1;
                found.again += 1;
            } else {
                sent.lost = true;
                self.lost += 1;
            }
        }
        found
    }

    /// Marks everything lost that did not arrive, except what was sent less than `round`
    /// ago; always the oldest.
    pub(super) fn mark_all_lost(&mut self, now: Instant, round: Duration) {
        (self.lost, self.retransmitted) = (0, 0);
        for (place, sent) in self.segments.iter_mut().enumerate() {
            if !sent.sacked && (place == 0 || sent.at + round <= now) {
                (sent.lost, sent.retransmitted) = (true, false);
            }
            self.lost += u32::from(sent.lost);
            self.retransmitted += u32::from(sent.retransmitted);
        }
    }

    /// Index and sequence number of the first lost segment from `from` on that was not
    /// retransmitted.
    pub(super) fn next_lost(&self, from: u64) -> Option<(usize, u64)> {
        if !self.needs_retransmission() {
            return None;
        }
        let first = self.segments.partition_point(|sent| sent.seq < from);
        let offset = self.segments.range(first..).position(|sent| sent.lost && !sent.retransmitted)?;
        Some((first + offset, self.segments[first + offset].seq))
    }

    /// Index of the newest segment.
    pub(super) fn last(&self) -> Option<usize> {
        self.segments.len().checked_sub(1)
    }

    /// Notes that the segment at an index is sent again; returns it.
    pub(super) fn retransmit(&mut self, now: Instant, place: usize, stamp: Stamp) -> Sent {
        let sent = &mut self.segments[place];
        if sent.lost && !sent.retransmitted {
            sent.retransmitted = true;
            self.retransmitted += 1;
        }
        (sent.ever_retransmitted, sent.at, sent.stamp) = (true, now, stamp);
        *sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// Segments of 100 bytes from sequence number 1 on, sent every 10 ms.
    fn segments(count: u64) -> InFlight {
        let mut flight = InFlight::default();
        for number in 0..count {
            let mapping = Mapping { dsn: number * 100, len: 100 };
            flight.push(Sent { seq: 1 + number * 100, mapping, at: at(number * 10), ..Sent::default() });
        }
        flight
    }

    fn counts(flight: &InFlight) -> [u32; 4] {
        [flight.len(), flight.pipe(), flight.sacked, flight.lost]
    }

    #[test]
    fn acknowledged_segments_leave_with_their_counts() {
        let mut flight = segments(4);
        flight.sack((1, 101), |_, _| {});
        assert_eq!(counts(&flight), [4, 3, 1, 0]);
        assert_eq!(flight.pop_acknowledged(150).map(|sent| sent.seq), Some(1));
        assert!(flight.pop_acknowledged(150).is_none(), "half of the second has arrived");
        assert_eq!((counts(&flight), flight.bytes), ([3, 3, 0, 0], 300));
    }

    #[test]
    fn a_segment_is_sacked_once() {
        let (mut flight, mut new) = (segments(4), Vec::new());
        flight.sack((201, 301), |sent, late| new.push((sent.seq, late)));
        flight.sack((101, 401), |sent, late| new.push((sent.seq, late)));
        assert_eq!(new, [(201, false), (101, true), (301, false)]);
        assert_eq!(flight.newest_sacked(), Some(301));
        assert_eq!(counts(&flight), [4, 1, 3, 0]);
    }

    #[test]
    fn what_was_sent_before_a_delivered_segment_is_lost_after_the_patience() {
        let mut flight = segments(4);
        flight.sack((301, 401), |_, _| {});
        let latest = (at(30), 401);
        let found = flight.find_lost(at(50), latest, Duration::from_millis(35));
        assert_eq!(found, FoundLost { count: 2, again: 0, lowest: 1, wait: Some(at(55)) });
        assert_eq!((counts(&flight), flight.next_lost(0)), ([4, 1, 1, 2], Some((0, 1))));
        assert_eq!(flight.retransmit(at(51), 0, Stamp::default()).seq, 1);
        assert_eq!((counts(&flight), flight.next_lost(0)), ([4, 2, 1, 2], Some((1, 101))));
        assert!(flight.retransmitted > 0 && flight.needs_retransmission());
        flight.unmark_lost();
        assert_eq!((counts(&flight), flight.next_lost(0)), ([4, 4, 1, 0], None), "its retransmission is in flight too");
        assert_eq!((flight.duplicates((1, 101)), counts(&flight)), (1, [4, 3, 1, 0]));
    }

    #[test]
    fn after_a_timeout_everything_but_the_newest_is_lost() {
        let mut flight = segments(4);
        flight.sack((101, 201), |_, _| {});
        flight.mark_all_lost(at(45), Duration::from_millis(20));
        assert_eq!(counts(&flight), [4, 1, 1, 2], "the fourth was sent 15 ms ago");
    }
}
