//! The packets in flight on a path, by path sequence number.

use alloc::collections::VecDeque;
use core::ops::RangeInclusive;

use crate::time::{Duration, Instant};
use crate::tunnel::retransmit_queue::Retransmittable;
use crate::tunnel::wire::gre_key::{NUMBER_BITS, unwrap};

/// Maximum number of packets in flight.
const MAX_PACKETS: usize = 65_536;

/// A packet in flight.
#[derive(Debug)]
pub(super) struct SentPacket<P> {
    pub(super) sent: Instant,
    /// When the time for its feedback begins: later than its sending if its report, or that of a later packet, may
    /// be late.
    timed_from: Instant,
    pub(super) bytes: u32,
    /// A path MTU probe: its loss is not counted as a loss of the path.
    pub(super) is_mtu_probe: bool,
    pub(super) copy: Option<Retransmittable<P>>,
}

/// Packets in flight, the oldest first.
#[derive(Debug)]
pub(in super::super) struct InFlight<P> {
    /// The next path sequence number.
    pub(super) next: u64,
    packets: VecDeque<SentPacket<P>>,
    pub(super) bytes: u64,
    /// Number of kept copies.
    copies: usize,
    /// Send time of the newest packet, in flight or not; before any, the start.
    pub(super) last_sent: Instant,
}

impl<P> InFlight<P> {
    /// Nothing in flight; `next` is the first sequence number.
    pub(super) fn new(now: Instant, next: u64) -> InFlight<P> {
        InFlight { next, packets: VecDeque::new(), bytes: 0, copies: 0, last_sent: now }
    }

    /// Adds a packet that is sent now, whose report may be later by `leniency`, and returns its path sequence
    /// number. Beyond the limit, the oldest is forgotten.
    pub(super) fn push(
        &mut self,
        now: Instant,
        bytes: u32,
        copy: Option<Retransmittable<P>>,
        leniency: Duration,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        if self.packets.len() == MAX_PACKETS {
            self.pop_oldest();
        }
        self.copies += usize::from(copy.is_some());
        let timed_from = now + leniency;
        // The report of this packet covers those before it.
        let later = self.packets.iter_mut().rev().take_while(|packet| packet.timed_from > timed_from);
        later.for_each(|packet| packet.timed_from = timed_from);
        self.packets.push_back(SentPacket { sent: now, timed_from, bytes, is_mtu_probe: false, copy });
        self.bytes += u64::from(bytes);
        self.last_sent = now;
        number
    }

    /// Marks the packet sent last as a path MTU probe.
    pub(in super::super) fn mark_mtu_probe(&mut self) {
        self.packets.iter_mut().next_back().into_iter().for_each(|packet| packet.is_mtu_probe = true);
    }

    /// The sequence numbers that a report covers for the first time, given its highest (modulo 2²⁴); `None`
    /// if that is not in flight.
    pub(super) fn covered_by(&self, highest: u32) -> Option<RangeInclusive<u64>> {
        let first = self.next - self.packets.len() as u64;
        let highest = unwrap(self.next, highest, NUMBER_BITS);
        (first..self.next).contains(&highest).then_some(first..=highest)
    }

    /// Makes the feedback on all packets due at its usual time.
    pub(in super::super) fn end_leniency(&mut self) {
        let late = self.packets.iter_mut().rev();
        late.for_each(|packet| packet.timed_from = packet.timed_from.min(packet.sent));
    }

    /// Removes the oldest packet.
    pub(super) fn pop_oldest(&mut self) -> Option<SentPacket<P>> {
        let oldest = self.packets.pop_front()?;
        self.bytes -= u64::from(oldest.bytes);
        self.copies -= usize::from(oldest.copy.is_some());
        Some(oldest)
    }

    /// Takes the kept copies of all packets.
    pub(in super::super) fn take_copies(&mut self) -> VecDeque<Retransmittable<P>> {
        if self.copies == 0 {
            return VecDeque::new();
        }
        self.copies = 0;
        self.packets.iter_mut().filter_map(|packet| packet.copy.take()).collect()
    }

    /// Takes the kept copies of the oldest packets, as long as `may` allows their bytes.
    pub(in super::super) fn take_copies_while(
        &mut self,
        sent_before: Instant,
        mut may: impl FnMut(u32) -> bool,
    ) -> VecDeque<Retransmittable<P>> {
        let late = self.packets.iter_mut().take_while(|packet| packet.timed_from <= sent_before);
        let kept = late.filter(|packet| packet.copy.is_some());
        let taken: VecDeque<_> =
            kept.take_while(|packet| may(packet.bytes)).filter_map(|packet| packet.copy.take()).collect();
        self.copies -= taken.len();
        taken
    }

    /// Forgets all packets.
    pub(super) fn clear(&mut self) {
        self.packets.clear();
        (self.bytes, self.copies) = (0, 0);
    }

