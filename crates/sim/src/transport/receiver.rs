//! The receiver of a subflow: it reorders segments and decides when to acknowledge
//! them.
//!
//! Acknowledgements follow Linux (`__tcp_ack_snd_check`, `tcp_cleanup_rbuf`): at
//! once for more than one full segment, for anything out of order, for the
//! first segments of a subflow, and when the application has read data that the
//! sender pushed; otherwise delayed by 40 ms (RFC 9293 §3.8.6.3).

use std::collections::BTreeMap;

use crosslane_core::time::{Duration, Instant};

use super::clock::Ticks;
use super::sack::{Block, Sack, SackList};

/// Delay of an acknowledgement (Linux `TCP_DELACK_MIN`).
const DELAY: Duration = Duration::from_millis(40);
/// Segments acknowledged at once when a subflow begins (Linux
/// `TCP_MAX_QUICKACKS`).
const QUICK: u32 = 16;

/// A mapping of the connection's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Data sequence number of its first byte.
    pub dsn: u64,
    /// Length, in bytes.
    pub len: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Receiver {
    ticks: Ticks,
    /// Next byte expected.
    next: u64,
    /// Out-of-order segments, by sequence number; at most a window.
    early: BTreeMap<u64, Mapping>,
    /// Sequence number last acknowledged.
    pub(super) acknowledged: u64,
    full: u64,
    quick: u32,
    /// When a delayed acknowledgement is due.
    pub due: Option<Instant>,
    now: bool,
    pushed: bool,
    sacks: SackList,
    /// Receiver's estimate of the round-trip time; `None` before the first
    /// sample.
    pub rtt: Option<Duration>,
    /// Echo of the last sample.
    echo: Instant,
    /// Payload bytes received, without duplicates.
    pub bytes_received: u64,
    /// Segments with data received (Linux `data_segs_in`).
    pub segments: u32,
    /// Segments received out of order (Linux `rcv_ooopack`).
    pub out_of_order: u32,
}

impl Receiver {
    /// A receiver after the SYN.
    pub fn new(ticks: Ticks) -> Receiver {
        Receiver { ticks, next: 1, acknowledged: 1, full: 536, quick: QUICK, ..Receiver::default() }
    }

    /// Adds the payload of a segment, and appends the mappings that are now in
    /// order to `ordered`; `pushed` if the segment had PSH.
    pub fn receive(&mut self, now: Instant, seq: u64, mapping: Mapping, pushed: bool, ordered: &mut Vec<Mapping>) {
        self.segments += 1;
        self.pushed |= pushed;
        self.full = self.full.max(mapping.len);
        let segment = (seq, seq + mapping.len);
        if segment.1 <= self.next {
            return self.reject(segment);
        }
        if seq != self.next {
            self.out_of_order += 1;
            self.sacks.add(segment);
            if self.early.insert(seq, mapping).is_some() {
                self.sacks.add_duplicate(segment);
            }
            self.now = true;
            return;
        }
        self.advance(mapping, ordered);
        let filled = !self.early.is_empty();
        while let Some(first) = self.early.first_entry().filter(|first| *first.key() <= self.next) {
            let mapping = first.remove();
            self.advance(mapping, ordered);
        }
        self.sacks.advance(self.next);
        if filled || self.next - self.acknowledged > self.full || self.quick > 0 {
            self.quick = self.quick.saturating_sub(1);
            self.now = true;
        } else {
            self.due = self.due.or(Some(self.ticks.after(now, DELAY)));
        }
    }

    /// Updates the RTT estimate with a full segment that echoes the time `echo`
    /// (RFC 7323; Linux `tcp_rcv_rtt_measure_ts`): a shorter RTT applies
    /// immediately, a longer one with weight 1/8.
    pub fn measure(&mut self, now: Instant, echo: Instant, len: u64) {
        if len < self.full || echo <= self.echo {
            return;
        }
        self.echo = echo;
        let sample = now.since(echo);
        self.rtt = Some(self.rtt.map_or(sample, |rtt| sample.min((rtt * 7 + sample) / 8)));
    }

    /// Notes that the application has read the data.
    pub fn read(&mut self) {
        self.now |= self.pushed && self.next > self.acknowledged;
    }

    /// True if an acknowledgement is due at `now`.
    pub fn wants_ack(&self, now: Instant) -> bool {
        self.now || self.due.is_some_and(|due| due <= now)
    }

    /// Acknowledgement number and SACK blocks of a segment that is sent now and has space for so many.
    pub fn acknowledge(&mut self, blocks: usize) -> (u64, Sack) {
        (self.now, self.pushed, self.due, self.acknowledged) = (false, false, None, self.next);
        (self.next, self.sacks.take(blocks))
    }

