//! Puts packets of a flow back in their order, each flow by itself, so that
//! one's loss stalls no other.
//!
//! A packet that is ahead waits until what is before it has come, or cannot
//! come any more: every path in use has delivered something newer of this flow
//! and nothing is sent again; or it has waited longer than late packets have
//! lately been late.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::recv_path::{OLDER_IN_A_ROW, RESTART_GRACE};
use super::wire::control_message::MAX_PATHS;
use super::wire::gre_key::{GreKey, SEQUENCE_BITS, unwrap};
use crate::time::{Duration, Instant};

/// Longest wait: TCP takes a packet for lost 200 ms after a round trip at the
/// earliest (the least retransmission timeout on Linux).
const MAX_WAIT: Duration = Duration::from_millis(200);
/// Shortest wait, since the next may be late by more than the last; and where what
/// is lost is sent again, which takes its sender a while to notice.
const MIN_WAIT: Duration = Duration::from_millis(25);
const MIN_WAIT_WITH_RETRANSMISSION: Duration = Duration::from_millis(150);
/// Wait before anything was late.
const INITIAL_WAIT: Duration = Duration::from_millis(100);
/// For how long, once or twice, a late packet counts.
const MEMORY: Duration = Duration::from_secs(4);
/// Packets held at most, over all flows.
const MAX_HELD: usize = 32_768;
/// So far ahead is another beginning.
const FAR_AHEAD: u64 = 1 << 18;
/// The first packet seen of a flow is its first, or is the next when it is beyond this.
const BEGINNING: u64 = 256;
/// Gaps given up that a late packet may still be found to belong to.
const MAX_ABANDONED: usize = 32;

/// How packets may come.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActivePaths {
    /// The paths in use, by bit.
    pub paths: u16,
    /// Whether what is lost is sent again.
    pub retransmits: bool,
}

/// All flows of one direction.
#[derive(Debug)]
pub(super) struct ReorderBuffer<P> {
    flows: Vec<Flow<P>>,
    /// Flows in which something waits.
    waiting: Vec<u8>,
    ready: VecDeque<P>,
    held: usize,
    timeout: ReorderTimeout,
    /// Whether what is lost is sent again.
    retransmits: bool,
    late: u64,
    /// Until when old orders may be of a sender that is gone.
    restart_grace_until: Instant,
}

#[derive(Debug)]
struct Flow<P> {
    begun: bool,
    next: u64,
    /// By order: since when it or one after it has waited.
    held: BTreeMap<u64, (Instant, P)>,
    /// One more than the newest order that each path delivered.
    passed: [u64; MAX_PATHS],
    /// What was given up: first order, and one beyond the last.
    abandoned: VecDeque<(u64, u64)>,
    /// Packets in a row that came before, or seem so.
    older_in_a_row: u8,
}

impl<P> ReorderBuffer<P> {
    pub(super) fn new() -> ReorderBuffer<P> {
        let flow = |_| Flow {
            begun: false,
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
            timeout: ReorderTimeout::default(),
            retransmits: false,
            late: 0,
            restart_grace_until: Instant::ZERO,
        }
    }

    /// The sender began anew; what the one before it sent may still come.
    pub(super) fn after_sender_restart(now: Instant) -> ReorderBuffer<P> {
        ReorderBuffer { restart_grace_until: now + RESTART_GRACE, ..ReorderBuffer::new() }
    }

    /// The next packet that may go on.
    pub(super) fn poll(&mut self) -> Option<P> {
        self.ready.pop_front()
    }

    /// Packets that went on after later ones of their flow.
    pub(super) fn late(&self) -> u64 {
        self.late
    }

    /// A packet of no known order goes on.
    pub(super) fn deliver_unordered(&mut self, packet: P) {
        self.ready.push_back(packet);
    }