    /// Frees the unused memory if nothing is in flight.
    pub(in super::super) fn release_memory(&mut self) {
        if self.packets.is_empty() {
            self.packets.shrink_to_fit();
        }
    }

    /// Send time of the oldest packet.
    pub(super) fn oldest_sent(&self) -> Option<Instant> {
        self.packets.front().map(|packet| packet.sent)
    }

    /// When the time for the feedback on the oldest packet begins of which a copy is kept.
    pub(super) fn oldest_kept_timed_from(&self) -> Option<Instant> {
        let kept = (self.copies > 0).then(|| self.packets.iter().find(|packet| packet.copy.is_some()));
        kept.flatten().map(|packet| packet.timed_from)
    }

    /// When the time for the feedback on the oldest packet begins.
    pub(super) fn oldest_timed_from(&self) -> Option<Instant> {
        self.packets.front().map(|packet| packet.timed_from)
    }

    /// When the time for the feedback begins on the oldest packet, and on the oldest of which a copy is kept. A packet that
    /// is sent brings no timer of its path forward but by these.
    pub(in super::super) fn timed_from(&self) -> [Option<Instant>; 2] {
        [self.oldest_timed_from(), self.oldest_kept_timed_from()]
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::fq_codel::Queued;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// Three packets of 100 bytes in flight, the first numbered `next`.
    fn three(next: u64) -> InFlight<u8> {
        let mut in_flight = InFlight::new(at(1), next);
        for number in 0..3 {
            let queued = Queued { flow: 0, bytes: 100, bulk: false, arrived: at(1), packet: 7 };
            let copy = (number != 1).then(|| Retransmittable::new(at(1), queued, 0));
            assert_eq!(in_flight.push(at(2 + number), 100, copy, Duration::ZERO), next + number);
        }
        in_flight
    }

    #[test]
    fn a_report_covers_what_is_in_flight_up_to_its_highest_number() {
        for next in [0, 10, (1 << 32) - 2, (5 << 32) - 1] {
            let mut in_flight = three(next);
            let highest = |number: u64| (next + number) as u32;
            assert_eq!(in_flight.covered_by(highest(1)), Some(next..=next + 1));
            assert_eq!(in_flight.covered_by(highest(3)), None, "it was not sent yet");
            assert_eq!(in_flight.pop_oldest().map(|packet| packet.sent), Some(at(2)));
            assert_eq!(in_flight.covered_by(highest(0)), None, "it was reported before");
            assert_eq!(in_flight.covered_by(highest(2)), Some(next + 1..=next + 2));
        }
    }

    #[test]
    fn bytes_and_times_follow_the_packets() {
        let mut in_flight = three(0);
        assert_eq!((in_flight.bytes, in_flight.oldest_sent(), in_flight.last_sent), (300, Some(at(2)), at(4)));
        in_flight.pop_oldest();
        assert_eq!((in_flight.bytes, in_flight.oldest_sent()), (200, Some(at(3))));
        in_flight.clear();
        assert_eq!((in_flight.bytes, in_flight.oldest_sent(), in_flight.last_sent), (0, None, at(4)));
        in_flight.release_memory();
        assert_eq!((in_flight.packets.capacity(), in_flight.next), (0, 3));
    }

    #[test]
    fn a_copy_is_taken_once() {
        let mut in_flight = three(0);
        assert_eq!((in_flight.take_copies().len(), in_flight.take_copies().len(), in_flight.len()), (2, 0, 3));
    }

    #[test]
    fn the_feedback_on_a_packet_is_due_no_later_than_that_on_its_successors() {
        let mut in_flight: InFlight<u8> = InFlight::new(at(0), 0);
        for (ms, leniency_ms, timed_ms) in [(10, 92, 102), (20, 92, 102), (30, 0, 30), (40, 92, 30)] {
            in_flight.push(at(ms), 60, None, Duration::from_millis(leniency_ms));
            assert_eq!(in_flight.oldest_timed_from(), Some(at(timed_ms)));
        }
        for _ in 0..3 {
            in_flight.pop_oldest();
        }
        assert_eq!((in_flight.oldest_sent(), in_flight.oldest_timed_from()), (Some(at(40)), Some(at(132))));
        in_flight.end_leniency();
        assert_eq!(in_flight.oldest_timed_from(), Some(at(40)));
    }

    #[test]
    fn packets_in_flight_are_limited() {
        let mut in_flight: InFlight<u8> = InFlight::new(at(1), 0);
        for _ in 0..MAX_PACKETS + 5000 {
            in_flight.push(at(1), 100, None, Duration::ZERO);
        }
        assert_eq!((in_flight.len(), in_flight.bytes), (MAX_PACKETS, MAX_PACKETS as u64 * 100));
    }
}
