//! The scheduler: on which path a packet is sent.

use alloc::vec::Vec;

use super::fq_codel::{PathDelays, Queued};
use super::send_path::{Liveness, OneWayDelay, Retransmittable, SendPath};
use super::wire::gre::NUMBERED_BYTES;
use super::{MAX_PATHS, MAX_RETRANSMISSIONS, Mode, Output, RETRANSMIT_WITHIN, Tunnel};
use crate::path::{PathId, PathState};
use crate::time::{Duration, Instant};
use crate::tunnel::wire::gre_key::{GreKey, SEQUENCES};

/// How long a packet waits for the most preferred path before it may use the next.
const OVERFLOW_AFTER: Duration = Duration::from_millis(5);
/// Maximum delay difference of the paths that counts, in µs.
const MAX_DELAY_DIFFERENCE_US: i64 = 150_000;

/// A path whose arrival is later by no more than this, in µs, is always used if it has room: a congestion
/// control that builds no queue would otherwise never use it.
pub(super) const NEGLIGIBLE_DELAY_US: i64 = 15_000;

/// Share of lost packets above which the scheduler allows for losses on a path.
const LOSSY_PATH: f64 = 0.005;
/// Time beyond one RTT until a loss is reported.
const LOSS_DETECTION: Duration = Duration::from_millis(25);

/// A path that may carry a packet.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    path: PathId,
    rank: u8,
    expected_arrival_us: i64,
    has_cwnd_room: bool,
    has_room_for_copies: bool,
    paced_to: Instant,
}

impl Candidate {
    fn is_free(&self, now: Instant) -> bool {
        self.has_cwnd_room && self.paced_to <= now
    }
}

impl<P: Clone> Tunnel<P> {
    /// Sends the next packet, with its copies, if a path has room.
    pub(super) fn transmit(&mut self, now: Instant) {
        while let Some(copy) = self.retransmits.front() {
            if copy.until <= now {
                self.retransmits.pop_front();
                continue;
            }
            let (bytes, flow) = (copy.bytes, copy.flow);
            let Some(path) = self.choose(now, bytes, flow, now, false).into_iter().next() else { return };
            let Some(copy) = self.retransmits.pop_front() else { return };
            self.send_on(now, path, copy);
            return;
        }
        if self.next.is_none() {
            let delays = PathDelays { rtt: self.min_rtt(), delay_difference: self.delay_difference() };
            self.next = self.queue.take(now, delays);
        }
        let Some(waiting) = &self.next else { return self.note_idle(now) };
        let (bytes, flow, arrived, bulk) = (waiting.bytes, waiting.flow, waiting.arrived, waiting.bulk);
        let chosen = self.choose(now, bytes, flow, arrived, bulk);
        let Some(waiting) = (if chosen.is_empty() { None } else { self.next.take() }) else { return };
        let Queued { packet, .. } = waiting;
        let sequence = self.next_sequences[usize::from(flow)];
        self.next_sequences[usize::from(flow)] = (sequence + 1) % SEQUENCES;
        let copy = Retransmittable {
            packet,
            bytes,
            flow,
            sequence,
            until: now + RETRANSMIT_WITHIN,
            tries: MAX_RETRANSMISSIONS,
        };
        for path in chosen {
            self.send_on(now, path, copy.clone());
        }
        self.send_recovery_copies(now, &copy);
    }

    fn send_on(&mut self, now: Instant, path: PathId, copy: Retransmittable<P>) {
        let bytes = copy.bytes + NUMBERED_BYTES + self.overhead_bytes;
        let key = GreKey { path, flow: copy.flow, sequence: copy.sequence };
        let packet = copy.packet.clone();
        let kept = self.keeps_copies().then_some(copy);
        let Some(at) = self.at_mut(path) else { return };
        let number = at.sender.send(now, bytes, kept);
        at.sender.note_carried(now);
        self.outputs.push_back(Output::Send { key, number, packet });
    }