    /// A packet came; false if it came before.
    pub(super) fn take(&mut self, now: Instant, key: GreKey, packet: P, active_paths: ActivePaths) -> bool {
        let flow = &mut self.flows[usize::from(key.flow)];
        let sequence = unwrap(flow.next, key.sequence, SEQUENCE_BITS);
        if !flow.begun {
            flow.begun = true;
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
            self.timeout.note(now, self.reorder_timeout() * 3 / 2);
            self.late += 1;
            self.ready.push_back(packet);
            return true;
        }
        flow.older_in_a_row = 0;
        let passed = &mut flow.passed[usize::from(key.path.0) % MAX_PATHS];
        *passed = (*passed).max(sequence.saturating_add(1));
        if sequence == flow.next {
            if let Some((_, (arrived, _))) = flow.held.first_key_value() {
                self.timeout.note(now, now.since(*arrived));
            }
            flow.next = sequence.saturating_add(1);
            self.ready.push_back(packet);
        } else if sequence - flow.next > FAR_AHEAD {
            self.held -= flow.held.len();
            self.ready.extend(core::mem::take(&mut flow.held).into_values().map(|(_, packet)| packet));
            flow.next = sequence.saturating_add(1);
            self.ready.push_back(packet);
        } else if flow.held.contains_key(&sequence) {
            return false;
        } else {
            // It holds up those after it, so it waits no longer than they do.
            let since = flow.held.range(sequence..).next().map_or(now, |(_, (since, _))| *since);
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

    /// Lets go what has waited long enough.
    pub(super) fn advance(&mut self, now: Instant, active_paths: ActivePaths) {
        for place in (0..self.waiting.len()).rev() {
            let flow = self.waiting[place];
            self.release(now, flow, active_paths);
            if self.flows[usize::from(flow)].held.is_empty() {
                self.waiting.swap_remove(place);
            }
        }
    }

    /// When [`advance`](Self::advance) has something to let go.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let first = |flow: &u8| self.flows[usize::from(*flow)].held.first_key_value().map(|(_, (arrived, _))| *arrived);
        self.waiting.iter().filter_map(first).min().map(|arrived| arrived + self.reorder_timeout())
    }

    fn reorder_timeout(&self) -> Duration {
        self.timeout.current().max(if self.retransmits { MIN_WAIT_WITH_RETRANSMISSION } else { MIN_WAIT })
    }

    fn release(&mut self, now: Instant, flow: u8, active_paths: ActivePaths) {
        self.retransmits = active_paths.retransmits;
        let timeout = self.reorder_timeout();
        let flow = &mut self.flows[usize::from(flow)];
        loop {
            while let Some((_, packet)) = flow.held.remove(&flow.next) {
                self.held -= 1;
                flow.next = flow.next.saturating_add(1);
                self.ready.push_back(packet);
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
            flow.abandon_until(up_to);
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

    /// Every path in use has delivered what is older than this.
    fn passed_by_all(&self, paths: u16) -> u64 {
        let used = self.passed.iter().enumerate().filter(|(path, _)| paths & 1 << path != 0);
        used.map(|(_, passed)| passed.saturating_sub(1)).min().unwrap_or(self.next)
    }

    fn abandon_until(&mut self, until: u64) {
        self.note_abandoned((self.next, until));
        self.next = until;
    }

    fn note_abandoned(&mut self, range: (u64, u64)) {
        if self.abandoned.len() >= MAX_ABANDONED {
            self.abandoned.pop_front();
        }
        self.abandoned.push_back(range);
    }

    /// Whether this order was given up; it is not from now on.
    fn take_abandoned(&mut self, sequence: u64) -> bool {
        let Some(place) = self.abandoned.iter().position(|&(first, end)| (first..end).contains(&sequence)) else {
            return false;
        };
        let (first, end) = self.abandoned[place];
        self.abandoned.remove(place);
        for rest in [(first, sequence), (sequence + 1, end)] {
            if rest.0 < rest.1 {
                self.note_abandoned(rest);
            }
        }
        true
    }
}

/// How late packets have lately been, at most.
#[derive(Debug, Default)]
struct ReorderTimeout {
    now: Option<Duration>,
    before: Option<Duration>,
    since: Instant,
}

impl ReorderTimeout {
    fn note(&mut self, now: Instant, late: Duration) {
        if now.since(self.since) > MEMORY {
            self.before = self.now.take();
            self.since = now;
        }
        self.now = self.now.max(Some(late));
    }

    fn current(&self) -> Duration {
        let longest = self.now.max(self.before);
        longest.map_or(INITIAL_WAIT, |late| (late * 3 / 2 + Duration::from_millis(5)).min(MAX_WAIT))
    }
}

#[cfg(test)]
mod tests;
