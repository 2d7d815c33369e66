//! Both endpoints of the multipath tunnel: the engine of `core`, once for the
//! vehicle and once for the gateway. Its datagrams have the same length on the
//! links as on a real network.

use std::sync::Arc;

use crosslane_core::actuator::Steering;
use crosslane_core::agent::MAX_PATHS;
use crosslane_core::engine::Engine;
use crosslane_core::link::Direction;
use crosslane_core::path::{PathId, Sample};
use crosslane_core::time::{Duration, Instant};
use crosslane_core::tunnel::wire::overhead::Overhead;
use crosslane_core::tunnel::wire::path_feedback::FEEDBACK_BYTES;
use crosslane_core::tunnel::{Encryption, Input, Liveness, Output, Setup, Tunnel};

use super::packet::Packet;
use crate::scenario::{IpVersion, Scenario, TunnelParams};

/// The traffic is one flow.
const FLOW: u8 = 1;
/// The connection token of the tunnel's samples.
const TOKEN: u32 = 1;
/// Minimum delay of a system timer.
const MIN_TIMER: Duration = Duration::from_micros(50);

/// The endpoints of vehicle and gateway, indexed by their send direction.
pub(super) struct TunnelEndpoints {
    endpoints: [Tunnel<Arc<Packet>>; 2],
    due: [Option<Instant>; 2],
    overhead: Overhead,
}

/// Output of an endpoint.
pub(super) enum TunnelOutput {
    /// A packet of the traffic, at its destination.
    Delivered(Packet),
    /// A datagram for the other endpoint.
    Datagram(TunnelPacket),
    /// The liveness of a path has changed.
    LivenessChanged(PathId, Liveness, String),
}

/// A datagram between the endpoints.
#[derive(Clone, Debug)]
pub(super) struct TunnelPacket {
    pub path: PathId,
    /// Length including the IP header, in bytes.
    pub ip_bytes: u16,
    output: Output<Arc<Packet>>,
}

impl TunnelEndpoints {
    /// Two endpoints with all paths present.
    pub(super) fn new(scenario: &Scenario, params: &TunnelParams) -> TunnelEndpoints {
        let overhead = Overhead::new(scenario.ip_version == IpVersion::V6, params.encryption == Encryption::Noise);
        let endpoint = |is_initiator| {
            Tunnel::new(Setup {
                mode: params.mode,
                is_initiator,
                copies: params.copies(),
                ranks: scenario.ranks(),
                epoch: if is_initiator { 1 } else { 2 },
                overhead,
            })
        };
        let mut endpoints = TunnelEndpoints { endpoints: [endpoint(true), endpoint(false)], due: [None; 2], overhead };
        for path in scenario.paths() {
            endpoints.handle(Instant::ZERO, Direction::Up, Input::Present(path.id, true));
        }
        endpoints
    }

    /// Bytes of packets that both endpoints sent again, or over several paths.
    pub(super) fn copied_bytes(&self) -> u64 {
        let paths = |endpoint: &Tunnel<Arc<Packet>>| -> u64 {
            (0..MAX_PATHS as u8).filter_map(|path| endpoint.path(PathId(path))).map(|path| path.copied_bytes).sum()
        };
        self.endpoints.iter().map(paths).sum()
    }

    /// What the vehicle's endpoint has measured of its paths, for the agent.
    pub(super) fn samples(&self) -> impl Iterator<Item = Sample> {
        let vehicle = &self.endpoints[Direction::Up as usize];
        (0..MAX_PATHS as u8).filter_map(|path| vehicle.sample(PathId(path), TOKEN))
    }

    /// Inner MTU, in bytes.
    pub(super) fn mtu_bytes(&self, scenario: &Scenario) -> u16 {
        (scenario.tunnel.mtu as u16).saturating_sub(self.overhead.around_packet() as u16)
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.due.into_iter().flatten().min()
    }

    /// Passes a packet of the traffic to the endpoint that sends in this
    /// direction.
    pub(super) fn enter(&mut self, now: Instant, direction: Direction, packet: Packet) {
        self.handle(
            now,
            direction,
            Input::Packet {
                flow: FLOW,
                bytes: packet.ip_bytes().into(),
                bulk: packet.is_bulk(),
                packet: Arc::new(packet),
            },
        );
    }

    /// Passes a datagram of this direction to its receiver.
    pub(super) fn receive(&mut self, now: Instant, direction: Direction, datagram: TunnelPacket) {
        let input = match datagram.output {
            Output::Send { key, number, feedback, packet } => {
                let (bytes, is_pure_ack) = (packet.ip_bytes().into(), packet.is_pure_ack());
                Input::Arrived { key, number: Some(number), bytes, feedback, is_pure_ack, packet }
            }
            Output::Message { path, number, message } => Input::Message { path, number, message },
            Output::Deliver(_) | Output::Changed { .. } => return,
        };
        let other = if direction == Direction::Up { Direction::Down } else { Direction::Up };
        self.handle(now, other, input);
    }

    /// Sets the wanted state of each path, and their order.
    pub(super) fn steer(&mut self, now: Instant, steering: &Steering) {
        self.handle(now, Direction::Up, Input::SetWantedStates(steering.states.clone()));
        self.handle(now, Direction::Up, Input::SetOrder(steering.order.clone()));
    }

    /// The next output of the endpoint that sends in this direction.
    pub(super) fn poll(&mut self, now: Instant, direction: Direction) -> Option<TunnelOutput> {
        let place = direction as usize;
        if self.due[place].is_none_or(|due| due > now) {
            return None;
        }
        let Some(output) = self.endpoints[place].poll(now) else {
            self.due[place] = self.endpoints[place].next_wakeup().map(|at| at.max(now + MIN_TIMER));
            return None;
        };
        let (path, ip_bytes) = match &output {
            Output::Send { key, feedback, packet, .. } => {
                let feedback_bytes = feedback.map_or(0, |_| FEEDBACK_BYTES);
                (key.path, u32::from(packet.ip_bytes()) + feedback_bytes + self.overhead.around_packet())
            }
            Output::Message { path, number, message } => {
                let around = match number {
                    Some(_) => self.overhead.around_packet(),
                    None => self.overhead.around_unnumbered(),
                };
                (*path, message.body.bytes() as u32 + around)
            }
            Output::Deliver(packet) => return Some(TunnelOutput::Delivered(**packet)),
            Output::Changed { path, liveness, reason } => {
                return Some(TunnelOutput::LivenessChanged(*path, *liveness, reason.clone()));
            }
        };
        Some(TunnelOutput::Datagram(TunnelPacket { path, ip_bytes: ip_bytes as u16, output }))
    }

    fn handle(&mut self, now: Instant, direction: Direction, input: Input<Arc<Packet>>) {
        let place = direction as usize;
        self.endpoints[place].handle(now, input);
        self.due[place] = Some(now);
    }
}