    /// Sends copies on recovering paths, which must show that they deliver.
    fn send_recovery_copies(&mut self, now: Instant, copy: &Retransmittable<P>) {
        let is_recovering = |path: &super::Path<P>| {
            path.sender.liveness == Liveness::Recovering && path.sender.wanted_state != PathState::Closed
        };
        let recovering: Vec<PathId> =
            self.paths_mut().filter(|(_, path)| is_recovering(path)).map(|(id, _)| id).collect();
        for path in recovering {
            let bytes = copy.bytes + NUMBERED_BYTES + self.overhead_bytes;
            let Some(at) = self.at_mut(path).filter(|at| at.sender.has_cwnd_room()) else { continue };
            let number = at.sender.send(now, bytes, None);
            let key = GreKey { path, flow: copy.flow, sequence: copy.sequence };
            self.outputs.push_back(Output::Send { key, number, packet: copy.packet.clone() });
        }
    }

    /// The paths that may carry: the active paths that are up; without any, the next best class of paths.
    fn candidates(&self, bytes: u32) -> Vec<Candidate> {
        let class = |wanted_state: PathState, liveness: Liveness| match (wanted_state, liveness) {
            (PathState::Closed, _) => None,
            (PathState::Active, Liveness::Up) => Some(0),
            (PathState::Backup, Liveness::Up) => Some(1),
            (PathState::Active, liveness) => Some(2 + liveness as u8),
            (PathState::Backup, liveness) => Some(3 + liveness as u8),
        };
        let bytes = bytes + NUMBERED_BYTES + self.overhead_bytes;
        let reference = self.reference_delay();
        let mut best = u8::MAX;
        let mut candidates = Vec::with_capacity(MAX_PATHS);
        for (index, path) in self.paths.iter().enumerate() {
            let Some(sender) = path.as_ref().map(|path| &path.sender) else { continue };
            let Some(class) = class(sender.wanted_state, sender.liveness).filter(|class| *class <= best) else {
                continue;
            };
            if class < best {
                best = class;
                candidates.clear();
            }
            candidates.push(Candidate {
                path: PathId(index as u8),
                rank: self.ranks.get(index).copied().unwrap_or(index as u8),
                expected_arrival_us: sender.expected_arrival_us(bytes, reference),
                has_cwnd_room: sender.has_cwnd_room(),
                has_room_for_copies: sender.has_room_for_copies(),
                paced_to: sender.paced_to(),
            });
        }
        candidates
    }

    /// The paths on which to send a packet now; none if it has to wait.
    fn choose(&mut self, now: Instant, bytes: u32, flow: u8, arrived: Instant, bulk: bool) -> Vec<PathId> {
        let mut candidates = self.candidates(bytes);
        for full in candidates.iter().filter(|candidate| !candidate.has_cwnd_room) {
            if let Some(at) = self.paths[usize::from(full.path.0)].as_mut() {
                at.sender.note_full(now);
            }
        }
        match self.mode {
            Mode::Aggregate => {
                let primary = self.primary.filter(|_| bulk);
                candidates.sort_unstable_by_key(|candidate| {
                    (primary.is_some_and(|primary| primary != candidate.path), candidate.expected_arrival_us)
                });
            }
            Mode::Redundant => {
                let free = candidates.iter().filter(|candidate| candidate.has_room_for_copies).map(|free| free.path);
                let free: Vec<PathId> = free.collect();
                if free.is_empty() {
                    self.retry_after(now, &candidates, None);
                }
                return free;
            }
            Mode::Standby | Mode::CheapestFirst => candidates.sort_unstable_by_key(|candidate| candidate.rank),
            Mode::PerFlow => {
                let pinned = self.path_of_flow(flow, &candidates);
                candidates.retain(|candidate| Some(candidate.path) == pinned);
            }
        }
        let Some(first) = candidates.first().copied() else { return Vec::new() };
        let may = |candidate: &Candidate| match self.mode {
            _ if candidate.path == first.path => true,
            Mode::Aggregate => {
                candidate.expected_arrival_us
                    <= first.expected_arrival_us + self.later_us(first.path, candidate.path, flow, bytes)
            }
            Mode::CheapestFirst => now.since(arrived) >= OVERFLOW_AFTER,
            _ => false,
        };
        let free = candidates.iter().find(|candidate| candidate.is_free(now) && may(candidate)).map(|free| free.path);
        if free.is_none() {
            let overflow = (self.mode == Mode::CheapestFirst).then_some(arrived + OVERFLOW_AFTER);
            self.retry_after(now, &candidates, overflow);
        }
        free.into_iter().collect()
    }

