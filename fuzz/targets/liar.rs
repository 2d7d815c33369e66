//! A malicious authenticated vehicle that sends arbitrary messages (from a
//! script) to a gateway with three honest vehicles, whose packets must all be
//! delivered in order.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crosslane::tunnel::endpoint::egress::{Outbox, Transmit};
use crosslane::tunnel::endpoint::{Endpoint, PathAddress, ReceiveState};
use crosslane::tunnel::security::{HandshakeEvent, Security, Session};
use crosslane_core::path::{PathId, PathState};
use crosslane_core::time::Instant;
use crosslane_core::tunnel::Mode;
use crosslane_core::tunnel::wire::compressed_gre;
use crosslane_core::tunnel::wire::control_message::{Body, MAX_MISSING_RANGES, MAX_PATHS, Message, PathReport};
use crosslane_core::tunnel::wire::gre::{Header, Payload};
use crosslane_core::tunnel::wire::gre_key::GreKey;
use crosslane_core::tunnel::wire::path_feedback::PathFeedback;

#[path = "gateway.rs"]
#[allow(dead_code)]
mod gateway;

/// Honest vehicles, from 1; the liar has the next number.
const HONEST: usize = 3;
const LIAR: usize = HONEST + 1;
/// Paths of an honest vehicle.
const PATHS: usize = 2;
const STEP: Duration = Duration::from_millis(1);
/// Maximum length of a run, in steps.
const MAX_STEPS: usize = 1500;
/// Steps between the packets of an honest vehicle in each direction.
const PACKET_INTERVAL: usize = 4;
/// Steps after the script, in which all packets in flight arrive.
const DRAIN_STEPS: usize = 600;
/// Maximum number of datagrams to the liar in a step: all queued packets, eight retransmissions, over all paths.
const MAX_TO_LIAR: usize = 1 << 15;
/// Maximum size of a datagram.
const MAX_PROBE_BYTES: u16 = 65_000;
const GATEWAY: ([u8; 4], u16) = ([192, 0, 2, 1], 4760);

/// Runs one script.
pub fn run(script: &[u8]) {
    let mut world = World::new();
    let mut script = Script(script);
    (0..40).for_each(|_| world.step());
    while !script.0.is_empty() && world.steps < MAX_STEPS {
        world.act(&mut script);
    }
    world.offering = false;
    (0..DRAIN_STEPS).for_each(|_| world.step());
    world.check();
}

struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// An arbitrary number, or one close to a limit or to `of`.
    fn figure(&mut self, of: u32) -> u32 {
        match self.byte() % 8 {
            0 => 0,
            1 => u32::MAX,
            2 => of.wrapping_add(1 << 31),
            3 => of.wrapping_sub(u32::from(self.byte())),
            4 => of.wrapping_add(u32::from(self.byte())),
            5 => of.wrapping_mul(4096),
            _ => self.word(),
        }
    }
}

/// An endpoint of the tunnel with its state, driven as in the program.
struct Side {
    endpoint: Endpoint,
    outbox: Outbox,
    receive_state: ReceiveState,
    delivered: Vec<Vec<u8>>,
}

impl Side {
    fn new(endpoint: Endpoint) -> Side {
        Side { endpoint, outbox: Outbox::default(), receive_state: ReceiveState::default(), delivered: Vec::new() }
    }

