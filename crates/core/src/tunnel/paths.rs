//! The paths of a tunnel.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use super::Mode;
use super::keepalive::Keepalive;
use super::path_order::PathOrder;
use super::recv_path::RecvPath;
use super::reorder_buffer::ActivePaths;
use super::retransmit_queue::Retransmittable;
use super::send_path::{Liveness, OneWayDelay, Other, PathMtu, SendPath};
use super::wire::control_message::{MAX_PATHS, PathReport};
use super::wire::path_feedback::PathFeedback;
use crate::path::{PathId, PathState};
use crate::time::{Duration, Instant};
use crate::wanted::Order;

/// A path whose arrival is later by no more than this, in µs, is always used if it has room: a congestion
/// control that builds no queue would otherwise never use it.
pub(super) const NEGLIGIBLE_DELAY_US: i64 = 15_000;
/// Maximum delay difference of the paths that counts, in µs.
const MAX_DELAY_DIFFERENCE_US: i64 = 150_000;

/// Status of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStats {
    /// Its wanted state.
    pub wanted_state: PathState,
    /// Its liveness.
    pub liveness: Liveness,
    /// The reason for its liveness, one sentence.
    pub reason: String,
    /// What it carries and why, in a few words.
    pub carries: String,
    /// Delivery rate of GRE packets, in bit/s.
    pub rate_bit_s: Option<f64>,
    /// Minimum RTT.
    pub rtt: Option<Duration>,
    /// Recent share of lost packets (0 to 1).
    pub loss: f64,
    /// Bytes sent, as datagrams on the wire: packets, their copies, and control messages.
    pub sent_bytes: u64,
    /// Those of control messages and of feedback on packets: probes, packet trains and reports.
    pub control_bytes: u64,
    /// Those of packets that were sent before, or at the same time over another path: copies and retransmissions.
    pub copied_bytes: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Packets lost.
    pub lost: u64,
}

/// Some of the paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathSet(u16);

impl PathSet {
    /// The paths, by index.
    pub(super) fn iter(self) -> impl Iterator<Item = PathId> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let path = (rest != 0).then(|| PathId(rest.trailing_zeros() as u8))?;
            rest &= rest - 1;
            Some(path)
        })
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<PathId> for PathSet {
    fn from_iter<I: IntoIterator<Item = PathId>>(paths: I) -> PathSet {
        PathSet(paths.into_iter().fold(0, |set, path| set | 1 << path.0))
    }
}

/// Both directions of a path.
#[derive(Debug)]
pub(super) struct Path<P> {
    pub sender: SendPath<P>,
    pub receiver: RecvPath,
    /// The liveness that the driver knows.
    reported: Option<Liveness>,
}

impl<P> Path<P> {
    /// Whether its liveness changed since the last call.
    pub(super) fn take_change(&mut self) -> bool {
        let liveness = self.sender.liveness();
        self.reported.replace(liveness) != Some(liveness)
    }
}

/// The paths that are present, and what is kept of others.
#[derive(Debug)]
pub(super) struct Paths<P> {
    /// By number, up to the highest one that was ever present.
    present: Vec<Option<Path<P>>>,
    /// Next path sequence number of each path that is not present.
    next_numbers: [u64; MAX_PATHS],
    wanted_states: [PathState; MAX_PATHS],
    /// Longest datagram on the wire of the paths added from now on, in bytes. `None`: no path MTU discovery.
    pub max_datagram_bytes: Option<u32>,
    /// Keepalives of each path added from now on.
    keepalives: [Keepalive; MAX_PATHS],
    pub order: PathOrder,
}

impl<P> Paths<P> {
    /// No paths yet.
    pub(super) fn new(order: PathOrder) -> Paths<P> {
        Paths {
            present: Vec::new(),
            next_numbers: [0; MAX_PATHS],
            wanted_states: [PathState::Active; MAX_PATHS],
            max_datagram_bytes: None,
            keepalives: [Keepalive::DEFAULT; MAX_PATHS],
            order,
        }
    }

