//! Which payload bytes were sent before, and over which subflow.

use std::collections::BTreeMap;

use crosslane_core::link::Direction;

use crate::records::PacketRow;

/// How far behind the newest byte a byte is remembered. No receive window is
/// larger, so older bytes are acknowledged and are not sent again.
const WINDOW_BYTES: u64 = 64 << 20;

/// Remembers what was sent, per direction, and tells what a packet repeats.
/// Holds at most one range per packet of the last 64 MiB.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    up: Sent,
    down: Sent,
}

/// What a packet repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeat {
    /// Bytes sent before, but only over other subflows.
    pub reinjected_bytes: u64,
    /// Bytes sent before over the same subflow.
    pub retransmitted_bytes: u64,
}

impl Repeats {
    /// Takes note of a packet that enters a link. Plain TCP has no data
    /// sequence numbers; there the sequence numbers of TCP serve.
    pub fn note(&mut self, packet: &PacketRow) -> Repeat {
        let (Some(subflow), 1..) = (packet.subflow, packet.payload_bytes) else {
            return Repeat::default();
        };
        let sent = match packet.direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        };
        let start = packet.dsn.unwrap_or_else(|| sent.unwrapped(packet.tcp_seq));
        sent.note(subflow, start, u64::from(packet.payload_bytes))
    }
}

/// Ranges of bytes sent, by their start; the value is the end and the set of
/// subflows (one bit each; from 63 on they share one).
#[derive(Clone, Debug, Default)]
struct Sent {
    ranges: BTreeMap<u64, (u64, u64)>,
    highest: u64,
}

impl Sent {
    /// The 64-bit number nearest to the highest one that ends in these 32 bits.
    fn unwrapped(&self, number: u32) -> u64 {
        let ahead = number.wrapping_sub(self.highest as u32) as i32;
        self.highest.saturating_add_signed(i64::from(ahead))
    }

    fn note(&mut self, subflow: u16, start: u64, bytes: u64) -> Repeat {
        let end = start.saturating_add(bytes);
        let bit = 1_u64 << subflow.min(63);
        self.split(start);
        self.split(end);
        let mut repeat = Repeat::default();
        let mut gaps = Vec::new();
        let mut covered = start;
        for (&from, (to, subflows)) in self.ranges.range_mut(start..end) {
            if *subflows & bit == 0 {
                repeat.reinjected_bytes += *to - from;
            } else {
                repeat.retransmitted_bytes += *to - from;
            }
            *subflows |= bit;
            if from > covered {
                gaps.push((covered, from));
            }
            covered = *to;
        }
        if covered < end {
            gaps.push((covered, end));
        }
        self.ranges.extend(gaps.into_iter().map(|(from, to)| (from, (to, bit))));
        self.highest = self.highest.max(end);
        self.forget();
        repeat
    }

    fn split(&mut self, at: u64) {
        let Some((_, range)) = self.ranges.range_mut(..at).next_back() else {
            return;
        };
        if range.0 > at {
            let tail = *range;
            range.0 = at;
            self.ranges.insert(at, tail);
        }
    }

    fn forget(&mut self) {
        while let Some(first) = self.ranges.first_entry() {
            if first.get().0.saturating_add(WINDOW_BYTES) >= self.highest {
                break;
            }
            first.remove();
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
