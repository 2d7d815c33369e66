//! Feedback for the peer, in messages and on packets, and the peer's.

use alloc::vec::Vec;

use super::Tunnel;
use super::outbox::Header;
use super::paths::Path;
use super::recv_path::{LATE_REPORT_BYTES, LENIENCY, Urgency};
use super::send_path::SendPath;
use super::wire::control_message::{Body, PathReport};
use super::wire::path_feedback::{FEEDBACK_BYTES, PathFeedback};
use crate::path::PathId;
use crate::time::{Duration, Instant};

/// A packet that can carry feedback is expected for this time after the last one.
const RIDE_WITHIN: Duration = Duration::from_millis(100);
/// Reports of the peer may be late for this time after a packet of it whose own report may not be late: it then
/// watches the path itself. Longer than [`RIDE_WITHIN`], for which the peer lets its reports be late.
const LENIENT_FOR: Duration = Duration::from_millis(300);
/// A packet of up to this length carries feedback whatever the path's MTU, in bytes without the tunnel's headers.
const MAX_RIDE_BYTES: u32 = 1280 - FEEDBACK_BYTES;

impl<P> Path<P> {
    /// How much later than usual the report on a packet of `bytes` may be that is sent now.
    pub(super) fn leniency(&self, now: Instant, bytes: u32) -> Duration {
        let is_watched = self.receiver.last_prompt.is_some_and(|last| now.since(last) < LENIENT_FOR);
        if bytes <= LATE_REPORT_BYTES && is_watched { LENIENCY } else { Duration::ZERO }
    }
}

impl<P> SendPath<P> {
    /// Whether it is in use; a new path is not before its first packet.
    pub(super) fn is_carrying(&self) -> bool {
        self.has_carried && self.is_in_use()
    }

    /// Records that it carries a packet in either direction.
    pub(super) fn note_used(&mut self, now: Instant) {
        (self.last_used, self.has_carried) = (now, true);
    }
}

impl<P: Clone> Tunnel<P> {
    /// Sends the report that is due.
    pub(super) fn report(&mut self, now: Instant) {
        let over = self.report_paths.choose(now, self.mode, &self.paths);
        let (peer_epoch, mut all) = (self.peer.epoch(), self.paths.report(now));
        all.iter_mut().for_each(|report| report.is_overdue &= self.peer.reads_feedback);
        for (place, path) in over.enumerate() {
            // The return path is a part of the RTT: one that is not in use returns only the feedback on itself.
            let returns_all = place == 0 || self.paths.get(path).is_some_and(|path| path.sender.is_in_use());
            let paths: Vec<PathReport> =
                all.iter().filter(|report| returns_all || report.path == path).cloned().collect();
            let message = self.header().message(Body::Report { peer_epoch, paths });
            self.paths.get_mut(path).into_iter().for_each(|at| self.outbox.report(path, at, message.clone()));
        }
    }

    /// What every message says.
    pub(super) fn header(&self) -> Header {
        let Tunnel { epoch, mode, is_initiator, .. } = *self;
        Header { epoch, mode, retransmits: self.retransmits(), is_initiator }
    }

    /// The feedback that a packet of `bytes` sent on a path carries.
    pub(super) fn ride(&mut self, now: Instant, over: PathId, bytes: u32) -> Option<PathFeedback> {
        let about = self.paths.to_ride(now).filter(|_| self.peer.reads_feedback)?;
        let wire_bytes = self.outbox.wire_bytes(bytes + FEEDBACK_BYTES);
        let mtu = self.paths.get(over)?.sender.mtu.as_ref();
        let fits = bytes <= MAX_RIDE_BYTES || mtu.is_some_and(|mtu| wire_bytes <= mtu.passes);
        if !fits || !self.report_paths.may_ride(now, self.mode, &self.paths, over) {
            return None;
        }
        let check = self.check();
        self.paths.get_mut(about)?.receiver.ride(now, about, check)
    }

    /// The sum of the bytes of both epochs.
    fn check(&self) -> u8 {
        let bytes = [self.epoch, self.peer.epoch()].map(u32::to_be_bytes);
        bytes.as_flattened().iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    /// Records a packet that arrived on a path, and applies the feedback that it carried.
    pub(super) fn note_packet(
        &mut self,
        now: Instant,
        path: PathId,
        number: Option<u32>,
        bytes: u32,
        feedback: Option<PathFeedback>,
    ) {
        self.paths.add(now, path);
        self.note_busy(now);
        let urgency = self.urgency(now, path, bytes);
        self.note_received(now, path, number, bytes + feedback.map_or(0, |_| FEEDBACK_BYTES), urgency);
        if let Some(feedback) = feedback.filter(|feedback| feedback.check == self.check()) {
            self.paths.on_feedback(now, feedback);
        }
    }

    /// How soon a packet of `bytes` that arrived on a path is reported.
    fn urgency(&mut self, now: Instant, path: PathId, bytes: u32) -> Urgency {
        let lately = |at: Option<Instant>| at.is_some_and(|at| now.since(at) < RIDE_WITHIN);
        let may_ride = self.peer.reads_feedback && lately(self.last_sent);
        let Some(path) = self.paths.get_mut(path) else { return Urgency::default() };
        path.sender.note_used(now);
        let is_short = bytes <= LATE_REPORT_BYTES;
        if !is_short {
            path.receiver.last_prompt = Some(now);
        }
        Urgency { may_ride, may_be_late: is_short && may_ride && lately(path.sender.last_prompt) }
    }

    /// Records a packet or message of `bytes` on the wire inside GRE.
    pub(super) fn note_received(
        &mut self,
        now: Instant,
        path: PathId,
        number: Option<u32>,
        bytes: u32,
        urgency: Urgency,
    ) {
        let wire_bytes = self.outbox.wire_bytes(bytes);
        if let (Some(number), Some(path)) = (number, self.paths.get_mut(path)) {
            path.receiver.take(now, number, wire_bytes, urgency);
        }
    }

    /// Applies the peer's report on a path.
    pub(super) fn on_report(&mut self, now: Instant, report: &PathReport) {
        let lost = self.paths.on_report(now, report);
        if self.paths.min_rtt() <= super::MAX_RETRANSMIT_DELAY {
            self.retransmits.push_lost(now, lost);
        }
        if report.is_overdue
            && let Some(path) = self.paths.get_mut(report.path)
        {
            path.sender.in_flight.end_leniency();
        }
    }
}
