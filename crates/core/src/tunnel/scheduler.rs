//! The scheduler: on which path a packet is sent.

use alloc::vec::Vec;

use super::Mode;
use super::aim::Aim;
use super::paths::{NEGLIGIBLE_DELAY_US, Path, PathSet, Paths};
use super::primary_path::primary_path;
use super::send_path::{Liveness, SendPath};
use super::wire::control_message::MAX_PATHS;
use crate::path::{PathId, PathState, PerPath};
use crate::time::{Duration, Instant};

/// How long a packet waits for the most preferred path before it may use the next.
const OVERFLOW_AFTER: Duration = Duration::from_millis(5);
/// Share of the fastest path's rate below which a path can harm bulk flows.
const SMALL_PATH: f64 = 0.25;
/// Bytes in flight below which a full window of slow start does not show that the path is full.
const SMALL_WINDOW_BYTES: u64 = 64 * 1500;
/// Factor on the wait of an acknowledgement, which the next one replaces.
const ACKNOWLEDGEMENT_WAIT: f64 = 8.0;
/// Time beyond one RTT until a loss is reported.
const LOSS_DETECTION: Duration = Duration::from_millis(25);

/// The packet to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Slot of its flow.
    pub flow: u8,
    pub aim: Aim,
    /// A path that delays it.
    pub avoid: Option<PathId>,
    pub arrived: Instant,
    /// Its length as a datagram on the wire, in bytes.
    pub wire_bytes: u32,
    /// Bytes of its flow that wait, with its own.
    pub backlog_bytes: u64,
}

/// Class of a path; of those present, only the paths of the least class carry packets. Without a path that
/// is up, a backup counts as one step worse than an active path. `None` for a closed path.
pub(super) fn class<P>(sender: &SendPath<P>) -> Option<(bool, u8)> {
    let (liveness, is_backup) = (sender.liveness(), sender.wanted_state == PathState::Backup);
    sender.is_open().then_some((liveness != Liveness::Up, liveness as u8 + u8::from(is_backup)))
}

/// How much a path is to be trusted with a packet in mode adaptive, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trust {
    /// Its answers are in time.
    InTime,
    /// They were late, or it was down; the last ones came in time.
    InTimeAgain,
    /// They are late.
    Late,
    /// None is known, or they are overdue for long.
    Silent,
}

impl Trust {
    fn of<P>(now: Instant, sender: &SendPath<P>) -> Trust {
        match sender.liveness() {
            Liveness::Unknown | Liveness::Probing | Liveness::Down => Trust::Silent,
            Liveness::Up if !sender.is_doubted(now) => Trust::InTime,
            Liveness::Up | Liveness::Recovering if sender.lateness.is_sure(now) => Trust::InTimeAgain,
            Liveness::Up | Liveness::Recovering => Trust::Late,
        }
    }
}

/// Whether a path has room for a packet.
#[derive(Clone, Copy, Debug)]
struct Room {
    path: PathId,
    has_cwnd_room: bool,
    has_room_for_copies: bool,
    paced_to: Instant,
}

impl Room {
    fn is_free(&self, now: Instant) -> bool {
        self.has_cwnd_room && self.paced_to <= now
    }
}

/// A path that may carry a packet.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    path: PathId,
    room: Room,
    rank: u8,
    is_backup: bool,
    trust: Trust,
    is_up: bool,
    is_sure: bool,
    is_tried: bool,
    /// One-way delay without a queue, relative to that of any path, in µs.
    delay_us: i64,
    /// With the time to repair a loss, if the delay of the slowest counts.
    expected_arrival_us: i64,
    /// Estimated rate, in bytes/s.
    rate: Option<f64>,
    in_slow_start: bool,
    in_flight_bytes: u64,
    min_rtt: Duration,
    /// If it is lossy, when what it lost arrives, as `delay_us`.
    repaired_us: Option<i64>,
    /// Whether it carries no bulk, which it would hold up.
    rests: bool,
}

impl Candidate {
    /// Whether slow start may still enlarge its window. At first the window may be full for a moment, until a report comes.
    fn finds_its_rate(&self) -> bool {
        self.in_slow_start && (self.room.has_cwnd_room || self.in_flight_bytes < SMALL_WINDOW_BYTES)
    }

    /// The place of its path in the order of preference; backups come last.
    fn place(&self) -> (bool, u8, PathId) {
        (self.is_backup, self.rank, self.path)
    }
}

