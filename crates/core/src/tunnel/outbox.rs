//! Packets and messages that leave a path, with their sequence numbers, and events for the driver.

use alloc::collections::VecDeque;

use super::paths::Path;
use super::retransmit_queue::Retransmittable;
use super::send_path::TRAIN_PACKETS;
use super::wire::control_message::{Body, Message, PROBE_BYTES};
use super::wire::gre_key::GreKey;
use super::wire::overhead::Overhead;
use super::wire::path_feedback::{FEEDBACK_BYTES, PathFeedback};
use super::{Mode, Output};
use crate::path::PathId;
use crate::time::{Duration, Instant};

/// What every message says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub epoch: u32,
    pub mode: Mode,
    pub retransmits: bool,
    pub is_initiator: bool,
}

impl Header {
    /// A message.
    pub(super) fn message(self, body: Body) -> Message {
        let Header { epoch, mode, retransmits, is_initiator } = self;
        Message { epoch, mode, retransmits, is_initiator, reads_feedback: true, body }
    }
}

/// How a packet is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// Whether it is kept for retransmission.
    pub is_kept: bool,
    /// Whether it was sent before, or just now over another path.
    pub is_copy: bool,
    /// How much later than usual its report may be.
    pub leniency: Duration,
    /// Feedback that it carries.
    pub feedback: Option<PathFeedback>,
}

/// Outputs that the driver has not taken yet.
#[derive(Debug)]
pub(super) struct Outbox<P> {
    pub outputs: VecDeque<Output<P>>,
    overhead: Overhead,
}

impl<P: Clone> Outbox<P> {
    /// No outputs.
    pub(super) fn new(overhead: Overhead) -> Outbox<P> {
        Outbox { outputs: VecDeque::new(), overhead }
    }

    /// Length of a numbered packet of `bytes` as a datagram on the wire, in bytes.
    pub(super) fn wire_bytes(&self, bytes: u32) -> u32 {
        bytes + self.overhead.around_packet()
    }

    /// Sends a packet on a path, which keeps a copy for retransmission if `is_kept`.
    pub(super) fn packet(
        &mut self,
        now: Instant,
        id: PathId,
        path: &mut Path<P>,
        copy: &Retransmittable<P>,
        Options { is_kept, is_copy, leniency, feedback }: Options,
    ) {
        let feedback_bytes = feedback.map_or(0, |_| FEEDBACK_BYTES);
        path.sender.counts.control_bytes += u64::from(feedback_bytes);
        let bytes = self.wire_bytes(copy.bytes + feedback_bytes);
        path.sender.counts.copied_bytes += if is_copy { u64::from(bytes - feedback_bytes) } else { 0 };
        let number = path.sender.send_leniently(now, bytes, is_kept.then(|| copy.clone()), leniency);
        let key = GreKey { path: id, flow: copy.flow, sequence: copy.sequence };
        self.outputs.push_back(Output::Send { key, number, feedback, packet: copy.packet.clone() });
    }

    /// Sends a probe on a path.
    pub(super) fn probe(&mut self, now: Instant, id: PathId, path: &mut Path<P>, header: Header) {
        path.sender.on_probe_sent();
        self.numbered(now, id, path, header.message(Body::Probe));
    }

    /// Sends a probe of the size in question. The short probe after it, which any path carries, makes the
    /// peer report at once whether the long one arrived.
    pub(super) fn mtu_probe(&mut self, now: Instant, id: PathId, path: &mut Path<P>, header: Header, size: u32) {
        let length = u16::try_from(size.saturating_sub(self.wire_bytes(0))).unwrap_or(u16::MAX);
        self.numbered(now, id, path, header.message(Body::MtuProbe(length.max(PROBE_BYTES as u16 + 1))));
        path.sender.in_flight.mark_mtu_probe();
        self.probe(now, id, path, header);
    }

    /// Sends a packet train on a path.
    pub(super) fn train(&mut self, now: Instant, id: PathId, path: &mut Path<P>, header: Header) {
        path.sender.begin_train();
        (0..TRAIN_PACKETS).for_each(|_| self.numbered(now, id, path, header.message(Body::PacketTrain)));
    }

    /// Sends a report on a path.
    pub(super) fn report(&mut self, id: PathId, path: &mut Path<P>, message: Message) {
        let wire_bytes = message.body.bytes() as u64 + u64::from(self.overhead.around_unnumbered());
        path.sender.counts.sent_bytes += wire_bytes;
        path.sender.counts.control_bytes += wire_bytes;
        self.outputs.push_back(Output::Message { path: id, number: None, message });
    }

    fn numbered(&mut self, now: Instant, id: PathId, path: &mut Path<P>, message: Message) {
        let wire_bytes = self.wire_bytes(message.body.bytes() as u32);
        path.sender.counts.control_bytes += u64::from(wire_bytes);
        let number = Some(path.sender.send(now, wire_bytes, None));
        self.outputs.push_back(Output::Message { path: id, number, message });
    }
}
