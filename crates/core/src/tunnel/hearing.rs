//! What the other end tells, and what becomes of it.

use super::recv_path::Incoming;
use super::reorder_buffer::Resequencer;
use super::send_path::Outgoing;
use super::wire::control_message::{Body, Message, PathReport};
use super::wire::gre::NUMBERED_BYTES;
use super::{START_EACH, Tunnel};
use crate::path::PathId;
use crate::time::Instant;

impl<P: Clone> Tunnel<P> {
    pub(super) fn hear(&mut self, now: Instant, path: PathId, number: Option<u32>, message: Message) {
        self.appear(now, path);
        if self.peer_epoch != Some(message.epoch) {
            if self.peer_began.is_some_and(|began| now.since(began) < START_EACH) {
                return;
            }
            self.begin_anew(now, message.epoch);
        }
        self.peer_repairs = message.repairs;
        if message.leads && !self.leads {
            self.mode = message.mode;
        }
        let around = self.around_bytes + NUMBERED_BYTES;
        if let (Some(number), Some(path)) = (number, self.at_mut(path)) {
            path.inward.take(now, number, message.body.bytes() as u32 + around);
            if matches!(message.body, Body::Probe | Body::MtuProbe(_)) {
                path.inward.hurry(now);
            }
        }
        if let Body::Report { heard, paths } = message.body {
            let follows = message.leads && !self.leads;
            for report in &paths {
                if let Some(path) = self.at_mut(report.path).filter(|_| follows) {
                    path.out.wish = report.wish;
                    self.ranks[usize::from(report.path.0)] = report.rank;
                }
                if heard == self.epoch {
                    self.settle(now, report);
                }
            }
        }
    }

    /// The other end has started: it knows nothing of before. Orders and numbers go
    /// on: it may have seen some already.
    fn begin_anew(&mut self, now: Instant, epoch: u32) {
        if self.peer_epoch.replace(epoch).is_none() {
            return;
        }
        self.peer_began = Some(now);
        self.resequencer = Resequencer::of_another_sender(now);
        for (_, path) in self.known() {
            path.inward = Incoming::of_another_sender(now);
            let mtu = path.out.mtu.take();
            path.out = Outgoing::new(now, path.out.wish, path.out.next_number());
            path.out.mtu = mtu;
        }
        self.repairs.clear();
    }

    fn settle(&mut self, now: Instant, report: &PathReport) {
        let Some(path) = self.at_mut(report.path) else { return };
        let lost = path.out.settle(now, report);
        self.send_again(now, lost);
    }
}