/// State of the scheduler.
#[derive(Debug)]
pub(super) struct Scheduler {
    /// The path of each flow in mode per-flow.
    flow_paths: Vec<Option<PathId>>,
    /// The primary path of bulk flows, if it is not the lowest-delay path.
    pub primary: Option<PathId>,
    /// The path on which a copy of the last packet is due, since the one chosen or a preferred one is doubted.
    pub copy_on: Option<PathId>,
    /// When to try again to send a packet that found no room.
    pub retry_at: Option<Instant>,
    /// Whether no path had room for it, whatever the packet; until the paths are advanced.
    pub is_full: bool,
    /// The candidates of the last packet; their memory is reused.
    candidates: Vec<Candidate>,
}

impl Scheduler {
    pub(super) fn new() -> Scheduler {
        let flow_paths = alloc::vec![None; 256];
        Scheduler {
            flow_paths,
            primary: None,
            copy_on: None,
            retry_at: None,
            is_full: false,
            candidates: Vec::with_capacity(MAX_PATHS),
        }
    }

    /// Updates the primary path.
    pub(super) fn update_primary<P>(&mut self, mode: Mode, paths: &Paths<P>) {
        self.primary = primary_path(mode, paths, self.primary);
    }

    /// Records that no packet waits.
    pub(super) fn note_idle<P>(&mut self, now: Instant, paths: &mut Paths<P>) {
        self.retry_at = None;
        paths.note_idle(now);
    }

    /// Number of flow slots whose path is this one, in mode per-flow.
    pub(super) fn flows_on(&self, path: PathId) -> usize {
        self.flow_paths.iter().filter(|pinned| **pinned == Some(path)).count()
    }

    /// The paths on which to send a packet now; none if it has to wait.
    pub(super) fn choose<P>(&mut self, now: Instant, mode: Mode, paths: &mut Paths<P>, head: Head) -> PathSet {
        let mut rooms = find_rooms(mode, paths);
        for full in rooms.iter().filter(|room| !room.has_cwnd_room) {
            if let Some(path) = paths.get_mut(full.path) {
                path.sender.note_full(now);
            }
        }
        self.copy_on = None;
        let is_any_free = rooms.iter().any(|room| room.is_free(now));
        let chosen: PathSet = match mode {
            Mode::Redundant => rooms.iter().filter(|room| room.has_room_for_copies).map(|room| room.path).collect(),
            // Often none is free: what else counts is looked at only if one is, or for the path of a new flow.
            _ if mode == Mode::PerFlow || is_any_free => {
                let mut candidates = core::mem::take(&mut self.candidates);
                find_candidates(now, paths, head, &rooms, &mut candidates);
                let first = self.first_free(now, mode, paths, head, &mut candidates);
                let in_doubt = first.filter(|_| mode == Mode::Adaptive);
                self.copy_on = in_doubt.and_then(|path| second(now, path, &candidates));
                if mode == Mode::PerFlow {
                    rooms.retain(|room| candidates.iter().any(|candidate| candidate.path == room.path));
                }
                self.candidates = candidates;
                first.into_iter().collect()
            }
            _ => PathSet::from_iter(None),
        };
        self.is_full = chosen.is_empty() && !is_any_free;
        self.retry_at = None;
        if chosen.is_empty() && !rooms.is_empty() {
            let overflow =
                matches!(mode, Mode::CheapestFirst | Mode::Adaptive).then_some(head.arrived + OVERFLOW_AFTER);
            let paced = rooms.iter().filter(|room| room.has_cwnd_room).map(|room| room.paced_to);
            self.retry_at = paced.chain(overflow).filter(|at| *at > now).min();
            // A path that was offered too little shows nothing about its rate.
            for free in rooms.iter().filter(|room| room.is_free(now)) {
                if let Some(path) = paths.get_mut(free.path) {
                    path.sender.rate.idle = now;
                }
            }
        }
        chosen
    }