    /// Sets the keepalives of the first paths.
    pub(super) fn set_keepalives(&mut self, keepalives: &[Keepalive]) {
        self.keepalives.iter_mut().zip(keepalives).for_each(|(known, keepalive)| *known = *keepalive);
    }

    pub(super) fn get(&self, path: PathId) -> Option<&Path<P>> {
        self.present.get(usize::from(path.0))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, path: PathId) -> Option<&mut Path<P>> {
        self.present.get_mut(usize::from(path.0))?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PathId, &Path<P>)> {
        let paths = self.present.iter().enumerate();
        paths.filter_map(|(index, path)| Some((PathId(index as u8), path.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (PathId, &mut Path<P>)> {
        let paths = self.present.iter_mut().enumerate();
        paths.filter_map(|(index, path)| Some((PathId(index as u8), path.as_mut()?)))
    }

    /// Status of a path, which carries this.
    pub(super) fn stats(&self, path: PathId, carries: String) -> Option<PathStats> {
        let sender = &self.get(path)?.sender;
        Some(PathStats {
            wanted_state: sender.wanted_state,
            liveness: sender.liveness(),
            reason: sender.reason().clone(),
            carries,
            rate_bit_s: sender.rate.bytes_s().map(|rate| rate * 8.0),
            rtt: sender.rtt.min,
            loss: sender.counts.recent_loss,
            sent_bytes: sender.counts.sent_bytes,
            control_bytes: sender.counts.control_bytes,
            copied_bytes: sender.counts.copied_bytes,
            delivered: sender.counts.delivered,
            lost: sender.counts.lost,
        })
    }

    pub(super) fn senders(&self) -> impl Iterator<Item = &SendPath<P>> {
        self.present.iter().flatten().map(|path| &path.sender)
    }

    /// Adds a path unless it is present.
    pub(super) fn add(&mut self, now: Instant, path: PathId) {
        let index = usize::from(path.0);
        if index >= MAX_PATHS {
            return;
        }
        if index >= self.present.len() {
            self.present.resize_with(index + 1, || None);
        }
        if let slot @ None = &mut self.present[index] {
            let mut sender = SendPath::new(now, self.wanted_states[index], self.next_numbers[index]);
            sender.mtu = self.max_datagram_bytes.map(PathMtu::new);
            sender.keepalive = self.keepalives[index];
            *slot = Some(Path { sender, receiver: RecvPath::default(), reported: None });
        }
    }

    /// Removes a path; returns the packets in flight on it, for retransmission.
    pub(super) fn remove(&mut self, path: PathId) -> VecDeque<Retransmittable<P>> {
        let Some(mut removed) = self.present.get_mut(usize::from(path.0)).and_then(Option::take) else {
            return VecDeque::new();
        };
        self.next_numbers[usize::from(path.0)] = removed.sender.next_number();
        removed.sender.in_flight.take_copies()
    }

    /// Sets the wanted states of the first paths, present or not; the peer is informed at once.
    pub(super) fn set_wanted(&mut self, now: Instant, states: impl IntoIterator<Item = PathState>) {
        for (index, (wanted, state)) in self.wanted_states.iter_mut().zip(states).enumerate() {
            *wanted = state;
            if let Some(Some(path)) = self.present.get_mut(index) {
                path.sender.wanted_state = state;
                path.receiver.request_immediate_feedback(now);
            }
        }
    }

    /// Sets the order of the paths; the peer is informed at once of a change.
    pub(super) fn set_order(&mut self, now: Instant, order: &Order) {
        if self.order.set(order) {
            self.request_feedback_on_all(now);
        }
    }

    /// Takes wanted state and rank of a path from the initiator.
    pub(super) fn follow(&mut self, report: &PathReport) {
        if let Some(path) = self.get_mut(report.path) {
            path.sender.wanted_state = report.wanted_state;
            self.order.set_rank(report.path, report.rank);
        }
    }

    /// Makes the report on a path due at once.
    pub(super) fn request_feedback(&mut self, now: Instant, path: PathId) {
        self.get_mut(path).into_iter().for_each(|path| path.receiver.request_immediate_feedback(now));
    }

    /// Makes the report due at once, so that the peer follows what changed here.
    pub(super) fn request_feedback_on_all(&mut self, now: Instant) {
        self.iter_mut().for_each(|(_, path)| path.receiver.request_immediate_feedback(now));
    }

    /// When the next report is due.
    pub(super) fn report_due(&self) -> Option<Instant> {
        self.present.iter().flatten().filter_map(|path| path.receiver.due()).min()
    }

    /// The report on all paths that is sent now.
    pub(super) fn report(&mut self, now: Instant) -> Vec<PathReport> {
        let report = |(path, id): (&mut Option<Path<P>>, PathId)| {
            let Path { sender, receiver, .. } = path.as_mut()?;
            let report = receiver.report(now, id, sender.wanted_state, self.order.rank(id))?;
            Some(PathReport { is_overdue: sender.liveness().is_overdue(), ..report })
        };
        self.present.iter_mut().zip((0..).map(PathId)).filter_map(report).collect()
    }

    /// The path whose report a packet sent now may carry: the one that waits longest.
    pub(super) fn to_ride(&self, now: Instant) -> Option<PathId> {
        let waiting = self.iter().filter(|(_, path)| path.receiver.may_ride(now));
        waiting.min_by_key(|(_, path)| path.receiver.pending_since()).map(|(id, _)| id)
    }

    /// The longest datagram that every usable path carries.
    pub(super) fn passes_all_bytes(&self) -> Option<u32> {
        let used = self.senders().filter(|sender| sender.is_open() && sender.liveness() != Liveness::Down);
        used.filter_map(|sender| Some(sender.mtu.as_ref()?.settled)).min()
    }

    /// The paths on which packets of the peer may arrive.
    pub(super) fn active_paths(&self, mode: Mode, peer_retransmits: bool) -> ActivePaths {
        let up_to = |worst: Liveness| {
            // In these modes backups carry copies.
            let least =
                if matches!(mode, Mode::Redundant | Mode::Adaptive) { PathState::Backup } else { PathState::Active };
            let used = |path: &Path<P>| path.sender.wanted_state >= least && path.sender.liveness() <= worst;
            self.iter().map(|(id, path)| u16::from(used(path)) << id.0).sum::<u16>()
        };
        // Our own unanswered probe gives no information about what the peer sends.
        let paths =
            Some(up_to(Liveness::Unknown)).filter(|paths| *paths != 0).unwrap_or_else(|| up_to(Liveness::Probing));
        ActivePaths { paths, retransmits: peer_retransmits }
    }

    /// Tells each path what another one could do, given what is late; `None`: copies are not wanted.
    pub(super) fn compare(&mut self, now: Instant, late: Option<Duration>) {
        for index in 0..self.present.len() {
            let other = late.and_then(|late| self.best_beside(now, index, late));
            self.present[index].iter_mut().for_each(|path| path.sender.lateness.other = other);
        }
    }

    fn best_beside(&self, now: Instant, index: usize, late: Duration) -> Option<Other> {
        let others = self.iter().filter(|(id, _)| usize::from(id.0) != index).map(|(_, path)| &path.sender);
        let open = others.filter(|other| other.is_open() && other.liveness() != Liveness::Down);
        let could = open.filter_map(|other| {
            let is_sure = other.liveness() == Liveness::Up && !other.is_doubted(now);
            Some(Other { usual: other.lateness.usual()?, is_sure, late })
        });
        could.min_by_key(|other| (!other.is_sure, other.usual))
    }

    pub(super) fn bytes_in_flight(&self) -> u64 {
        self.senders().map(SendPath::bytes_in_flight).sum()
    }

    /// Minimum RTT of the lowest-delay active path; without one, of any path.
    pub(super) fn min_rtt(&self) -> Duration {
        let min = self.senders().filter(|sender| sender.is_used()).filter_map(|sender| sender.rtt.min).min();
        min.or_else(|| self.senders().filter_map(|sender| sender.rtt.min).min()).unwrap_or_default()
    }

    /// Delay difference of the paths that count.
    pub(super) fn delay_difference(&self, counts: impl Fn(&SendPath<P>) -> bool) -> Duration {
        let reference = self.reference_delay();
        let delays = self.senders().filter(|sender| counts(sender));
        let delays = delays.filter_map(|sender| Some(sender.one_way_delay?.minus_us(reference)));
        let (low, high) = delays.fold((i64::MAX, i64::MIN), |(low, high), us| (low.min(us), high.max(us)));
        Duration::from_micros(high.saturating_sub(low).clamp(0, MAX_DELAY_DIFFERENCE_US) as u64)
    }

    /// Reference for one-way delays: that of any path.
    pub(super) fn reference_delay(&self) -> OneWayDelay {
        self.senders().find_map(|sender| sender.one_way_delay).unwrap_or_default()
    }

    /// Applies the peer's report on a path; returns the lost packets.
    pub(super) fn on_report(&mut self, now: Instant, report: &PathReport) -> VecDeque<Retransmittable<P>> {
        self.get_mut(report.path).map_or_else(VecDeque::new, |path| path.sender.on_report(now, report))
    }

    /// Applies feedback that a packet carried.
    pub(super) fn on_feedback(&mut self, now: Instant, feedback: PathFeedback) {
        if let Some(path) = self.get_mut(feedback.path) {
            path.sender.on_report(now, &feedback.report());
        }
    }

    /// The number of these paths that are up.
    pub(super) fn number_up(&self, paths: PathSet) -> usize {
        let is_up = |path: &PathId| self.get(*path).is_some_and(|path| path.sender.liveness() == Liveness::Up);
        paths.iter().filter(is_up).count()
    }

    /// Whether some path delivers, as far as known.
    pub(super) fn any_delivers(&self) -> bool {
        self.senders().any(|sender| sender.is_open() && sender.liveness() < Liveness::Probing)
    }

    /// Records that there is nothing to send.
    pub(super) fn note_idle(&mut self, now: Instant) {
        for (_, path) in self.iter_mut() {
            if path.sender.has_cwnd_room() {
                path.sender.rate.idle = now;
            }
        }
    }

    /// Resets all paths after a restart of the peer.
    pub(super) fn on_peer_restart(&mut self, now: Instant) {
        for (_, path) in self.iter_mut() {
            path.receiver = RecvPath::after_sender_restart(now);
            path.sender = path.sender.after_peer_restart(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    #[test]
    fn a_path_added_again_continues_its_numbers_and_has_its_wanted_state() {
        let mut paths: Paths<u8> = Paths::new(PathOrder::new(&[]));
        paths.set_wanted(NOW, [PathState::Active, PathState::Backup]);
        paths.add(NOW, PathId(1));
        assert_eq!(paths.get_mut(PathId(1)).map(|path| path.sender.send(NOW, 100, None)), Some(0));
        paths.add(NOW, PathId(1));
        paths.remove(PathId(1));
        assert!(paths.get(PathId(1)).is_none());
        paths.set_wanted(NOW, [PathState::Active, PathState::Closed]);
        paths.add(NOW, PathId(1));
        let path = paths.get(PathId(1)).map(|path| (path.sender.wanted_state, path.sender.next_number()));
        assert_eq!(path, Some((PathState::Closed, 1)));
    }

    #[test]
    fn no_path_beyond_the_sixteenth_is_added() {
        let mut paths: Paths<u8> = Paths::new(PathOrder::new(&[]));
        paths.add(NOW, PathId(16));
        paths.remove(PathId(16));
        paths.set_wanted(NOW, [PathState::Backup; 20]);
        assert_eq!((paths.iter().count(), paths.get(PathId(16)).is_none()), (0, true));
    }

    #[test]
    fn packets_may_arrive_on_active_paths_that_are_not_down() {
        let mut paths: Paths<u8> = Paths::new(PathOrder::new(&[]));
        (0..3).for_each(|path| paths.add(NOW, PathId(path)));
        paths.set_wanted(NOW, [PathState::Active, PathState::Backup, PathState::Active]);
        let paths = |mode| paths.active_paths(mode, true).paths;
        assert_eq!([Mode::Aggregate, Mode::Redundant].map(paths), [0b101, 0b111]);
    }
}
