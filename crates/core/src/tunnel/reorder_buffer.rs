//! Puts packets of a flow back in their order, each flow by itself, so that
//! one's loss stalls no other.
//!
//! A packet that is ahead waits until what is before it has come, or cannot
//! come any more: every path in use has delivered something newer of this flow
//! and nothing is sent again; or it has waited longer than late packets have
//! lately been late.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::recv_path::{OLDER_IN_A_ROW, YOUNG};
use super::wire::control_message::MAX_PATHS;
use super::wire::gre_key::{GreKey, ORDER_BITS, unwrap};
use crate::time::{Duration, Instant};

/// Longest wait: TCP takes a packet for lost 200 ms after a round trip at the
/// earliest (the least retransmission timeout on Linux).
const LONGEST: Duration = Duration::from_millis(200);
/// Shortest wait, since the next may be late by more than the last; and where what
/// is lost is sent again, which takes its sender a while to notice.
const SHORTEST: Duration = Duration::from_millis(25);
const SHORTEST_WITH_REPAIRS: Duration = Duration::from_millis(150);
/// Wait before anything was late.
const FIRST: Duration = Duration::from_millis(100);
/// For how long, once or twice, a late packet counts.
const MEMORY: Duration = Duration::from_secs(4);
/// Packets held at most, over all flows.
const MOST_HELD: usize = 32_768;
/// So far ahead is another beginning.
const FAR_AHEAD: u64 = 1 << 18;
/// The first packet seen of a flow is its first, or is the next when it is beyond this.
const BEGINNING: u64 = 256;
/// Gaps given up that a late packet may still be found to belong to.
const SKIPS: usize = 32;

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
    lateness: ReorderTimeout,
    /// Whether what is lost is sent again.
    retransmits: bool,
    late: u64,
    /// Until when old orders may be of a sender that is gone.
    young_until: Instant,
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
    skipped: VecDeque<(u64, u64)>,
    /// Packets in a row that came before, or seem so.
    older: u8,
}

impl<P> ReorderBuffer<P> {
    pub(super) fn new() -> ReorderBuffer<P> {
        let flow = |_| Flow {
            begun: false,
            next: 0,
            held: BTreeMap::new(),
            passed: [0; MAX_PATHS],
            skipped: VecDeque::new(),
            older: 0,
        };
        ReorderBuffer {
            flows: (0..=u8::MAX).map(flow).collect(),
            waiting: Vec::new(),
            ready: VecDeque::new(),
            held: 0,
            lateness: ReorderTimeout::default(),
            retransmits: false,
            late: 0,
            young_until: Instant::ZERO,
        }
    }

    /// The sender began anew; what the one before it sent may still come.
    pub(super) fn of_another_sender(now: Instant) -> ReorderBuffer<P> {
        ReorderBuffer { young_until: now + YOUNG, ..ReorderBuffer::new() }
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
    pub(super) fn pass(&mut self, packet: P) {
        self.ready.push_back(packet);
    }

    /// A packet came; false if it came before.
    pub(super) fn take(&mut self, now: Instant, label: GreKey, packet: P, active_paths: ActivePaths) -> bool {
        let flow = &mut self.flows[usize::from(label.flow)];
        let order = unwrap(flow.next, label.order, ORDER_BITS);
        if !flow.begun {
            flow.begun = true;
            flow.next = if order < BEGINNING { 0 } else { order };
        }
        if order < flow.next && now < self.young_until && flow.older >= OLDER_IN_A_ROW {
            self.held -= flow.held.len();
            flow.begin_at(order);
        }
        if order < flow.next {
            if !flow.unskip(order) {
                flow.older = flow.older.saturating_add(1);
                return false;
            }
            self.lateness.note(now, self.patience() * 3 / 2);
            self.late += 1;
            self.ready.push_back(packet);
            return true;
        }
        flow.older = 0;
        let passed = &mut flow.passed[usize::from(label.path.0) % MAX_PATHS];
        *passed = (*passed).max(order.saturating_add(1));
        if order == flow.next {
            if let Some((_, (arrived, _))) = flow.held.first_key_value() {
                self.lateness.note(now, now.since(*arrived));
            }
            flow.next = order.saturating_add(1);
            self.ready.push_back(packet);
        } else if order - flow.next > FAR_AHEAD {
            self.held -= flow.held.len();
            self.ready.extend(core::mem::take(&mut flow.held).into_values().map(|(_, packet)| packet));
            flow.next = order.saturating_add(1);
            self.ready.push_back(packet);
        } else if flow.held.contains_key(&order) {
            return false;
        } else {
            // It holds up those after it, so it waits no longer than they do.
            let since = flow.held.range(order..).next().map_or(now, |(_, (since, _))| *since);
            flow.held.insert(order, (since, packet));
            self.held += 1;
            if !self.waiting.contains(&label.flow) {
                self.waiting.push(label.flow);
            }
        }
        if !self.flows[usize::from(label.flow)].held.is_empty() {
            self.release(now, label.flow, active_paths);
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
        self.waiting.iter().filter_map(first).min().map(|arrived| arrived + self.patience())
    }

    fn patience(&self) -> Duration {
        self.lateness.patience().max(if self.retransmits { SHORTEST_WITH_REPAIRS } else { SHORTEST })
    }

    fn release(&mut self, now: Instant, flow: u8, active_paths: ActivePaths) {
        self.retransmits = active_paths.retransmits;
        let patience = self.patience();
        let flow = &mut self.flows[usize::from(flow)];
        loop {
            while let Some((_, packet)) = flow.held.remove(&flow.next) {
                self.held -= 1;
                flow.next = flow.next.saturating_add(1);
                self.ready.push_back(packet);
            }
            let Some((&first, (arrived, _))) = flow.held.first_key_value() else { return };
            let gone = match now >= *arrived + patience || self.held > MOST_HELD {
                true => first,
                false if active_paths.retransmits => flow.next,
                false => flow.passed_by_all(active_paths.paths).min(first),
            };
            if gone <= flow.next {
                return;
            }
            flow.skip(gone);
        }
    }
}

impl<P> Flow<P> {
    fn begin_at(&mut self, order: u64) {
        self.next = order;
        self.held.clear();
        self.skipped.clear();
        self.passed = [0; MAX_PATHS];
        self.older = 0;
    }

    /// Every path in use has delivered what is older than this.
    fn passed_by_all(&self, paths: u16) -> u64 {
        let used = self.passed.iter().enumerate().filter(|(path, _)| paths & 1 << path != 0);
        used.map(|(_, passed)| passed.saturating_sub(1)).min().unwrap_or(self.next)
    }

    fn skip(&mut self, until: u64) {
        self.note_skipped((self.next, until));
        self.next = until;
    }

    fn note_skipped(&mut self, orders: (u64, u64)) {
        if self.skipped.len() >= SKIPS {
            self.skipped.pop_front();
        }
        self.skipped.push_back(orders);
    }

    /// Whether this order was given up; it is not from now on.
    fn unskip(&mut self, order: u64) -> bool {
        let Some(place) = self.skipped.iter().position(|&(first, end)| (first..end).contains(&order)) else {
            return false;
        };
        let (first, end) = self.skipped[place];
        self.skipped.remove(place);
        for rest in [(first, order), (order + 1, end)] {
            if rest.0 < rest.1 {
                self.note_skipped(rest);
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

    fn patience(&self) -> Duration {
        let longest = self.now.max(self.before);
        longest.map_or(FIRST, |late| (late * 3 / 2 + Duration::from_millis(5)).min(LONGEST))
    }
}

#[cfg(test)]
mod tests;
