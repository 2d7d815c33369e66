//! When the paths are looked at: a timer expires, or the peer or the driver says something about them. A packet alone
//! changes the timers of its path only.

use super::fq_codel::PathDelays;
use super::paths::Path;
use super::primary_path::wants_trains;
use super::send_path::{SendPath, TunnelState};
use super::{Output, Tunnel};
use crate::path::PathId;
use crate::time::{Duration, Instant};

/// The tunnel is idle after this time without a packet.
const IDLE_AFTER: Duration = Duration::from_secs(5);

impl<P> Path<P> {
    /// When a timer expires, or a report is due.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.sender.next_wakeup().into_iter().chain(self.receiver.due()).min()
    }
}

impl<P: Clone> Tunnel<P> {
    /// When a timer of a path or of the reorder buffer expires.
    pub(super) fn due(&self) -> Option<Instant> {
        let paths = self.paths.iter().filter_map(|(_, path)| path.next_wakeup());
        paths.chain(self.reorder.next_wakeup()).min()
    }

    /// Advances all paths if it is time.
    pub(super) fn advance_if_due(&mut self, now: Instant) {
        if self.advance_at.is_some_and(|at| at <= now) {
            self.advance(now);
            let mut due = self.due();
            // The result may itself be due at once, such as a path whose probe timed out long ago.
            if due.is_some_and(|at| at <= now) {
                self.advance(now);
                due = self.due();
            }
            self.advance_at = due.map(|at| at.max(now + Duration::from_nanos(1)));
        }
    }

    /// Advances at this time, if not before.
    pub(super) fn advance_by(&mut self, at: Option<Instant>) {
        self.advance_at = self.advance_at.into_iter().chain(at).min();
    }

    /// Advances when a timer of a path expires.
    pub(super) fn watch(&mut self, path: PathId) {
        self.advance_by(self.paths.get(path).and_then(Path::next_wakeup));
    }

    /// Advances when a timer of a path expires that just received a packet without feedback: while something is in
    /// flight on it, its sending side has the same timers as before.
    pub(super) fn watch_receiver(&mut self, path: PathId) {
        match self.paths.get(path) {
            Some(path) if path.sender.bytes_in_flight() > 0 => self.advance_by(path.receiver.due()),
            _ => self.watch(path),
        }
    }

    /// Records that a packet passes. All paths are advanced if the tunnel was idle, or one is stalled, whose packets
    /// another path is to carry.
    pub(super) fn note_busy(&mut self, now: Instant) {
        if now.since(self.last_busy) > IDLE_AFTER || self.paths.senders().any(|sender| sender.liveness().is_overdue()) {
            self.advance_at = Some(now);
        }
        self.last_busy = now;
    }

    /// Advances all paths to `now`, and sends the reports and events that are due.
    fn advance(&mut self, now: Instant) {
        self.scheduler.is_full = false;
        self.reorder.advance(now, self.paths.active_paths(self.mode, self.peer.retransmits));
        let state = TunnelState {
            is_idle: now.since(self.last_busy) > IDLE_AFTER,
            delay_difference: self.paths.delay_difference(SendPath::is_open),
        };
        let (wants_trains, mut is_overdue) = (wants_trains(self.mode, &self.paths), false);
        let answering = self.paths.senders().filter(|sender| sender.answers()).count();
        for (id, path) in self.paths.iter_mut() {
            let has_other_path = answering > usize::from(path.sender.answers());
            self.retransmits.push_moved(now, path.sender.advance(now, state, has_other_path));
            if path.take_change() {
                let (liveness, reason) = (path.sender.liveness(), path.sender.reason().clone());
                is_overdue |= liveness.is_overdue();
                self.outbox.outputs.push_back(Output::Changed { path: id, liveness, reason });
            }
        }
        self.repeat_late(now);
        if is_overdue && self.peer.reads_feedback {
            self.report_paths.note_change(now);
            self.paths.request_feedback_on_all(now);
        }
        let header = self.header();
        for (id, path) in self.paths.iter_mut().filter(|(_, path)| path.sender.wants_probe(now)) {
            self.outbox.probe(now, id, path, header);
        }
        for (id, path) in self.paths.iter_mut() {
            if let Some(size) = path.sender.mtu_probe(now) {
                self.outbox.mtu_probe(now, id, path, header, size);
            }
        }
        for (id, path) in self.paths.iter_mut().filter(|(_, path)| wants_trains && path.sender.wants_train()) {
            self.outbox.train(now, id, path, header);
        }
        self.scheduler.update_primary(self.mode, &self.paths);
        self.delays =
            PathDelays { rtt: self.paths.min_rtt(), delay_difference: self.paths.delay_difference(SendPath::is_used) };
        if self.paths.report_due().is_some_and(|at| now >= at) {
            self.report(now);
        }
    }
}
