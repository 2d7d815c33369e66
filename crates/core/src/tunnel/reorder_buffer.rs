//! Restores the order of packets in each flow. Flows are independent: a loss in one stalls no other.
//!
//! A pure acknowledgement is delivered at once: it is cumulative, and if it waited for a lost one, the RTT of
//! its flow would be longer by a retransmission. Any other out-of-order packet waits until all its predecessors
//! have arrived, or cannot arrive any more (every active path has delivered a newer packet of this flow, and
//! nothing is retransmitted), or the reorder timeout, which follows the recent lateness of late packets, has
//! passed.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::recv_path::{OLDER_IN_A_ROW, RESTART_GRACE};
use super::wire::control_message::MAX_PATHS;
use super::wire::gre_key::{GreKey, SEQUENCE_BITS, unwrap};
use crate::recent::{RecentMax, push_recent};
use crate::time::{Duration, Instant};

/// Maximum wait: a path whose rate falls delivers what is in flight that much later.
const MAX_WAIT: Duration = Duration::from_millis(600);
/// Minimum wait, since the next packet may be later than the last; longer with retransmission, which
/// includes the time to detect the loss.
const MIN_WAIT: Duration = Duration::from_millis(25);
const MIN_WAIT_WITH_RETRANSMISSION: Duration = Duration::from_millis(150);
/// Wait before any packet was late.
const INITIAL_WAIT: Duration = Duration::from_millis(100);
/// The wait is 1.5 times the maximum lateness of recent late packets, plus this time.
const LATENESS_MARGIN: Duration = Duration::from_millis(5);
/// Maximum number of packets held over all flows.
const MAX_HELD: usize = 32_768;
/// A jump ahead by more than this is a restart of numbering.
const FAR_AHEAD: u64 = 1 << 18;
/// The first sequence number of a flow is 0, or that of the first packet received if it is not below this.
const BEGINNING: u64 = 256;
/// Maximum number of abandoned gaps remembered, so that a late packet can be assigned to one.
const MAX_ABANDONED: usize = 32;

/// The paths on which packets may arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActivePaths {
    /// The active paths, as a bit mask.
    pub paths: u16,
    /// Whether the peer retransmits lost packets.
    pub retransmits: bool,
}

/// All flows of one direction.
#[derive(Debug)]
pub(super) struct ReorderBuffer<P> {
    flows: Vec<Flow<P>>,
    /// Flows with held packets.
    waiting: Vec<u8>,
    /// Packets to deliver, in order.
    pub ready: VecDeque<P>,
    held: usize,
    /// Lateness of late packets.
    lateness: RecentMax<Duration, 4>,
    /// Whether the peer retransmits lost packets.
    retransmits: bool,
    /// Number of packets delivered after later ones of their flow.
    pub late: u64,
    /// Until when old sequence numbers may come from a previous instance of the sender.
    restart_grace_until: Instant,
}

#[derive(Debug)]
struct Flow<P> {
    started: bool,
    next: u64,
    /// Packets after a gap by sequence number, with the start of the wait: their own or an earlier one of a
    /// successor. `None` for one that is delivered already.
    held: BTreeMap<u64, (Instant, Option<P>)>,
    /// For each path, one more than the newest sequence number delivered.
    passed: [u64; MAX_PATHS],
    /// Abandoned gaps: first sequence number, and one beyond the last.
    abandoned: VecDeque<(u64, u64)>,
    /// Number of consecutive packets that were duplicates or appear so.
    older_in_a_row: u8,
}

impl<P> ReorderBuffer<P> {
    pub(super) fn new() -> ReorderBuffer<P> {
        let flow = |_| Flow {
            started: false,
            next: 0,
            held: BTreeMap::new(),
            passed: [0; MAX_PATHS],
            abandoned: VecDeque::new(),
            older_in_a_row: 0,
        };
        ReorderBuffer {
            flows: (0..=u8::MAX).map(flow).collect(),
            waiting: Vec::new(),
            ready: VecDeque::new(),
            held: 0,
            lateness: RecentMax::default(),
            retransmits: false,
            late: 0,
            restart_grace_until: Instant::ZERO,
        }
    }

    /// State after a restart of the sender; packets of its previous instance may still arrive.
    pub(super) fn after_sender_restart(now: Instant) -> ReorderBuffer<P> {
        ReorderBuffer { restart_grace_until: now + RESTART_GRACE, ..ReorderBuffer::new() }
    }

