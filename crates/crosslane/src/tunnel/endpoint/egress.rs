//! What leaves: sealed, and joined into as few system calls as it goes.

use crosslane_core::path::PathId;
use crosslane_core::tunnel::wire::control_message::{Body, MAX_PATHS};
use crosslane_core::tunnel::wire::gre::{Header, Payload};
use crosslane_core::tunnel::wire::gre_key::GreKey;
use crosslane_core::tunnel::{Liveness, Output};

use super::types::{EngineOutput, Way};
use crate::tunnel::security::Session;
use crate::tunnel::socket::{SEGMENTS_MAX, SEND_BYTES_MAX};

/// Packets of one turn: then others have theirs.
const TURN: usize = 256;

/// Datagrams for one way, of one length but for the last.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// Where to.
    pub way: Way,
    /// DSCP and ECN.
    pub tos: u8,
    /// Length of each, in bytes.
    pub segment: usize,
    /// The path may not carry them whole: routers may cut them.
    pub may_be_cut: bool,
    /// All of them.
    pub bytes: &'a [u8],
}

impl<'a> Sent<'a> {
    /// One datagram that is of no special service and passes any path.
    pub fn one(way: Way, bytes: &'a [u8]) -> Sent<'a> {
        Sent { way, tos: 0, segment: bytes.len(), may_be_cut: false, bytes }
    }
}

/// Datagrams for one path, of one length but for the last.
pub(super) struct Joined<'a> {
    tos: u8,
    /// Length of each, in bytes.
    pub(super) segment: usize,
    /// They show whether the path carries them whole.
    pub(super) stays_whole: bool,
    bytes: &'a [u8],
}

impl<'a> Joined<'a> {
    /// The same on its way.
    pub(super) fn sent(&self, way: Way) -> Sent<'a> {
        Sent { way, tos: self.tos, segment: self.segment, may_be_cut: false, bytes: self.bytes }
    }
}

/// Collects what an engine says and hands it out by path.
#[derive(Default)]
pub struct Outbox {
    said: Vec<EngineOutput>,
    packet: Vec<u8>,
    batches: Vec<Batch>,
    pub(super) changes: Vec<(PathId, Liveness, String)>,
}

#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    segment: usize,
    count: usize,
    tos: u8,
    stays_whole: bool,
    /// The last is shorter: nothing can follow it.
    ended: bool,
}

impl Outbox {
    pub(super) fn take(&mut self, said: EngineOutput) {
        match said {
            Output::Changed { path, liveness, reason } => self.changes.push((path, liveness, reason)),
            said => self.said.push(said),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.said.len() >= TURN
    }

    /// Whether something in it is to be answered: a report is not.
    pub(super) fn asks(&self) -> bool {
        self.said.iter().any(|said| matches!(said, Output::Send { .. } | Output::Message { number: Some(_), .. }))
    }

    /// Hands out the datagrams by path.
    pub(super) fn leave(&mut self, session: Option<&Session>, mut send: impl FnMut(PathId, Joined<'_>)) {
        self.leave_as(session, false, &mut send);
    }

    /// As [`leave`](Self::leave), in plain GRE without key and sequence number.
    pub(super) fn leave_bare(&mut self, mut send: impl FnMut(PathId, Joined<'_>)) {
        self.leave_as(None, true, &mut send);
    }

    fn leave_as(&mut self, session: Option<&Session>, bare: bool, mut send: &mut impl FnMut(PathId, Joined<'_>)) {
        self.batches.resize_with(MAX_PATHS, Batch::default);
        for said in self.said.drain(..) {
            self.packet.clear();
            let Some((path, tos)) = write(&said, bare, &mut self.packet) else { continue };
            let Some(batch) = self.batches.get_mut(usize::from(path.0)) else { continue };
            let stays_whole =
                matches!(&said, Output::Message { message, .. } if matches!(message.body, Body::MtuProbe(_)));
            batch.add(session, path, (tos, stays_whole), &self.packet, &mut send);
        }
        for (place, batch) in self.batches.iter_mut().enumerate() {
            batch.flush(PathId(place as u8), &mut send);
        }
    }
}

/// The GRE packet of what an engine says, with its path, and DSCP and ECN.
fn write(said: &EngineOutput, bare: bool, into: &mut Vec<u8>) -> Option<(PathId, u8)> {
    match said {
        Output::Send { key: label, number, packet } => {
            let payload = if packet.bytes.first()? >> 4 == 6 { Payload::Ipv6 } else { Payload::Ipv4 };
            let (key, sequence) = if bare { (None, None) } else { (Some(label.key()), Some(*number)) };
            let header = Header { payload, key, sequence, checksum: false };
            header.write(&packet.bytes, into);
            Some((label.path, packet.tos))
        }
        Output::Message { path, number, message } => {
            let key = Some(GreKey { path: *path, flow: 0, sequence: 0 }.key());
            Header { payload: Payload::Control, key, sequence: *number, checksum: false }.write(&[], into);
            message.write(into);
            Some((*path, 0))
        }
        Output::Deliver(_) | Output::Changed { .. } => None,
    }
}

impl Batch {
    fn add(
        &mut self,
        session: Option<&Session>,
        path: PathId,
        (tos, stays_whole): (u8, bool),
        packet: &[u8],
        send: &mut impl FnMut(PathId, Joined<'_>),
    ) {
        let begin = self.bytes.len();
        match session {
            // Keys that are used up are followed by new ones; what was to go meanwhile is lost.
            Some(session) => drop(session.seal(path.0, packet, &mut self.bytes)),
            None => self.bytes.extend_from_slice(packet),
        }
        let length = self.bytes.len() - begin;
        if length == 0 {
            return;
        }
        let fits = self.count < SEGMENTS_MAX && self.bytes.len() <= SEND_BYTES_MAX && length <= self.segment;
        let alike = tos == self.tos && stays_whole == self.stays_whole;
        if self.count > 0 && (!fits || self.ended || !alike) {
            send(path, self.joined(begin));
            self.bytes.drain(..begin);
            self.count = 0;
        }
        if self.count == 0 {
            (self.segment, self.tos, self.stays_whole) = (length, tos, stays_whole);
        }
        self.ended = length < self.segment;
        self.count += 1;
    }

    /// The first `length` bytes.
    fn joined(&self, length: usize) -> Joined<'_> {
        Joined { tos: self.tos, segment: self.segment, stays_whole: self.stays_whole, bytes: &self.bytes[..length] }
    }

    fn flush(&mut self, path: PathId, send: &mut impl FnMut(PathId, Joined<'_>)) {
        if self.count > 0 {
            send(path, self.joined(self.bytes.len()));
        }
        self.bytes.clear();
        self.count = 0;
    }
}