    /// The first candidate in the order of the mode that has room and may be used.
    fn first_free<P>(
        &mut self,
        now: Instant,
        mode: Mode,
        paths: &Paths<P>,
        head: Head,
        candidates: &mut Vec<Candidate>,
    ) -> Option<PathId> {
        match mode {
            Mode::Aggregate | Mode::Redundant => {
                let is_bulk = head.aim == Aim::Throughput;
                let primary = self.primary.filter(|_| is_bulk);
                if mode == Mode::Aggregate && is_bulk {
                    rest_small_paths(primary, head, candidates);
                }
                candidates.sort_unstable_by_key(|candidate| {
                    let is_other = primary.is_some_and(|primary| primary != candidate.path);
                    (candidate.rests, is_other, candidate.expected_arrival_us)
                });
            }
            Mode::Standby | Mode::CheapestFirst => {
                candidates.sort_unstable_by_key(|candidate| (candidate.rank, candidate.path));
            }
            Mode::Adaptive => candidates.sort_unstable_by_key(|candidate| {
                let is_avoided = head.avoid == Some(candidate.path);
                (candidate.trust == Trust::Silent, is_avoided, candidate.trust, !candidate.is_up, candidate.place())
            }),
            Mode::PerFlow => {
                let pinned = self.path_of_flow(head.flow, candidates);
                candidates.retain(|candidate| Some(candidate.path) == pinned);
            }
        }
        let first = *candidates.first()?;
        let may = |candidate: &Candidate| match mode {
            _ if candidate.path == first.path => true,
            Mode::Aggregate => {
                let later_us = candidate.expected_arrival_us - first.expected_arrival_us;
                !candidate.rests && later_us <= max_later_us(paths, first.path, candidate.path, head)
            }
            Mode::CheapestFirst => now.since(head.arrived) >= OVERFLOW_AFTER,
            Mode::Adaptive => {
                let may_help = candidate.trust <= Trust::InTimeAgain && candidate.is_backup <= first.is_backup;
                may_help && now.since(head.arrived) >= OVERFLOW_AFTER
            }
            _ => false,
        };
        candidates.iter().find(|candidate| candidate.room.is_free(now) && may(candidate)).map(|free| free.path)
    }

    /// The path of a flow: the assigned one, or that with the earliest expected arrival.
    fn path_of_flow(&mut self, flow: u8, candidates: &[Candidate]) -> Option<PathId> {
        let slot = self.flow_paths.get_mut(usize::from(flow))?;
        if slot.is_none_or(|pinned| !candidates.iter().any(|candidate| candidate.path == pinned)) {
            let free = |candidate: &&Candidate| (!candidate.room.has_cwnd_room, candidate.expected_arrival_us);
            *slot = candidates.iter().min_by_key(free).map(|best| best.path);
        }
        *slot
    }
}

/// The path on which a packet that was sent on `first` is at risk: a preferred path that is doubted, which shows that it
/// delivers again, or the next one if `first` is doubted.
fn second(now: Instant, first: PathId, candidates: &[Candidate]) -> Option<PathId> {
    let first = candidates.iter().find(|candidate| candidate.path == first)?;
    let is_sure = first.is_sure && first.trust == Trust::InTime;
    let others = candidates
        .iter()
        .filter(|other| other.path != first.path && other.room.has_room_for_copies && other.room.paced_to <= now);
    let is_at_risk = |other: &&Candidate| {
        let is_doubted = other.is_up && other.trust != Trust::InTime;
        first.trust != Trust::InTime || is_doubted && other.place() < first.place() && (other.is_tried || !is_sure)
    };
    let mut at_risk = others.filter(is_at_risk);
    at_risk.next().map(|other| other.path)
}

/// Finds the paths that may carry: those of the best class, in mode redundant all that are not closed, and in mode
/// adaptive all that are up.
fn find_rooms<P>(mode: Mode, paths: &Paths<P>) -> PerPath<Room> {
    let mut rooms = PerPath::new();
    let best = paths.senders().filter_map(class).min();
    // A copy on every open path, also on backups: who chooses copies chooses their cost.
    let copies = matches!(mode, Mode::Redundant | Mode::Adaptive);
    let may = |sender: &SendPath<P>| copies && sender.is_open() || class(sender) == best;
    let usable = paths.iter().filter(|(_, path)| best.is_some() && may(&path.sender));
    let room = |(path, Path { sender, .. }): (PathId, &Path<P>)| Room {
        path,
        has_cwnd_room: sender.has_cwnd_room(),
        has_room_for_copies: copies && sender.has_room_for_copies(),
        paced_to: sender.paced_to(),
    };
    rooms.extend(usable.map(room));
    rooms
}

