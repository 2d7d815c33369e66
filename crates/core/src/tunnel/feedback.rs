//! What the other end is told, and over which path.

use alloc::vec::Vec;

use super::send_path::{Liveness, TRAIN_PACKETS};
use super::wire::control_message::{Body, Message, PROBE_BYTES};
use super::wire::gre::NUMBERED_BYTES;
use super::{Output, Tunnel};
use crate::path::{PathId, PathState};
use crate::time::{Duration, Instant};

/// Least time between two reports that leave over two paths.
const REPORT_TWICE_EACH: Duration = Duration::from_millis(10);

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
            at.out.probed();
            self.tell_numbered(now, path, Body::Probe);
        }
    }

    pub(super) fn send_train(&mut self, now: Instant, path: PathId) {
        if let Some(at) = self.at_mut(path) {
            at.out.begin_train();
            (0..TRAIN_PACKETS).for_each(|_| self.tell_numbered(now, path, Body::PacketTrain));
        }
    }

    fn tell_numbered(&mut self, now: Instant, path: PathId, body: Body) {
        let bytes = body.bytes() as u32 + NUMBERED_BYTES + self.overhead_bytes;
        let message = self.message(body);
        let Some(at) = self.at_mut(path) else { return };
        let number = Some(at.out.send(now, bytes, None));
        self.outputs.push_back(Output::Tell { path, number, message });
    }

    /// A probe that is as long as the path is asked to carry. The one behind it, which passes anywhere, makes the other
    /// end report at once, and so say whether the long one came.
    pub(super) fn probe_mtu(&mut self, now: Instant, path: PathId, size: u32) {
        let overhead = NUMBERED_BYTES + self.overhead_bytes;
        let length = u16::try_from(size.saturating_sub(overhead)).unwrap_or(u16::MAX);
        self.tell_numbered(now, path, Body::MtuProbe(length.max(PROBE_BYTES as u16 + 1)));
        if let Some(at) = self.at_mut(path) {
            at.out.note_mtu_probe();
        }
        self.probe(now, path);
    }

    pub(super) fn report_due(&self) -> Option<Instant> {
        self.paths.iter().flatten().filter_map(|path| path.receiver.due()).min()
    }

    pub(super) fn report(&mut self, now: Instant) {
        let mut paths = Vec::new();
        for (id, path) in self.known() {
            paths.extend(path.receiver.report(now, id, path.out.wanted_state));
        }
        paths.iter_mut().for_each(|report| report.rank = self.ranks[usize::from(report.path.0)]);
        let active_paths = self.ways_back(now);
        let message = self.message(Body::Report { heard: self.peer_epoch.unwrap_or(0), paths });
        for path in active_paths {
            self.outputs.push_back(Output::Tell { path, number: None, message: message.clone() });
        }
    }

    /// The paths for a report: the quickest that works, of those in use; and now
    /// and then another too, each in its turn, so that none depends on one path for long.
    fn ways_back(&mut self, now: Instant) -> Vec<PathId> {
        self.report_turn = self.report_turn.wrapping_add(1);
        let turn = self.report_turn;
        let mut paths: Vec<_> = self
            .known()
            .filter(|(_, path)| path.out.wanted_state != PathState::Closed)
            .map(|(id, path)| {
                let works = path.out.liveness == Liveness::Up;
                (!works, path.out.wanted_state != PathState::Active, path.out.liveness, path.out.rtt.smoothed(), id)
            })
            .collect();
        paths.sort_unstable();
        let other = usize::from(turn / 8) % paths.len().max(2).saturating_sub(1) + 1;
        let second = paths.get(other).filter(|_| now.since(self.reported_twice) >= REPORT_TWICE_EACH);
        if second.is_some() {
            self.reported_twice = now;
        }
        paths.first().into_iter().chain(second).map(|(.., id)| *id).collect()
    }
}
