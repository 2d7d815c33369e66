//! Packets that wait for a path: one queue per flow, served in turn by bytes (deficit round robin), new
//! flows first, each controlled by CoDel (after RFC 8290, with 256 flow slots).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::sparse_flow::SparseFlow;
use crate::link::CoDel;
use crate::link::codel::{State, Taken};
use crate::time::{Duration, Instant};

mod recent_rate;

use recent_rate::RecentRate;

/// Maximum number of queued packets over all flows: 100 ms at 1 Gbit/s.
const MAX_PACKETS: usize = 8192;
/// Maximum number of queued bytes.
const MAX_BYTES: u64 = MAX_PACKETS as u64 * 1500;
/// Maximum queueing time of a packet: its receiver is no longer reachable.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Bytes that a flow may send per turn.
const QUANTUM: i64 = 1514;
/// CoDel's target queueing time, if the RTT is not longer; the paths' delay difference is added. With this
/// target a CUBIC flow over 40 ms fills the paths.
const TARGET: Duration = Duration::from_millis(20);
const INTERVAL: Duration = Duration::from_millis(120);
/// CoDel drops nothing while fewer bytes wait than the best recent rate carries within this multiple of its
/// target. The rate of a radio falls by a factor of ten within a second and rises again: a flow that lost
/// packets in each fall would be too slow for each rise.
const ALLOWED_TARGETS: f64 = 1.5;

/// Delays of the paths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathDelays {
    /// Minimum RTT of the lowest-delay path in use.
    pub rtt: Duration,
    /// How much later a packet arrives on the highest-delay path in use.
    pub delay_difference: Duration,
}

impl PathDelays {
    /// BBR keeps up to two RTTs in flight, and CUBIC reduces its window by 30 % (RFC 9438, section 4.6):
    /// with a target far below one RTT the paths would run empty.
    fn codel(self) -> CoDel {
        let target = TARGET.max(self.rtt) + self.delay_difference;
        CoDel { target, interval: INTERVAL.max(self.rtt * 2) + self.delay_difference }
    }
}

/// The queue.
#[derive(Debug)]
pub(super) struct Queue<P> {
    slots: Vec<Slot<P>>,
    /// Flows to serve next; new flows before old ones.
    new_flows: VecDeque<u8>,
    old_flows: VecDeque<u8>,
    packets: usize,
    /// Queued bytes.
    pub bytes: u64,
    /// Number of dropped packets.
    pub dropped: u64,
    /// The packet taken from its flow that waits for room on a path; it counts in no sum.
    head: Option<Queued<P>>,
    /// The rate at which packets were taken.
    rate: RecentRate,
}

#[derive(Debug)]
struct Slot<P> {
    waiting: VecDeque<Queued<P>>,
    bytes: u64,
    codel: State,
    deficit: i64,
    scheduled: bool,
    /// What its packets of bulk protocols say.
    sparse: SparseFlow,
}

/// A queued packet.
#[derive(Clone, Debug)]
pub(super) struct Queued<P> {
    pub flow: u8,
    pub bytes: u32,
    pub bulk: bool,
    pub arrived: Instant,
    pub packet: P,
}

impl<P> Queue<P> {
    pub(super) fn new() -> Queue<P> {
        let slots = (0..=u8::MAX).map(|_| Slot::new()).collect();
        let (new_flows, old_flows) = (VecDeque::new(), VecDeque::new());
        Queue { slots, new_flows, old_flows, packets: 0, bytes: 0, dropped: 0, head: None, rate: RecentRate::default() }
    }

    /// Queues a packet, not as bulk if its flow is sparse; beyond the limits, the flow with the most bytes loses its
    /// oldest packet.
    pub(super) fn push(&mut self, mut waiting: Queued<P>) {
        let flow = waiting.flow;
        let slot = &mut self.slots[usize::from(flow)];
        if waiting.bulk {
            waiting.bulk = !slot.sparse.note(waiting.arrived, waiting.bytes, slot.bytes);
        }
        slot.bytes += u64::from(waiting.bytes);
        self.bytes += u64::from(waiting.bytes);
        slot.waiting.push_back(waiting);
        if !slot.scheduled {
            slot.scheduled = true;
            slot.deficit = QUANTUM;
            self.new_flows.push_back(flow);
        }
        self.packets += 1;
        while self.packets > MAX_PACKETS || self.bytes > MAX_BYTES {
            self.shed();
        }
    }

    /// Drops the oldest packet of the flow with the most bytes.
    pub(super) fn shed(&mut self) {
        if let Some(shed) = self.slots.iter_mut().max_by_key(|slot| slot.bytes).and_then(Slot::pop) {
            self.packets -= 1;
            self.bytes -= u64::from(shed.bytes);
            self.dropped += 1;
        }
    }

