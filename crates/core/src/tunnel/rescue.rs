//! Copies in mode adaptive: of packets that are at risk because the answers of a path are late.

use super::outbox::Options;
use super::retransmit_queue::Retransmittable;
use super::{Mode, Tunnel};
use crate::time::Instant;

impl<P: Clone> Tunnel<P> {
    /// Sends again, over another path, what is in flight on a path whose answer is overdue, before a loss is proved.
    pub(super) fn repeat_late(&mut self, now: Instant) {
        self.paths.compare(now, (self.mode == Mode::Adaptive).then_some(self.late));
        if self.mode != Mode::Adaptive || !self.retransmits() {
            return;
        }
        for (id, path) in self.paths.iter_mut() {
            let Some(after) = path.sender.repeat_after() else { continue };
            let sent_before = now - after;
            let late = path.sender.in_flight.take_copies_while(sent_before, |bytes| self.copy_budget.take(now, bytes));
            let late = late.into_iter().map(|copy| copy.avoiding(id));
            self.retransmits.push_moved(now, late);
        }
    }

    /// Sends a copy of a packet that was sent first now, if it is at risk.
    pub(super) fn send_copy_at_risk(&mut self, now: Instant, copy: &Retransmittable<P>) {
        self.copy_budget.on_first(now, copy.bytes);
        if let Some(path) = self.scheduler.copy_on
            && self.copy_budget.take(now, copy.bytes)
        {
            self.send_on(now, path, copy, Options { is_copy: true, ..Options::default() });
        }
    }
}
