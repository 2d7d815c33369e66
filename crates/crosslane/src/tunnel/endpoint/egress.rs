//! Packets to send: encrypted, and batched into few system calls.

use crosslane_core::path::PathId;
use crosslane_core::tunnel::wire::compressed_gre;
use crosslane_core::tunnel::wire::control_message::{Body, MAX_PATHS};
use crosslane_core::tunnel::wire::gre::{Header, Payload};
use crosslane_core::tunnel::wire::gre_key::GreKey;
use crosslane_core::tunnel::{Liveness, Output};

use super::types::{EngineOutput, PathAddress};
use crate::tunnel::security::Session;
use crate::tunnel::socket::{SEGMENTS_MAX, SEND_BYTES_MAX};

/// Maximum number of packets of one peer in one turn.
const TURN: usize = 256;

/// Datagrams to one path address, of equal length except the last.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// Socket and destination.
    pub address: PathAddress,
    /// DSCP and ECN.
    pub tos: u8,
    /// Length of each, in bytes.
    pub segment: usize,
    /// The path may not carry them unfragmented: routers may fragment them.
    pub may_fragment: bool,
    /// The datagrams, concatenated.
    pub bytes: &'a [u8],
}

impl<'a> Transmit<'a> {
    /// One datagram with default DSCP that fits every path.
    pub fn one(address: PathAddress, bytes: &'a [u8]) -> Transmit<'a> {
        Transmit { address, tos: 0, segment: bytes.len(), may_fragment: false, bytes }
    }
}

/// Collects an engine's outputs and sends them by path.
#[derive(Default)]
pub struct Outbox {
    outputs: Vec<EngineOutput>,
    packet: Vec<u8>,
    batches: Vec<Batch>,
    pub(super) changes: Vec<(PathId, Liveness, String)>,
}

/// Datagrams for one path, of equal length except the last.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    segment: usize,
    count: usize,
    tos: u8,
    /// They are MTU probes, which must not be fragmented.
    dont_fragment: bool,
    /// The last datagram is shorter: none can follow it.
    ended: bool,
}

impl Outbox {
    pub(super) fn push(&mut self, output: EngineOutput) {
        match output {
            Output::Changed { path, liveness, reason } => self.changes.push((path, liveness, reason)),
            output => self.outputs.push(output),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.outputs.len() >= TURN
    }

    /// Whether it contains a packet that must be answered: feedback is not.
    pub(super) fn expects_answer(&self) -> bool {
        let is_answered =
            |output: &EngineOutput| matches!(output, Output::Send { .. } | Output::Message { number: Some(_), .. });
        self.outputs.iter().any(is_answered)
    }

    /// Sends the datagrams by path; `keyless`: in GRE without key and sequence number. `route` returns a path's
    /// address, and the longest datagram known to pass it unfragmented, in bytes.
    pub(super) fn send_all(
        &mut self,
        session: Option<&Session>,
        keyless: bool,
        route: impl Fn(PathId) -> Option<(PathAddress, usize)>,
        mut send: impl FnMut(Transmit<'_>),
    ) {
        let mut send = |path, batch: &Batch, length| {
            if let Some((address, passes)) = route(path) {
                send(batch.transmit(address, passes, length));
            }
        };
        self.batches.resize_with(MAX_PATHS, Batch::default);
        for output in self.outputs.drain(..) {
            self.packet.clear();
            let form = match session {
                Some(_) => Form::Compressed,
                None if keyless => Form::Keyless,
                None => Form::Keyed,
            };
            let Some((path, tos)) = write(&output, form, &mut self.packet) else { continue };
            let Some(batch) = self.batches.get_mut(usize::from(path.0)) else { continue };
            let dont_fragment =
                matches!(&output, Output::Message { message, .. } if matches!(message.body, Body::MtuProbe(_)));
            batch.add(session, path, (tos, dont_fragment), &self.packet, &mut send);
        }
        for (place, batch) in self.batches.iter_mut().enumerate() {
            batch.flush(PathId(place as u8), &mut send);
        }
    }
}

/// The form of a GRE header.
#[derive(Clone, Copy)]
enum Form {
    /// In an encrypted message.
    Compressed,
    /// With key and sequence number.
    Keyed,
    /// Without both.
    Keyless,
}

/// Writes the GRE packet of an engine's output; returns its path, and DSCP and ECN.
fn write(output: &EngineOutput, form: Form, into: &mut Vec<u8>) -> Option<(PathId, u8)> {
    let header = |payload, key: GreKey, sequence, into: &mut Vec<u8>| {
        let header = Header { payload, key: Some(key.key()), sequence, checksum: false };
        match form {
            Form::Compressed => compressed_gre::write(&header, into)?,
            Form::Keyed => header.write(&[], into),
            Form::Keyless => Header { key: None, sequence: None, ..header }.write(&[], into),
        }
        Some(())
    };
    match output {
        Output::Send { key, number, feedback, packet } => {
            let is_v6 = packet.bytes.first()? >> 4 == 6;
            let payload = match feedback {
                Some(_) => Payload::WithFeedback,
                None if is_v6 => Payload::Ipv6,
                None => Payload::Ipv4,
            };
            header(payload, *key, Some(*number), into)?;
            feedback.iter().for_each(|feedback| feedback.write(into));
            into.extend_from_slice(&packet.bytes);
            Some((key.path, packet.tos))
        }
        Output::Message { path, number, message } => {
            header(Payload::Control, GreKey { path: *path, flow: 0, sequence: 0 }, *number, into)?;
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
        (tos, dont_fragment): (u8, bool),
        packet: &[u8],
        send: &mut impl FnMut(PathId, &Batch, usize),
    ) {
        let begin = self.bytes.len();
        match session {
            // New keys replace exhausted ones; packets meanwhile are lost.
            Some(session) => drop(session.seal(path.0, packet, &mut self.bytes)),
            None => self.bytes.extend_from_slice(packet),
        }
        let length = self.bytes.len() - begin;
        if length == 0 {
            return;
        }
        let fits = self.count < SEGMENTS_MAX && self.bytes.len() <= SEND_BYTES_MAX && length <= self.segment;
        let alike = tos == self.tos && dont_fragment == self.dont_fragment;
        if self.count > 0 && (!fits || self.ended || !alike) {
            send(path, self, begin);
            self.bytes.drain(..begin);
            self.count = 0;
        }
        if self.count == 0 {
            (self.segment, self.tos, self.dont_fragment) = (length, tos, dont_fragment);
        }
        self.ended = length < self.segment;
        self.count += 1;
    }

    /// The first `length` bytes, for a path that passes datagrams of `passes` bytes.
    fn transmit(&self, address: PathAddress, passes: usize, length: usize) -> Transmit<'_> {
        let may_fragment = !self.dont_fragment && self.segment > passes;
        Transmit { address, tos: self.tos, segment: self.segment, may_fragment, bytes: &self.bytes[..length] }
    }

    fn flush(&mut self, path: PathId, send: &mut impl FnMut(PathId, &Batch, usize)) {
        if self.count > 0 {
            send(path, self, self.bytes.len());
        }
        self.bytes.clear();
        self.count = 0;
    }
}
