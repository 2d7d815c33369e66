//! Packets that wait for retransmission.

use alloc::collections::VecDeque;

use super::fq_codel::Queued;
use crate::path::PathId;
use crate::time::{Duration, Instant};

/// Retransmission of a packet ends this long after its first transmission. After an outage the inner TCP has
/// retransmitted one packet only, and waits for longer each time.
const RETRANSMIT_WITHIN: Duration = Duration::from_secs(2);
/// Maximum number of packets queued for retransmission.
const MAX_PACKETS: usize = 8192;
/// Maximum number of retransmissions of a packet. A packet lost each time reaches about this number within
/// [`RETRANSMIT_WITHIN`]; only a peer with false reports exceeds it.
pub(super) const MAX_RETRANSMISSIONS: u8 = 8;

/// A packet kept for retransmission.
#[derive(Clone, Debug)]
pub(super) struct Retransmittable<P> {
    pub packet: P,
    pub bytes: u32,
    pub flow: u8,
    /// Whether its flow was bulk.
    pub bulk: bool,
    pub sequence: u32,
    /// Whether the peer reported it lost: its path did not fail, nor is it only late.
    pub is_lost: bool,
    /// The path that delays it, of a packet that is sent again before its loss is proved.
    pub avoid: Option<PathId>,
    /// Retransmission ends at this time.
    until: Instant,
    /// Retransmissions left.
    tries: u8,
}

impl<P> Retransmittable<P> {
    /// A packet that is sent for the first time now, with its flow sequence number.
    pub(super) fn new(now: Instant, queued: Queued<P>, sequence: u32) -> Retransmittable<P> {
        let Queued { packet, bytes, flow, bulk, .. } = queued;
        let until = now + RETRANSMIT_WITHIN;
        let tries = MAX_RETRANSMISSIONS;
        Retransmittable { packet, bytes, flow, bulk, sequence, is_lost: false, avoid: None, until, tries }
    }

    /// Takes one of the retransmissions that are left; false without any.
    pub(super) fn take_try(&mut self) -> bool {
        let is_left = self.tries > 0;
        self.tries = self.tries.saturating_sub(1);
        is_left
    }

    /// The same, to be sent on another path than this.
    pub(super) fn avoiding(self, path: PathId) -> Retransmittable<P> {
        Retransmittable { avoid: Some(path), ..self }
    }
}

/// The queue, in the order in which a retransmission was found necessary.
#[derive(Debug)]
pub(super) struct RetransmitQueue<P> {
    pub packets: VecDeque<Retransmittable<P>>,
}

impl<P> RetransmitQueue<P> {
    pub(super) fn new() -> RetransmitQueue<P> {
        RetransmitQueue { packets: VecDeque::new() }
    }

    /// Queues packets that the peer reported lost.
    pub(super) fn push_lost(&mut self, now: Instant, lost: impl IntoIterator<Item = Retransmittable<P>>) {
        self.push(now, lost.into_iter().map(|copy| Retransmittable { is_lost: true, ..copy }));
    }

    /// Queues packets that another path is to carry.
    pub(super) fn push_moved(&mut self, now: Instant, moved: impl IntoIterator<Item = Retransmittable<P>>) {
        self.push(now, moved.into_iter().map(|copy| Retransmittable { is_lost: false, ..copy }));
    }

    /// Queues packets, except those that are too old or were retransmitted too often.
    fn push(&mut self, now: Instant, copies: impl Iterator<Item = Retransmittable<P>>) {
        for mut copy in copies {
            if copy.until > now && self.packets.len() < MAX_PACKETS && copy.take_try() {
                self.packets.push_back(copy);
            }
        }
    }

    /// The next packet, after dropping those that are too old.
    pub(super) fn front(&mut self, now: Instant) -> Option<&Retransmittable<P>> {
        while self.packets.front().is_some_and(|copy| copy.until <= now) {
            self.packets.pop_front();
        }
        self.packets.front()
    }

    /// Drops packets that are too old, and frees the memory of an empty queue.
    pub(super) fn expire(&mut self, now: Instant) {
        self.packets.retain(|copy| copy.until > now);
        if self.packets.is_empty() {
            self.packets.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// A packet first sent at 20 ms.
    fn copy(packet: u32) -> Retransmittable<u32> {
        let queued = Queued { flow: 1, bytes: 1400, bulk: false, arrived: at(10), packet };
        Retransmittable::new(at(20), queued, 0)
    }

    #[test]
    fn packets_leave_in_order_until_2_s_after_their_first_transmission() {
        let mut queue = RetransmitQueue::new();
        queue.push_lost(at(30), [copy(1), copy(2)]);
        assert_eq!(queue.front(at(2019)).map(|copy| copy.packet), Some(1));
        assert_eq!(queue.packets.pop_front().map(|copy| copy.packet), Some(1));
        assert!(queue.front(at(2020)).is_none());
        queue.push_lost(at(2020), [copy(3)]);
        assert_eq!(queue.packets.len(), 0);
    }

    #[test]
    fn expired_packets_free_their_memory() {
        let mut queue = RetransmitQueue::new();
        queue.push_lost(at(30), (0..100).map(copy));
        queue.expire(at(2019));
        assert_eq!(queue.packets.len(), 100);
        queue.expire(at(2020));
        assert_eq!((queue.packets.len(), queue.packets.capacity()), (0, 0));
    }

    #[test]
    fn the_queue_and_the_retransmissions_of_a_packet_are_limited() {
        let mut queue = RetransmitQueue::new();
        queue.push_lost(at(30), (0..MAX_PACKETS as u32 + 100).map(copy));
        assert_eq!(queue.packets.len(), MAX_PACKETS);
        queue.packets.clear();
        queue.push_lost(at(30), [copy(1)]);
        let mut times = 0;
        while let Some(copy) = queue.packets.pop_front() {
            times += 1;
            queue.push_lost(at(30), [copy]);
        }
        assert_eq!(times, MAX_RETRANSMISSIONS);
    }
}