    fn send(&mut self, now: Instant, mut send: impl FnMut(Transmit<'_>)) {
        let since = now.since(gateway::BEGIN);
        self.endpoint.maintain(now, gateway::unix_ns(since), &mut send);
        for peer in 0..self.endpoint.peers() {
            // Repeated while the outbox is full.
            while self.endpoint.transmit(now, peer, &mut self.outbox, &mut send) == Some(now) {}
            self.endpoint.changes(peer, &mut self.outbox);
            self.endpoint.deliver(peer, |packet| self.delivered.push(packet.packet().into()));
        }
    }

    fn take(&mut self, now: Instant, address: PathAddress, tos: u8, datagram: &[u8]) -> Option<Vec<u8>> {
        let reply = self.endpoint.on_datagram(&mut self.receive_state, now, address, tos, datagram);
        self.endpoint.flush(&mut self.receive_state, now, |packet| self.delivered.push(packet.packet().into()));
        reply
    }
}

/// The liar: keys that the gateway knows, and what it received.
struct Liar {
    security: Security,
    session: Option<Arc<Session>>,
    /// The last sequence number of the gateway on each path.
    numbers: [u32; MAX_PATHS],
    peer_epoch: u32,
    epoch: u32,
    plain: Vec<u8>,
}

struct World {
    now: Instant,
    steps: usize,
    gateway: Side,
    vehicles: Vec<Side>,
    liar: Liar,
    /// To the gateway: source, DSCP and ECN, and the datagram.
    up: Vec<(SocketAddr, u8, Vec<u8>)>,
    down: Vec<(SocketAddr, u8, Vec<u8>)>,
    offering: bool,
    offered: BTreeMap<(usize, bool), Vec<Vec<u8>>>,
    number: u32,
}

/// Address of a vehicle's path.
fn home(vehicle: usize, path: usize) -> SocketAddr {
    ([198, 51, path as u8, vehicle as u8], 40_000).into()
}

/// Vehicle and path of an address.
fn owner(address: SocketAddr) -> Option<(usize, usize)> {
    let SocketAddr::V4(address) = address else { return None };
    let [198, 51, path, vehicle] = address.ip().octets() else { return None };
    Some((usize::from(vehicle), usize::from(path)))
}

fn header(payload: Payload, key: u32, sequence: Option<u32>) -> Header {
    Header { payload, key: Some(key), sequence, checksum: false }
}

/// A packet of UDP over IPv4.
fn packet(from: [u8; 4], to: [u8; 4], number: u32) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 128, 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet.extend(from);
    packet.extend(to);
    packet.extend([0x13, 0x88, 0x17, 0x70, 0, 108, 0, 0]);
    packet.extend(number.to_be_bytes());
    packet.resize(128, 7);
    packet
}

impl World {
    fn new() -> World {
        let peers: Vec<usize> = (1..=LIAR).collect();
        let mut vehicles: Vec<Side> = (1..=HONEST)
            .map(|vehicle| Side::new(gateway::endpoint(vehicle, &[0], Some(GATEWAY), true, false)))
            .collect();
        for side in &mut vehicles {
            (0..PATHS).for_each(|path| side.endpoint.set_path(gateway::BEGIN, PathId(path as u8), Some(path)));
        }
        let mut world = World {
            now: gateway::BEGIN,
            steps: 0,
            gateway: Side::new(gateway::endpoint(0, &peers, None, true, false)),
            vehicles,
            liar: Liar {
                security: Security::new(gateway::key(LIAR), vec![gateway::key(0).public()]),
                session: None,
                numbers: [0; MAX_PATHS],
                peer_epoch: 0,
                epoch: 9,
                plain: Vec::new(),
            },
            up: Vec::new(),
            down: Vec::new(),
            offering: true,
            offered: BTreeMap::new(),
            number: 0,
        };
        let initiation = world.liar.security.initiate(world.now, gateway::UNIX_NS, 0).expect("it has keys");
        world.up.push((home(LIAR, 0), 0, initiation));
        world
    }

    fn step(&mut self) {
        let (up, down) = (std::mem::take(&mut self.up), std::mem::take(&mut self.down));
        for (from, tos, datagram) in up {
            let reply = self.gateway.take(self.now, PathAddress { via: 0, to: from, from: None }, tos, &datagram);
            self.down.extend(reply.map(|reply| (from, 0, reply)));
        }
        for (to, tos, datagram) in down {
            match owner(to) {
                Some((LIAR, _)) => self.liar.receive(self.now, &datagram),
                Some((vehicle, path)) => {
                    let address = PathAddress { via: path, to: GATEWAY.into(), from: None };
                    let reply = self.vehicles[vehicle - 1].take(self.now, address, tos, &datagram);
                    self.up.extend(reply.map(|reply| (home(vehicle, path), 0, reply)));
                }
                None => panic!("a datagram to {to}"),
            }
        }
        if self.offering && self.steps.is_multiple_of(PACKET_INTERVAL) {
            (1..=HONEST).for_each(|vehicle| self.offer(vehicle));
        }
        let (mut to_liar, down) = (0, &mut self.down);
        self.gateway.send(self.now, |sent| {
            for datagram in sent.bytes.chunks(sent.segment) {
                to_liar += usize::from(owner(sent.address.to).is_some_and(|(vehicle, _)| vehicle == LIAR));
                down.push((sent.address.to, sent.tos, datagram.into()));
            }
        });
        assert!(to_liar <= MAX_TO_LIAR, "{to_liar} datagrams at once");
        for (place, side) in self.vehicles.iter_mut().enumerate() {
            let up = &mut self.up;
            side.send(self.now, |sent| {
                let from = home(place + 1, sent.address.via);
                up.extend(sent.bytes.chunks(sent.segment).map(|datagram| (from, sent.tos, datagram.to_vec())));
            });
        }
        self.now = self.now + STEP;
        self.steps += 1;
    }

