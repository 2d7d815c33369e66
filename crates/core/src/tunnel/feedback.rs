//! Feedback between the endpoints: what is sent, on which path, and what is received.

use alloc::vec::Vec;

use super::recv_path::RecvPath;
use super::reorder_buffer::ReorderBuffer;
use super::send_path::{Liveness, SendPath, TRAIN_PACKETS};
use super::wire::control_message::{Body, Message, PROBE_BYTES, PathReport};
use super::wire::gre::NUMBERED_BYTES;
use super::{MIN_RESTART_INTERVAL, Output, Tunnel};
use crate::path::{PathId, PathState};
use crate::time::{Duration, Instant};

/// Minimum time between two reports that are sent on two paths.
const MIN_SECOND_REPORT_INTERVAL: Duration = Duration::from_millis(10);

impl<P: Clone> Tunnel<P> {
    fn message(&self, body: Body) -> Message {
        Message {
            epoch: self.epoch,
            mode: self.mode,
            retransmits: self.retransmits(),
            is_initiator: self.is_initiator,
            body,
        }
    }

    pub(super) fn probe(&mut self, now: Instant, path: PathId) {
        if let Some(at) = self.at_mut(path) {
            at.sender.probed();
            self.send_numbered(now, path, Body::Probe);
        }
    }

    pub(super) fn send_train(&mut self, now: Instant, path: PathId) {
        if let Some(at) = self.at_mut(path) {
            at.sender.begin_train();
            (0..TRAIN_PACKETS).for_each(|_| self.send_numbered(now, path, Body::PacketTrain));
        }
    }

    fn send_numbered(&mut self, now: Instant, path: PathId, body: Body) {
        let bytes = body.bytes() as u32 + NUMBERED_BYTES + self.overhead_bytes;
        let message = self.message(body);
        let Some(at) = self.at_mut(path) else { return };
        let number = Some(at.sender.send(now, bytes, None));
        self.outputs.push_back(Output::Message { path, number, message });
    }

    /// Sends a probe of the size in question. The short probe after it, which any path carries, makes the
    /// peer report at once whether the long one arrived.
    pub(super) fn probe_mtu(&mut self, now: Instant, path: PathId, size: u32) {
        let overhead = NUMBERED_BYTES + self.overhead_bytes;
        let length = u16::try_from(size.saturating_sub(overhead)).unwrap_or(u16::MAX);
        self.send_numbered(now, path, Body::MtuProbe(length.max(PROBE_BYTES as u16 + 1)));
        if let Some(at) = self.at_mut(path) {
            at.sender.note_mtu_probe();
        }
        self.probe(now, path);
    }

    pub(super) fn report_due(&self) -> Option<Instant> {
        self.paths.iter().flatten().filter_map(|path| path.receiver.due()).min()
    }

    pub(super) fn report(&mut self, now: Instant) {
        let mut paths = Vec::new();
        for (id, path) in self.paths_mut() {
            paths.extend(path.receiver.report(now, id, path.sender.wanted_state));
        }
        paths.iter_mut().for_each(|report| report.rank = self.ranks[usize::from(report.path.0)]);
        let active_paths = self.report_paths(now);
        let message = self.message(Body::Report { peer_epoch: self.peer_epoch.unwrap_or(0), paths });
        for path in active_paths {
            self.outputs.push_back(Output::Message { path, number: None, message: message.clone() });
        }
    }

    /// The paths of a report: the active path with the lowest RTT that is up, and at intervals a second
    /// path in rotation, so that feedback never depends on one path for long.
    fn report_paths(&mut self, now: Instant) -> Vec<PathId> {
        self.report_turn = self.report_turn.wrapping_add(1);
        let turn = self.report_turn;
        let mut paths: Vec<_> = self
            .paths_mut()
            .filter(|(_, path)| path.sender.wanted_state != PathState::Closed)
            .map(|(id, path)| {
                let works = path.sender.liveness == Liveness::Up;
                (
                    !works,
                    path.sender.wanted_state != PathState::Active,
                    path.sender.liveness,
                    path.sender.rtt.smoothed(),
                    id,
                )
            })
            .collect();
        paths.sort_unstable();
        let other_index = usize::from(turn / 8) % paths.len().max(2).saturating_sub(1) + 1;
        let second =
            paths.get(other_index).filter(|_| now.since(self.last_second_report) >= MIN_SECOND_REPORT_INTERVAL);
        if second.is_some() {
            self.last_second_report = now;
        }
        paths.first().into_iter().chain(second).map(|(.., id)| *id).collect()
    }

    pub(super) fn on_message(&mut self, now: Instant, path: PathId, number: Option<u32>, message: Message) {
        self.add_path(now, path);
        if self.peer_epoch != Some(message.epoch) {
            if self.peer_restarted_at.is_some_and(|began| now.since(began) < MIN_RESTART_INTERVAL) {
                return;
            }
            self.on_peer_restart(now, message.epoch);
        }
        self.peer_retransmits = message.retransmits;
        if message.is_initiator && !self.is_initiator {
            self.mode = message.mode;
        }
        let overhead = self.overhead_bytes + NUMBERED_BYTES;
        if let (Some(number), Some(path)) = (number, self.at_mut(path)) {
            path.receiver.take(now, number, message.body.bytes() as u32 + overhead);
            if matches!(message.body, Body::Probe | Body::MtuProbe(_)) {
                path.receiver.request_immediate_feedback(now);
            }
        }
        if let Body::Report { peer_epoch, paths } = message.body {
            let follows = message.is_initiator && !self.is_initiator;
            for report in &paths {
                if let Some(path) = self.at_mut(report.path).filter(|_| follows) {
                    path.sender.wanted_state = report.wanted_state;
                    self.ranks[usize::from(report.path.0)] = report.rank;
                }
                if peer_epoch == self.epoch {
                    self.on_path_report(now, report);
                }
            }
        }
    }

    /// The peer restarted and lost its state. Sequence numbers of flows and paths continue, because the
    /// peer may have received some already.
    fn on_peer_restart(&mut self, now: Instant, epoch: u32) {
        if self.peer_epoch.replace(epoch).is_none() {
            return;
        }
        self.peer_restarted_at = Some(now);
        self.reorder = ReorderBuffer::after_sender_restart(now);
        for (_, path) in self.paths_mut() {
            path.receiver = RecvPath::after_sender_restart(now);
            let mtu = path.sender.mtu.take();
            path.sender = SendPath::new(now, path.sender.wanted_state, path.sender.next_number());
            path.sender.mtu = mtu;
        }
        self.retransmits.clear();
    }

    fn on_path_report(&mut self, now: Instant, report: &PathReport) {
        let Some(path) = self.at_mut(report.path) else { return };
        let lost = path.sender.on_report(now, report);
        self.retransmit(now, lost);
    }
}
