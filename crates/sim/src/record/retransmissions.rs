//! Retransmitted and re-injected payload bytes.

use std::collections::VecDeque;

use crate::record::rows::PacketRow;

/// Distance from the newest byte up to which bytes are remembered. No receive
/// window is larger, so older bytes are acknowledged and not retransmitted.
const WINDOW_BYTES: u64 = 64 << 20;
/// Maximum length of a range, so that old bytes can be forgotten in steps.
const MAX_RANGE_BYTES: u64 = 1 << 20;

/// Remembers the bytes sent, per direction, and counts those that a packet
/// repeats. It has at most one range per packet of the last 64 MiB.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    /// Up, then down.
    sent: [Sent; 2],
}

/// Bytes of a packet that were sent before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeat {
    /// Bytes sent before, but only over other subflows.
    pub reinjected_bytes: u64,
    /// Bytes sent before over the same subflow.
    pub retransmitted_bytes: u64,
}

impl Repeats {
    /// Adds a packet that enters a link. For plain TCP, which has no data
    /// sequence numbers, TCP's sequence numbers are used.
    pub fn note(&mut self, packet: &PacketRow) -> Repeat {
        let (Some(subflow), 1..) = (packet.subflow, packet.payload_bytes) else {
            return Repeat::default();
        };
        let sent = &mut self.sent[packet.direction as usize];
        let start = packet.dsn.unwrap_or_else(|| sent.unwrapped(packet.tcp_seq));
        sent.note(subflow, start, u64::from(packet.payload_bytes))
    }
}

/// Ranges of bytes sent, ascending and disjoint. New bytes nearly always follow
/// the newest, so most packets change only the last range.
#[derive(Clone, Debug, Default)]
struct Sent {
    ranges: VecDeque<Range>,
    highest: u64,
}

/// Bytes sent over the same subflows (one bit each; from 63 on they share one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    subflows: u64,
}

impl Sent {
    /// The 64-bit sequence number nearest to the highest one with these low 32
    /// bits.
    fn unwrapped(&self, number: u32) -> u64 {
        let ahead = number.wrapping_sub(self.highest as u32) as i32;
        self.highest.saturating_add_signed(i64::from(ahead))
    }

    fn note(&mut self, subflow: u16, start: u64, bytes: u64) -> Repeat {
        let end = start.saturating_add(bytes);
        let subflows = 1_u64 << subflow.min(63);
        let mut repeat = Repeat::default();
        if start >= self.ranges.back().map_or(0, |last| last.end) {
            self.append(Range { start, end, subflows });
        } else {
            repeat = self.repeat(start, end, subflows);
        }
        self.highest = self.highest.max(end);
        while self.ranges.front().is_some_and(|first| first.end.saturating_add(WINDOW_BYTES) < self.highest) {
            self.ranges.pop_front();
        }
        repeat
    }

    fn append(&mut self, range: Range) {
        match self.ranges.back_mut() {
            Some(last)
                if last.end == range.start
                    && last.subflows == range.subflows
                    && range.end - last.start <= MAX_RANGE_BYTES =>
            {
                last.end = range.end;
            }
            _ => self.ranges.push_back(range),
        }
    }

    fn repeat(&mut self, start: u64, end: u64, subflows: u64) -> Repeat {
        self.split(start);
        self.split(end);
        let mut repeat = Repeat::default();
        let mut place = self.ranges.partition_point(|range| range.end <= start);
        let mut covered = start;
        while covered < end {
            let next = self.ranges.get_mut(place).filter(|range| range.start < end);
            let until = next.as_ref().map_or(end, |range| range.start);
            match next {
                Some(range) if range.start == covered => {
                    if range.subflows & subflows == 0 {
                        repeat.reinjected_bytes += range.end - range.start;
                    } else {
                        repeat.retransmitted_bytes += range.end - range.start;
                    }
                    range.subflows |= subflows;
                    covered = range.end;
                }
                _ => {
                    self.ranges.insert(place, Range { start: covered, end: until, subflows });
                    covered = until;
                }
            }
            place += 1;
        }
        repeat
    }

    fn split(&mut self, at: u64) {
        let place = self.ranges.partition_point(|range| range.end <= at);
        if let Some(range) = self.ranges.get_mut(place)
            && range.start < at
        {
            let tail = Range { start: at, ..*range };
            range.end = at;
            self.ranges.insert(place + 1, tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeat(reinjected_bytes: u64, retransmitted_bytes: u64) -> Repeat {
        Repeat { reinjected_bytes, retransmitted_bytes }
    }

    #[test]
    fn bytes_sent_over_another_subflow_are_reinjected_and_over_the_same_retransmitted() {
        let mut sent = Sent::default();
        assert_eq!(sent.note(0, 0, 1000), repeat(0, 0));
        assert_eq!(sent.note(0, 1000, 1000), repeat(0, 0));
        assert_eq!(sent.note(1, 500, 1000), repeat(1000, 0));
        assert_eq!(sent.note(1, 1400, 1000), repeat(500, 100));
        assert_eq!(sent.note(0, 0, 2400), repeat(400, 2000));
    }

    #[test]
    fn a_hole_is_filled_without_counting_as_a_repeat() {
        let mut sent = Sent::default();
        sent.note(0, 0, 100);
        sent.note(0, 200, 100);
        assert_eq!(sent.note(1, 100, 100), repeat(0, 0));
        assert_eq!(sent.note(1, 0, 300), repeat(200, 100));
    }

    /// Compares the ranges with a model that has one entry per byte.
    #[test]
    fn ranges_agree_with_a_model_of_single_bytes() {
        let mut rng = crosslane_core::rng::Rng::new(1, "repeats");
        let (mut sent, mut bytes) = (Sent::default(), vec![0_u64; 4000]);
        let mut newest = 0;
        for _ in 0..20_000 {
            let (subflow, length) = (rng.below(3) as u16, 1 + u64::from(rng.below(90)));
            let start = if rng.chance(0.5) { newest } else { u64::from(rng.below(newest as u32 + 50)) };
            let start = start.min(4000 - length);
            let mut expected = Repeat::default();
            for byte in &mut bytes[start as usize..(start + length) as usize] {
                match *byte & 1 << subflow {
                    _ if *byte == 0 => {}
                    0 => expected.reinjected_bytes += 1,
                    _ => expected.retransmitted_bytes += 1,
                }
                *byte |= 1 << subflow;
            }
            assert_eq!(sent.note(subflow, start, length), expected);
            newest = newest.max(start + length);
            if rng.chance(0.01) {
                (sent, newest) = (Sent::default(), 0);
                bytes.fill(0);
            }
        }
    }

    #[test]
    fn old_bytes_are_forgotten() {
        let mut sent = Sent::default();
        for place in 0..100_000_u64 {
            sent.note(0, place * 1400, 1400);
        }
        assert!(sent.ranges.len() as u64 <= WINDOW_BYTES / 1400 + 2);
        assert_eq!(sent.note(1, 0, 1400), repeat(0, 0));
    }

    #[test]
    fn sequence_numbers_of_plain_tcp_go_on_after_four_gigabytes() {
        let sent = Sent { highest: (1 << 32) + 10, ..Sent::default() };
        assert_eq!(sent.unwrapped(20), (1 << 32) + 20);
        assert_eq!(sent.unwrapped(u32::MAX), (1 << 32) - 1);
    }
}