    /// Offers a packet of a vehicle in each direction.
    fn offer(&mut self, vehicle: usize) {
        self.number += 1;
        for is_up in [true, false] {
            let (from, to) = if is_up { (vehicle, 0) } else { (0, vehicle) };
            let sent_packet = packet(gateway::inside(from), gateway::inside(to), self.number);
            let side = if is_up { &mut self.vehicles[vehicle - 1] } else { &mut self.gateway };
            side.endpoint.ingress(self.now, &mut sent_packet.clone(), |_| {});
            self.offered.entry((vehicle, is_up)).or_default().push(sent_packet);
        }
    }

    /// Runs the liar's next action.
    fn act(&mut self, script: &mut Script<'_>) {
        match script.byte() % 8 {
            0 | 1 => (0..=script.byte() % 32).for_each(|_| self.step()),
            2 => {
                // The gateway has packets of several flows for it.
                for _ in 0..=script.byte() {
                    self.number += 1;
                    let from = [10, 77, 0, 3 + (self.number % 4) as u8];
                    let mut sent_packet = packet(from, gateway::inside(LIAR), self.number);
                    self.gateway.endpoint.ingress(self.now, &mut sent_packet, |_| {});
                }
                self.step();
            }
            3 => {
                let (key, number) = (script.word(), script.word());
                let sent_packet = packet(gateway::inside(LIAR), gateway::inside(0), number);
                let feedback = (script.byte() & 1 == 0).then(|| self.liar.feedback(script));
                let payload = if feedback.is_some() { Payload::WithFeedback } else { Payload::Ipv4 };
                let mut bytes = Vec::new();
                feedback.iter().for_each(|feedback| feedback.write(&mut bytes));
                bytes.extend(sent_packet);
                self.send(script.byte(), header(payload, key, Some(number)), &bytes);
            }
            4 => {
                // Arbitrary bytes.
                let length = usize::from(script.byte()).min(script.0.len());
                let (bytes, rest) = script.0.split_at(length);
                script.0 = rest;
                let key = GreKey { path: PathId(script.byte() % 16), flow: 0, sequence: 0 }.key();
                self.send(script.byte(), header(Payload::Control, key, None), bytes);
            }
            _ => {
                let (message, path) = (self.liar.message(script), script.byte() % 16);
                let sequence = (script.byte().is_multiple_of(4)).then(|| script.word());
                let key = GreKey { path: PathId(path), flow: 0, sequence: 0 }.key();
                let mut bytes = Vec::new();
                message.write(&mut bytes);
                self.send(path, header(Payload::Control, key, sequence), &bytes);
            }
        }
    }

    /// The liar sends this, encrypted for a path.
    fn send(&mut self, path: u8, header: Header, payload: &[u8]) {
        let path = path % MAX_PATHS as u8;
        let (mut plain, mut datagram) = (Vec::new(), Vec::new());
        compressed_gre::write(&header, &mut plain).expect("it has a key and a number");
        plain.extend_from_slice(payload);
        if let Some(session) = &self.liar.session {
            session.seal(path, &plain, &mut datagram).expect("the session has keys");
            self.up.push((home(LIAR, usize::from(path)), 0, datagram));
        }
        if self.up.len() > 256 {
            self.step();
        }
    }