/// Finds what counts for a packet on these paths.
fn find_candidates<P>(now: Instant, paths: &Paths<P>, head: Head, rooms: &[Room], candidates: &mut Vec<Candidate>) {
    let reference = paths.reference_delay();
    candidates.clear();
    let senders = rooms.iter().filter_map(|room| Some((room, &paths.get(room.path)?.sender)));
    candidates.extend(senders.map(|(&room, sender)| {
        let rate = sender.estimated_bytes_s();
        let (delay_us, min_rtt) = (sender.relative_delay_us(reference), sender.rtt.min.unwrap_or_default());
        Candidate {
            path: room.path,
            room,
            rank: paths.order.rank(room.path),
            is_backup: sender.wanted_state == PathState::Backup,
            trust: Trust::of(now, sender),
            is_up: sender.liveness() == Liveness::Up,
            is_sure: sender.lateness.is_sure(now),
            is_tried: sender.lateness.is_tried(now),
            delay_us,
            expected_arrival_us: delay_us
                + sender.queue_and_transmission_us(head.wire_bytes, rate)
                + if head.aim == Aim::Delay { repair_us(sender) } else { 0 },
            rate,
            in_slow_start: sender.in_slow_start(),
            in_flight_bytes: sender.bytes_in_flight(),
            min_rtt,
            repaired_us: sender.counts.is_lossy().then_some(delay_us + min_rtt.as_micros() as i64),
            rests: false,
        }
    }));
}

/// Marks the paths that would harm a bulk flow: those much slower than the one on which it begins, while that one's rate is
/// being found, or if their losses would hold it up and less waits than keeps it busy for an RTT. What a small path holds
/// up ends the flow's slow start, or BBR's Startup, and later empties that path's queue.
fn rest_small_paths(primary: Option<PathId>, head: Head, candidates: &mut [Candidate]) {
    let lowest_us = candidates.iter().map(|candidate| candidate.delay_us).min().unwrap_or_default();
    let may_begin = |candidate: &&Candidate| match primary {
        Some(primary) => candidate.path == primary,
        None => candidate.delay_us <= lowest_us + NEGLIGIBLE_DELAY_US,
    };
    let rated = candidates.iter().filter(|candidate| candidate.is_up).filter(may_begin);
    let rated = rated.filter_map(|path| Some((path.rate?, *path)));
    let Some((fastest, first)) = rated.max_by(|left, right| left.0.total_cmp(&right.0)) else { return };
    let is_idle_soon = (head.backlog_bytes as f64) < fastest * first.min_rtt.as_secs_f64();
    let holds_up = |path: &Candidate| path.repaired_us.is_some_and(|us| us > first.delay_us);
    for path in candidates.iter_mut().filter(|path| first.finds_its_rate() || is_idle_soon && holds_up(path)) {
        path.rests = is_small(path.rate, fastest);
    }
}

/// Whether a path of this rate can harm a bulk flow that begins on one of rate `fastest`.
pub(super) fn is_small(rate: Option<f64>, fastest: f64) -> bool {
    rate.is_some_and(|rate| rate < fastest * SMALL_PATH)
}

/// The mean time by which losses delay a packet of the slowest hundredth, in µs. From one loss in a hundred on, all of
/// them wait.
fn repair_us<P>(sender: &SendPath<P>) -> i64 {
    let repair = sender.rtt.min.unwrap_or_default() + LOSS_DETECTION;
    (repair.as_micros() as f64 * (sender.counts.lasting_loss() * 100.0).min(1.0)) as i64
}

/// How much later a packet may arrive on `path` than on the first path, in µs. A packet that only has to arrive soon does
/// not wait for the first path longer than that, and an acknowledgement far less: a queue of them delays all. The
/// successors of any other wait for it in the reorder buffer, and the sender gets no acknowledgement meanwhile: the
/// backlog must keep the first path busy for the difference plus one RTT, or plus two if `path` is lossy and the
/// difference has no repair in it.
fn max_later_us<P>(paths: &Paths<P>, first: PathId, path: PathId, head: Head) -> i64 {
    let first = paths.get(first).map(|path| &path.sender);
    let rtt = first.and_then(|first| first.rtt.min).unwrap_or_default();
    let is_lossy = paths.get(path).is_some_and(|path| path.sender.counts.is_lossy());
    let spare = match head.aim {
        Aim::Acknowledgement | Aim::Arrival => Duration::ZERO,
        Aim::Throughput if is_lossy => rtt * 2 + LOSS_DETECTION,
        Aim::Throughput | Aim::Delay => rtt,
    };
    let rate = first.and_then(|first| first.rate.bytes_s());
    let times = if head.aim == Aim::Acknowledgement { ACKNOWLEDGEMENT_WAIT } else { 1.0 };
    let wait_us = rate.map_or(0, |rate| (head.backlog_bytes as f64 * times / rate * 1e6) as i64);
    (wait_us - spare.as_micros() as i64).max(NEGLIGIBLE_DELAY_US)
}