    /// Drops packets queued for too long, and frees the unused memory of empty queues.
    pub(super) fn expire(&mut self, now: Instant) {
        self.dropped += u64::from(self.head.take_if(|head| now.since(head.arrived) > MAX_WAIT).is_some());
        for slot in &mut self.slots {
            while slot.waiting.front().is_some_and(|oldest| now.since(oldest.arrived) > MAX_WAIT) {
                let removed = slot.pop().map_or(0, |removed| u64::from(removed.bytes));
                self.packets -= 1;
                self.bytes -= removed;
                self.dropped += 1;
            }
            if slot.waiting.is_empty() {
                slot.waiting.shrink_to_fit();
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Queued bytes of a flow.
    pub(super) fn backlog_bytes(&self, flow: u8) -> u64 {
        self.slots[usize::from(flow)].bytes
    }

    /// The next packet to send; it stays the next until it is taken.
    pub(super) fn head(&mut self, now: Instant, delays: PathDelays) -> Option<&Queued<P>> {
        let is_any_scheduled = !self.new_flows.is_empty() || !self.old_flows.is_empty();
        if self.head.is_none() && is_any_scheduled {
            self.head = self.take(now, delays);
        }
        self.head.as_ref()
    }

    /// Takes the packet that [`head`](Self::head) showed, if it has a path.
    pub(super) fn take_head_if(&mut self, has_path: bool) -> Option<Queued<P>> {
        self.head.take_if(|_| has_path)
    }

    fn take(&mut self, now: Instant, delays: PathDelays) -> Option<Queued<P>> {
        let mut codel = delays.codel();
        if (self.bytes as f64) < self.rate.max() * codel.target.as_secs_f64() * ALLOWED_TARGETS {
            codel.target = MAX_WAIT;
        }
        loop {
            let from_new = !self.new_flows.is_empty();
            let flow = *self.new_flows.front().or(self.old_flows.front())?;
            let slot = &mut self.slots[usize::from(flow)];
            if slot.deficit > 0 {
                let (before, bytes) = (slot.waiting.len(), slot.bytes);
                let taken = slot.take(codel, now);
                let removed = before - slot.waiting.len();
                self.packets -= removed;
                self.bytes -= bytes - slot.bytes;
                self.dropped += (removed - usize::from(taken.is_some())) as u64;
                if let Some(taken) = taken {
                    self.rate.note(now, taken.bytes);
                    return Some(taken);
                }
            }
            let list = if from_new { &mut self.new_flows } else { &mut self.old_flows };
            list.pop_front();
            if slot.waiting.is_empty() && !from_new {
                slot.scheduled = false;
            } else {
                slot.deficit += if slot.deficit <= 0 { QUANTUM } else { 0 };
                self.old_flows.push_back(flow);
            }
        }
    }
}

impl<P> Slot<P> {
    fn new() -> Slot<P> {
        let (codel, sparse) = (State::default(), SparseFlow::default());
        Slot { waiting: VecDeque::new(), bytes: 0, codel, deficit: 0, scheduled: false, sparse }
    }

    fn pop(&mut self) -> Option<Queued<P>> {
        let popped = self.waiting.pop_front()?;
        self.bytes -= u64::from(popped.bytes);
        Some(popped)
    }

    fn take(&mut self, codel: CoDel, now: Instant) -> Option<Queued<P>> {
        let Slot { waiting, bytes, codel: state, .. } = self;
        let pop = || {
            let packet: Queued<P> = waiting.pop_front()?;
            *bytes -= u64::from(packet.bytes);
            Some(Taken { arrived: packet.arrived, packet, backlog_bytes: *bytes })
        };
        let taken = state.take(codel, now, pop, drop)?;
        self.deficit -= i64::from(taken.bytes);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: PathDelays = PathDelays { rtt: Duration::ZERO, delay_difference: Duration::ZERO };

    fn push(queue: &mut Queue<u32>, at_ms: u64, flow: u8, bytes: u32, packet: u32) {
        queue.push(Queued { flow, bytes, bulk: false, arrived: Instant::from_millis(at_ms), packet });
    }

    #[test]
    fn a_sparse_flow_does_not_wait_behind_a_bulk_flow() {
        let mut queue = Queue::new();
        (0..100).for_each(|number| push(&mut queue, 0, 1, 1400, number));
        let take = |queue: &mut Queue<u32>| queue.take(Instant::from_millis(1), ALLOWED).map(|taken| taken.flow);
        assert_eq!([take(&mut queue), take(&mut queue)], [Some(1), Some(1)]);
        push(&mut queue, 1, 2, 100, 0);
        assert_eq!(take(&mut queue), Some(2));
        assert_eq!(take(&mut queue), Some(1));
    }

    #[test]
    fn two_flows_share_by_bytes_and_keep_their_order() {
        let mut queue = Queue::new();
        for number in 0..200 {
            push(&mut queue, 0, 1, 1400, number);
            push(&mut queue, 0, 2, 700, number);
        }
        let (mut bytes, mut next) = ([0; 2], [0; 2]);
        for _ in 0..150 {
            let taken = queue.take(Instant::from_millis(1), ALLOWED).expect("the queue is not empty");
            let index = usize::from(taken.flow) - 1;
            assert_eq!(taken.packet, next[index]);
            next[index] += 1;
            bytes[index] += taken.bytes;
        }
        assert!(bytes[0].abs_diff(bytes[1]) <= 2 * 1514, "{bytes:?}");
    }

    #[test]
    fn a_standing_queue_is_reduced_and_a_flood_is_limited() {
        let mut queue = Queue::new();
        let mut taken = 0;
        for t in 0..3000 {
            (0..2).for_each(|_| push(&mut queue, t, 1, 1400, 0));
            taken += u64::from(queue.take(Instant::from_millis(t), ALLOWED).is_some());
        }
        assert_eq!(taken, 3000);
        assert!((20..2000).contains(&queue.dropped), "{}", queue.dropped);
        (0..20_000).for_each(|_| push(&mut queue, 3000, 7, 100, 0));
        assert!(queue.packets <= MAX_PACKETS);
        while queue.take(Instant::from_millis(3001), ALLOWED).is_some() {}
        assert!(queue.is_empty() && queue.backlog_bytes(7) == 0);
    }

    #[test]
    fn after_a_fall_of_the_rate_a_queue_loses_nothing_up_to_what_the_former_rate_would_carry() {
        // 1.4 MB/s for 2 s, then 0.14 MB/s; within 20 ms, one and a half times, the former would carry 42 kB.
        for (packets, drops) in [(28, false), (33, true)] {
            let mut queue = Queue::new();
            for t in 0..2000 {
                push(&mut queue, t, 1, 1400, 0);
                queue.take(Instant::from_millis(t), ALLOWED);
            }
            (0..packets).for_each(|_| push(&mut queue, 2000, 1, 1400, 0));
            for t in (2000..4000).step_by(10) {
                push(&mut queue, t, 1, 1400, 0);
                queue.take(Instant::from_millis(t), ALLOWED);
            }
            assert_eq!(queue.dropped > 0, drops, "{packets} packets, {} dropped", queue.dropped);
        }
    }

    #[test]
    fn the_queue_is_limited_in_bytes_and_expires() {
        let mut queue = Queue::new();
        (0..8000).for_each(|number| push(&mut queue, number, number as u8, 9000, 0));
        assert!(queue.bytes <= MAX_BYTES && queue.bytes + 9000 > MAX_BYTES, "{}", queue.bytes);
        let before = queue.bytes;
        queue.shed();
        assert_eq!(queue.bytes, before - 9000);
        queue.expire(Instant::from_millis(7990) + MAX_WAIT);
        assert_eq!((queue.bytes, queue.packets), (9 * 9000 + 9000, 10));
        queue.expire(Instant::from_millis(8000) + MAX_WAIT);
        assert!(queue.is_empty() && queue.bytes == 0);
        assert!(queue.slots.iter().all(|slot| slot.waiting.capacity() == 0 && slot.bytes == 0));
        assert!(queue.take(Instant::from_millis(20_000), ALLOWED).is_none());
        push(&mut queue, 20_000, 7, 100, 1);
        assert_eq!(queue.take(Instant::from_millis(20_000), ALLOWED).map(|taken| taken.packet), Some(1));
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn the_head_stays_until_it_is_taken_or_expires() {
        let mut queue = Queue::new();
        push(&mut queue, 0, 1, 1400, 7);
        let head = |queue: &mut Queue<u32>, ms| queue.head(Instant::from_millis(ms), ALLOWED).map(|head| head.packet);
        assert_eq!((head(&mut queue, 1), head(&mut queue, 1)), (Some(7), Some(7)));
        push(&mut queue, 1, 2, 100, 8);
        queue.expire(Instant::from_millis(1) + MAX_WAIT);
        assert_eq!(head(&mut queue, 1), Some(8));
        assert_eq!(queue.take_head_if(true).map(|head| head.packet), Some(8));
        assert_eq!(head(&mut queue, 1), None);
    }

    #[test]
    fn a_head_that_expires_counts_as_dropped() {
        let mut queue = Queue::new();
        (0..2).for_each(|number| push(&mut queue, 0, 1, 1400, number));
        assert!(queue.head(Instant::from_millis(1), ALLOWED).is_some());
        queue.expire(Instant::from_millis(1) + MAX_WAIT);
        assert_eq!((queue.packets, queue.dropped), (0, 2));
        assert!(queue.head(Instant::from_millis(2) + MAX_WAIT, ALLOWED).is_none());
    }

    #[test]
    fn target_and_interval_grow_with_rtt_and_delay_difference() {
        let codel = |rtt_ms, difference_ms| {
            let [rtt, delay_difference] = [rtt_ms, difference_ms].map(Duration::from_millis);
            let CoDel { target, interval } = PathDelays { rtt, delay_difference }.codel();
            [target, interval].map(|allowed| allowed.as_micros() / 1000)
        };
        assert_eq!(codel(0, 0), [20, 120]);
        assert_eq!(codel(20, 0), [20, 120]);
        assert_eq!(codel(40, 0), [40, 120], "the RTT");
        assert_eq!(codel(210, 0), [210, 420]);
        assert_eq!(codel(210, 50), [260, 470], "RTT and delay difference");
    }
}