    /// Checks that all packets of the honest vehicles were delivered once and in
    /// order, and no others.
    fn check(self) {
        assert!(self.liar.session.is_some(), "the gateway does not know the liar");
        for vehicle in 1..=HONEST {
            let source = gateway::inside(vehicle);
            let delivered: Vec<&Vec<u8>> =
                self.gateway.delivered.iter().filter(|packet| packet[12..16] == source).collect();
            let up: Vec<&Vec<u8>> = self.offered[&(vehicle, true)].iter().collect();
            assert!(delivered == up, "up of vehicle {vehicle}: {} of {}", delivered.len(), up.len());
            let down = &self.offered[&(vehicle, false)];
            let delivered = &self.vehicles[vehicle - 1].delivered;
            assert!(delivered == down, "down to vehicle {vehicle}: {} of {}", delivered.len(), down.len());
        }
        let known = |packet: &Vec<u8>| (1..=LIAR).any(|vehicle| packet[12..16] == gateway::inside(vehicle));
        assert!(self.gateway.delivered.iter().all(known), "a packet has an unknown source");
    }
}

impl Liar {
    fn receive(&mut self, now: Instant, datagram: &[u8]) {
        let Some(session) = &self.session else {
            if let HandshakeEvent::Established { session, .. } = self.security.receive(now, datagram) {
                self.session = Some(session);
            }
            return;
        };
        let Ok(opened) = session.open(datagram, &mut self.plain) else { return };
        let Some((header, payload)) = compressed_gre::read(PathId(opened.path), &self.plain) else { return };
        if let (Some(key), Some(number)) = (header.key, header.sequence) {
            self.numbers[usize::from(GreKey::of_key(key).path.0)] = number;
        }
        if let Some(message) = Message::read(payload).filter(|_| header.payload == Payload::Control) {
            self.peer_epoch = message.epoch;
        }
    }

    /// A valid message, mostly about packets in flight.
    fn message(&mut self, script: &mut Script<'_>) -> Message {
        let flags = script.byte();
        if flags & 0xe0 == 0xe0 {
            self.epoch = script.word();
        }
        let peer_epoch = if script.byte() == 0 { script.word() } else { self.peer_epoch };
        let body = match flags & 7 {
            0 if flags & 8 == 0 => Body::Probe,
            0 => Body::MtuProbe((script.word() as u16).min(MAX_PROBE_BYTES)),
            1 => Body::PacketTrain,
            _ => Body::Report { peer_epoch, paths: (0..1 + script.byte() % 4).map(|_| self.report(script)).collect() },
        };
        let mode = Mode::ALL[usize::from(script.byte()) % Mode::ALL.len()];
        let [retransmits, is_initiator] = [8, 16].map(|flag| flags & flag != 0);
        let reads_feedback = script.byte() & 3 != 0;
        Message { epoch: self.epoch, mode, retransmits, is_initiator, reads_feedback, body }
    }

    /// Feedback on a packet, mostly about packets in flight.
    fn feedback(&self, script: &mut Script<'_>) -> PathFeedback {
        let path = script.byte() % 16;
        let newest = self.numbers[usize::from(path)];
        let highest = if script.byte().is_multiple_of(8) { script.figure(newest) } else { newest };
        let check =
            [self.epoch, self.peer_epoch].iter().flat_map(|epoch| epoch.to_be_bytes()).fold(0, u8::wrapping_add);
        let (arrival_us, held) = (script.figure(u32::from(path) * 60_000), script.figure(0) as u16);
        let bytes = script.figure(newest.wrapping_mul(1400));
        let check = if script.byte().is_multiple_of(8) { script.byte() } else { check };
        PathFeedback { check, path: PathId(path), highest: highest & 0xff_ffff, arrival_us, held, bytes }
    }

    fn report(&self, script: &mut Script<'_>) -> PathReport {
        let path = script.byte() % 16;
        let newest = self.numbers[usize::from(path)];
        let missing = script.byte().is_multiple_of(4);
        let highest = if script.byte().is_multiple_of(8) { script.figure(newest) } else { newest };
        let runs = if missing { usize::from(script.byte()) % (MAX_MISSING_RANGES + 1) } else { 0 };
        let run = |script: &mut Script<'_>| (highest.wrapping_sub(u32::from(script.byte())), script.word() as u16);
        PathReport {
            path: PathId(path),
            wanted_state: [PathState::Active, PathState::Active, PathState::Backup, PathState::Closed]
                [usize::from(script.byte() % 4)],
            rank: script.byte(),
            is_overdue: script.byte() & 1 == 1,
            highest,
            arrival_us: script.figure(u32::from(path) * 60_000),
            held_us: script.figure(0),
            packets: script.figure(newest),
            bytes: script.figure(newest.wrapping_mul(1400)),
            missing: (0..runs).map(|_| run(script)).collect(),
        }
    }
}
