//! Both ends of the multipath tunnel: the engine of `core`, once for the
//! vehicle and once for the gateway. What it gives out goes over the links at
//! the length that it has on a real wire.

use crosslane_core::engine::Engine;
use crosslane_core::link::Direction;
use crosslane_core::path::{PathId, PathState};
use crosslane_core::time::{Duration, Instant};
use crosslane_core::tunnel::{Encryption, Input, Liveness, Output, Setup, Tunnel};

use super::packet::{Packet, UDP_HEADER_BYTES};
use crate::scenario::{Scenario, TunnelParams};

/// What the security layer adds to a GRE packet: type, session and counter
/// before it, the tag behind it.
const SEAL_BYTES: u16 = 12 + 16;
/// A GRE header with key (RFC 2890), and the sequence number that follows it.
const GRE_BYTES: u16 = 8;
const SEQUENCE_BYTES: u16 = 4;
/// The traffic is one flow.
const FLOW: u8 = 1;
/// A timer of the system wakes nobody sooner.
const SOONEST: Duration = Duration::from_micros(50);

/// Vehicle and gateway, by the direction in which they send.
pub(super) struct TunnelEndpoints {
    ends: [Tunnel<Packet>; 2],
    due: [Option<Instant>; 2],
    overhead_bytes: u16,
    wanted: Vec<PathState>,
}

/// What comes out of an end.
pub(super) enum Left {
    /// A packet of the traffic, at its destination.
    Out(Packet),
    /// A datagram for the other end.
    Over(TunnelPacket),
    /// The health of a path has changed.
    Changed(PathId, Liveness, String),
}

/// A datagram between the ends.
#[derive(Clone, Debug)]
pub(super) struct TunnelPacket {
    /// Over which path it goes.
    pub path: PathId,
    /// Length with IP header, in bytes.
    pub ip_bytes: u16,
    output: Output<Packet>,
}

impl TunnelEndpoints {
    /// Two ends that find all paths there.
    pub(super) fn new(scenario: &Scenario, params: &TunnelParams) -> TunnelEndpoints {
        let overhead_bytes = overhead_bytes(params);
        let end = |is_initiator| {
            Tunnel::new(Setup {
                mode: params.mode,
                is_initiator,
                ranks: scenario.ranks(),
                epoch: if is_initiator { 1 } else { 2 },
                overhead_bytes: u32::from(overhead_bytes),
            })
        };
        let mut ends =
            TunnelEndpoints { ends: [end(true), end(false)], due: [None; 2], overhead_bytes, wanted: Vec::new() };
        for path in scenario.paths() {
            ends.handle(Instant::ZERO, Direction::Up, Input::Present(path.id, true));
        }
        ends
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.due.into_iter().flatten().min()
    }

    /// A packet of the traffic enters at the end that sends this way.
    pub(super) fn enter(&mut self, now: Instant, way: Direction, packet: Packet) {
        self.handle(
            now,
            way,
            Input::Packet { flow: FLOW, bytes: packet.ip_bytes().into(), bulk: packet.is_bulk(), packet },
        );
    }

    /// A datagram has come this way.
    pub(super) fn arrive(&mut self, now: Instant, way: Direction, parcel: TunnelPacket) {
        let input = match parcel.output {
            Output::Send { key: label, number, packet } => {
                Input::Arrived { key: label, number: Some(number), bytes: packet.ip_bytes().into(), packet }
            }
            Output::Message { path, number, message } => Input::Message { path, number, message },
            Output::Deliver(_) | Output::Changed { .. } => return,
        };
        let other = if way == Direction::Up { Direction::Down } else { Direction::Up };
        self.handle(now, other, input);
    }

    /// What is wanted of each path from now on.
    pub(super) fn want(&mut self, now: Instant, states: Vec<PathState>) {
        if self.wanted != states {
            self.wanted = states.clone();
            self.handle(now, Direction::Up, Input::SetWantedStates(states));
        }
    }

    /// The next that comes out of the end that sends this way.
    pub(super) fn poll(&mut self, now: Instant, way: Direction) -> Option<Left> {
        let place = way as usize;
        if self.due[place].is_none_or(|due| due > now) {
            return None;
        }
        let Some(output) = self.ends[place].poll(now) else {
            self.due[place] = self.ends[place].next_wakeup().map(|at| at.max(now + SOONEST));
            return None;
        };
        let (path, inside) = match &output {
            Output::Send { key: label, packet, .. } => (label.path, packet.ip_bytes() + SEQUENCE_BYTES),
            Output::Message { path, number, message } => {
                let mut wire = Vec::new();
                message.write(&mut wire);
                (*path, wire.len() as u16 + if number.is_some() { SEQUENCE_BYTES } else { 0 })
            }
            Output::Deliver(packet) => return Some(Left::Out(*packet)),
            Output::Changed { path, liveness, reason } => return Some(Left::Changed(*path, *liveness, reason.clone())),
        };
        let ip_bytes = inside + GRE_BYTES + self.overhead_bytes;
        Some(Left::Over(TunnelPacket { path, ip_bytes, output }))
    }

    fn handle(&mut self, now: Instant, way: Direction, input: Input<Packet>) {
        let place = way as usize;
        self.ends[place].handle(now, input);
        self.due[place] = Some(now);
    }
}

/// Bytes of IP that a packet inside may have.
pub(super) fn mtu_bytes(scenario: &Scenario, params: &TunnelParams) -> u16 {
    let outside = scenario.tunnel.mtu as u16;
    outside.saturating_sub(overhead_bytes(params) + GRE_BYTES + SEQUENCE_BYTES)
}

fn overhead_bytes(params: &TunnelParams) -> u16 {
    UDP_HEADER_BYTES
        + match params.encryption {
            Encryption::Noise => SEAL_BYTES,
            Encryption::None => 0,
        }
}