    /// A segment is not accepted: it is answered at once, and reported if it had arrived before (Linux
    /// `tcp_send_dupack`).
    pub(super) fn reject(&mut self, segment: Block) {
        if segment.1 <= self.next {
            self.sacks.add_duplicate(segment);
        }
        self.now = true;
    }

    fn advance(&mut self, mapping: Mapping, ordered: &mut Vec<Mapping>) {
        self.next += mapping.len;
        self.bytes_received += mapping.len;
        ordered.push(mapping);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(receiver: &mut Receiver, ms: u64, seq: u64, len: u64) -> Vec<Mapping> {
        let mut ordered = Vec::new();
        receiver.receive(Instant::from_millis(ms), seq, Mapping { dsn: seq - 1, len }, false, &mut ordered);
        ordered
    }

    fn settled() -> Receiver {
        let mut receiver = Receiver::new(Ticks::default());
        for i in 0..QUICK as u64 {
            assert_eq!(take(&mut receiver, 0, 1 + i * 1000, 1000).len(), 1);
            assert!(receiver.wants_ack(Instant::ZERO), "the first segments are acknowledged at once");
            receiver.acknowledge(1);
        }
        receiver
    }

    #[test]
    fn the_ack_of_one_segment_is_delayed_by_40_ms_and_a_second_segment_ends_the_delay() {
        let mut receiver = settled();
        take(&mut receiver, 100, 16_001, 1000);
        assert!(!receiver.wants_ack(Instant::from_millis(143)));
        assert!(receiver.wants_ack(Instant::from_millis(144)));
        take(&mut receiver, 110, 17_001, 1000);
        assert!(receiver.wants_ack(Instant::from_millis(110)));
        assert_eq!(receiver.acknowledge(1).0, 18_001);
        assert!(!receiver.wants_ack(Instant::from_millis(500)));
    }

    #[test]
    fn pushed_data_is_acknowledged_when_it_has_been_read() {
        let mut receiver = settled();
        take(&mut receiver, 100, 16_001, 1000);
        receiver.read();
        assert!(!receiver.wants_ack(Instant::from_millis(100)));
        receiver.acknowledge(1);
        receiver.receive(Instant::from_millis(120), 17_001, Mapping { dsn: 17_000, len: 1000 }, true, &mut Vec::new());
        receiver.read();
        assert!(receiver.wants_ack(Instant::from_millis(120)));
    }

    #[test]
    fn a_hole_is_reported_with_the_sack_block_after_it() {
        let mut receiver = settled();
        assert!(take(&mut receiver, 100, 17_001, 1000).is_empty());
        assert!(take(&mut receiver, 101, 18_001, 1000).is_empty());
        assert!(receiver.wants_ack(Instant::from_millis(101)));
        assert_eq!(receiver.acknowledge(1), (16_001, Sack::new([(17_001, 19_001)], 1)));
        let ordered = take(&mut receiver, 102, 16_001, 1000);
        assert_eq!(ordered.iter().map(|mapping| mapping.dsn).collect::<Vec<_>>(), [16_000, 17_000, 18_000]);
        assert!(receiver.wants_ack(Instant::from_millis(102)), "a filled hole is acknowledged at once");
        assert_eq!(receiver.acknowledge(1), (19_001, Sack::default()));
    }

    #[test]
    fn full_segments_measure_the_rtt_and_a_shorter_one_applies_at_once() {
        let mut receiver = settled();
        receiver.measure(Instant::from_millis(900), Instant::from_millis(100), 100);
        assert_eq!(receiver.rtt, None, "a small segment may have waited for its writer");
        receiver.measure(Instant::from_millis(300), Instant::from_millis(200), 1000);
        receiver.measure(Instant::from_millis(400), Instant::from_millis(200), 1000);
        assert_eq!(receiver.rtt, Some(Duration::from_millis(100)), "one sample for each echo");
        receiver.measure(Instant::from_millis(480), Instant::from_millis(300), 1000);
        assert_eq!(receiver.rtt, Some(Duration::from_millis(110)));
        receiver.measure(Instant::from_millis(450), Instant::from_millis(400), 1000);
        assert_eq!(receiver.rtt, Some(Duration::from_millis(50)));
    }

    #[test]
    fn duplicate_segments_count_once() {
        let mut receiver = settled();
        assert!(take(&mut receiver, 100, 1, 1000).is_empty());
        assert!(receiver.wants_ack(Instant::from_millis(100)), "the sender must be notified");
        assert_eq!(receiver.bytes_received, 16_000);
        assert_eq!(receiver.acknowledge(1).1.duplicate(16_001), Some((1, 1001)), "and reported to it");
    }
}