    /// Sets the time of the next attempt: pacing allows a path to send, or the packet has waited long
    /// enough to overflow.
    fn retry_after(&mut self, now: Instant, candidates: &[Candidate], overflow: Option<Instant>) {
        // A path that was offered too little shows nothing about its rate.
        for free in candidates.iter().filter(|candidate| candidate.is_free(now)) {
            if let Some(at) = self.at_mut(free.path) {
                at.sender.note_idle(now);
            }
        }
        let paced = candidates.iter().filter(|candidate| candidate.has_cwnd_room).map(|candidate| candidate.paced_to);
        self.retry_at = paced.chain(overflow).filter(|at| *at > now).min();
    }

    /// How much later a packet may arrive on `path` than on the first path, in µs. Its successors wait for
    /// it in the reorder buffer, and the sender gets no acknowledgement meanwhile. So the backlog must keep
    /// the first path busy for the difference plus one RTT, or plus two if `path` is lossy, for a
    /// retransmission.
    fn later_us(&self, first: PathId, path: PathId, flow: u8, bytes: u32) -> i64 {
        let rtt = self.at(first).and_then(|path| path.sender.rtt.min()).unwrap_or_default();
        let is_lossy = self.at(path).is_some_and(|path| path.sender.loss() > LOSSY_PATH);
        let spare = if is_lossy { rtt * 2 + LOSS_DETECTION } else { rtt };
        (self.wait_us(first, flow, bytes) - spare.as_micros() as i64).max(NEGLIGIBLE_DELAY_US)
    }

    /// How long a packet of this flow would queue for this path, in µs.
    fn wait_us(&self, path: PathId, flow: u8, bytes: u32) -> i64 {
        let rate = self.at(path).and_then(|path| path.sender.rate_bytes_s());
        let ahead = (self.queue.backlog_bytes(flow) + u64::from(bytes)) as f64;
        rate.map_or(0, |rate| (ahead / rate * 1e6) as i64)
    }

    /// The path of a flow: the assigned one, or that with the earliest expected arrival.
    fn path_of_flow(&mut self, flow: u8, candidates: &[Candidate]) -> Option<PathId> {
        let slot = self.flow_paths.get_mut(usize::from(flow))?;
        if slot.is_none_or(|pinned| !candidates.iter().any(|candidate| candidate.path == pinned)) {
            let free = |candidate: &&Candidate| (!candidate.has_cwnd_room, candidate.expected_arrival_us);
            *slot = candidates.iter().min_by_key(free).map(|best| best.path);
        }
        *slot
    }

    /// Minimum RTT of the lowest-delay active path; without one, of any path.
    pub(super) fn min_rtt(&self) -> Duration {
        let senders = || self.paths.iter().flatten().map(|path| &path.sender);
        let min = senders().filter(|sender| sender.is_used()).filter_map(|sender| sender.rtt.min()).min();
        min.or_else(|| senders().filter_map(|sender| sender.rtt.min()).min()).unwrap_or_default()
    }

    /// Delay difference of the active paths: the queueing time allowed in addition.
    pub(super) fn delay_difference(&self) -> Duration {
        self.delay_difference_of(SendPath::is_used)
    }

    /// Delay difference of all paths that are not closed.
    pub(super) fn possible_delay_difference(&self) -> Duration {
        self.delay_difference_of(|sender| sender.wanted_state != PathState::Closed)
    }

    fn delay_difference_of(&self, counts: impl Fn(&SendPath<P>) -> bool) -> Duration {
        let delays = self.paths.iter().flatten().map(|path| &path.sender).filter(|sender| counts(sender));
        let reference = self.reference_delay();
        let delays = delays.filter_map(|sender| Some(sender.one_way_delay()?.minus_us(reference)));
        let (low, high) = delays.fold((i64::MAX, i64::MIN), |(low, high), us| (low.min(us), high.max(us)));
        Duration::from_micros(high.saturating_sub(low).clamp(0, MAX_DELAY_DIFFERENCE_US) as u64)
    }

    /// Reference for one-way delays: that of any path.
    pub(super) fn reference_delay(&self) -> OneWayDelay {
        self.paths.iter().flatten().find_map(|path| path.sender.one_way_delay()).unwrap_or_default()
    }

    fn note_idle(&mut self, now: Instant) {
        for (_, path) in self.paths_mut() {
            if path.sender.has_cwnd_room() {
                path.sender.note_idle(now);
            }
        }
    }
}
