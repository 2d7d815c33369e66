//! What the other end tells, and what becomes of it.

use super::recv_path::RecvPath;
use super::reorder_buffer::ReorderBuffer;
use super::send_path::SendPath;
use super::wire::control_message::{Body, Message, PathReport};
use super::wire::gre::NUMBERED_BYTES;
use super::{START_EACH, Tunnel};
use crate::path::PathId;
use crate::time::Instant;

impl<P: Clone> Tunnel<P> {
    pub(super) fn on_message(&mut self, now: Instant, path: PathId, number: Option<u32>, message: Message) {
        self.appear(now, path);
        if self.peer_epoch != Some(message.epoch) {
            if self.peer_began.is_some_and(|began| now.since(began) < START_EACH) {
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
        if let Body::Report { heard, paths } = message.body {
            let follows = message.is_initiator && !self.is_initiator;
            for report in &paths {
                if let Some(path) = self.at_mut(report.path).filter(|_| follows) {
                    path.out.wanted_state = report.wanted_state;
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
    fn on_peer_restart(&mut self, now: Instant, epoch: u32) {
        if self.peer_epoch.replace(epoch).is_none() {
            return;
        }
        self.peer_began = Some(now);
        self.reorder = ReorderBuffer::of_another_sender(now);
        for (_, path) in self.known() {
            path.receiver = RecvPath::of_another_sender(now);
            let mtu = path.out.mtu.take();
            path.out = SendPath::new(now, path.out.wanted_state, path.out.next_number());
            path.out.mtu = mtu;
        }
        self.retransmits.clear();
    }

    fn settle(&mut self, now: Instant, report: &PathReport) {
        let Some(path) = self.at_mut(report.path) else { return };
        let lost = path.out.settle(now, report);
        self.retransmit(now, lost);
    }
}