    /// Accepts a packet; false for a duplicate.
    pub(super) fn take(
        &mut self,
        now: Instant,
        key: GreKey,
        packet: P,
        is_pure_ack: bool,
        active_paths: ActivePaths,
    ) -> bool {
        let flow = &mut self.flows[usize::from(key.flow)];
        let sequence = unwrap(flow.next, key.sequence, SEQUENCE_BITS);
        if !flow.started {
            flow.started = true;
            flow.next = if sequence < BEGINNING { 0 } else { sequence };
        }
        if sequence < flow.next && now < self.restart_grace_until && flow.older_in_a_row >= OLDER_IN_A_ROW {
            self.held -= flow.held.len();
            flow.begin_at(sequence);
        }
        if sequence < flow.next {
            if !flow.take_abandoned(sequence) {
                flow.older_in_a_row = flow.older_in_a_row.saturating_add(1);
                return false;
            }
            self.lateness.note(now, self.reorder_timeout() * 3 / 2);
            self.late += 1;
            self.ready.push_back(packet);
            return true;
        }
        flow.older_in_a_row = 0;
        let passed = &mut flow.passed[usize::from(key.path.0) % MAX_PATHS];
        *passed = (*passed).max(sequence.saturating_add(1));
        if sequence == flow.next {
            if let Some((_, (arrived, _))) = flow.held.first_key_value() {
                self.lateness.note(now, now.since(*arrived));
            }
            flow.next = sequence.saturating_add(1);
            self.ready.push_back(packet);
        } else if sequence - flow.next > FAR_AHEAD {
            self.held -= flow.held.len();
            self.ready.extend(core::mem::take(&mut flow.held).into_values().filter_map(|(_, packet)| packet));
            flow.next = sequence.saturating_add(1);
            self.ready.push_back(packet);
        } else if flow.held.contains_key(&sequence) {
            return false;
        } else {
            // It blocks its held successors, so it waits no longer than they do.
            let since = flow.held.range(sequence..).next().map_or(now, |(_, (since, _))| *since);
            let mut packet = Some(packet);
            if is_pure_ack {
                self.ready.extend(packet.take());
            }
            flow.held.insert(sequence, (since, packet));
            self.held += 1;
            if !self.waiting.contains(&key.flow) {
                self.waiting.push(key.flow);
            }
        }
        if !self.flows[usize::from(key.flow)].held.is_empty() {
            self.release(now, key.flow, active_paths);
        }
        true
    }

    /// Releases packets whose timeout has passed.
    pub(super) fn advance(&mut self, now: Instant, active_paths: ActivePaths) {
        for index in (0..self.waiting.len()).rev() {
            let flow = self.waiting[index];
            self.release(now, flow, active_paths);
            if self.flows[usize::from(flow)].held.is_empty() {
                self.waiting.swap_remove(index);
            }
        }
    }

    /// When [`advance`](Self::advance) is due.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let first = |flow: &u8| self.flows[usize::from(*flow)].held.first_key_value().map(|(_, (arrived, _))| *arrived);
        self.waiting.iter().filter_map(first).min().map(|arrived| arrived + self.reorder_timeout())
    }

    fn reorder_timeout(&self) -> Duration {
        let recent = self.lateness.max().map_or(INITIAL_WAIT, |late| (late * 3 / 2 + LATENESS_MARGIN).min(MAX_WAIT));
        recent.max(if self.retransmits { MIN_WAIT_WITH_RETRANSMISSION } else { MIN_WAIT })
    }

    fn release(&mut self, now: Instant, flow: u8, active_paths: ActivePaths) {
        self.retransmits = active_paths.retransmits;
        let timeout = self.reorder_timeout();
        let flow = &mut self.flows[usize::from(flow)];
        loop {
            while let Some((_, packet)) = flow.held.remove(&flow.next) {
                self.held -= 1;
                flow.next = flow.next.saturating_add(1);
                self.ready.extend(packet);
            }
            let Some((&first, (arrived, _))) = flow.held.first_key_value() else { return };
            let up_to = match now >= *arrived + timeout || self.held > MAX_HELD {
                true => first,
                false if active_paths.retransmits => flow.next,
                false => flow.passed_by_all(active_paths.paths).min(first),
            };
            if up_to <= flow.next {
                return;
            }
            flow.note_abandoned((flow.next, up_to));
            flow.next = up_to;
        }
    }
}

impl<P> Flow<P> {
    fn begin_at(&mut self, sequence: u64) {
        self.next = sequence;
        self.held.clear();
        self.abandoned.clear();
        self.passed = [0; MAX_PATHS];
        self.older_in_a_row = 0;
    }

    /// The sequence number below which every active path has delivered newer packets.
    fn passed_by_all(&self, paths: u16) -> u64 {
        let used = self.passed.iter().enumerate().filter(|(path, _)| paths & 1 << path != 0);
        used.map(|(_, passed)| passed.saturating_sub(1)).min().unwrap_or(self.next)
    }

    fn note_abandoned(&mut self, range: (u64, u64)) {
        push_recent(&mut self.abandoned, MAX_ABANDONED, range);
    }

    /// Whether this sequence number was in an abandoned gap; it is removed from it.
    fn take_abandoned(&mut self, sequence: u64) -> bool {
        let Some(index) = self.abandoned.iter().position(|&(first, end)| (first..end).contains(&sequence)) else {
            return false;
        };
        let (first, end) = self.abandoned[index];
        self.abandoned.remove(index);
        for rest in [(first, sequence), (sequence + 1, end)] {
            if rest.0 < rest.1 {
                self.note_abandoned(rest);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
