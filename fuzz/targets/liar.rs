//! An authenticated vehicle that says whatever a script has it say, at a gateway
//! with three honest vehicles: their packets keep flowing, all of them, in order.

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
use crosslane_core::tunnel::wire::control_message::{Body, MAX_MISSING_RANGES, MAX_PATHS, Message, PathReport};
use crosslane_core::tunnel::wire::gre::{self, Header, Payload};
use crosslane_core::tunnel::wire::gre_key::GreKey;

#[path = "gateway.rs"]
#[allow(dead_code)]
mod gateway;

/// Honest vehicles, from 1; the liar comes after them.
const HONEST: usize = 3;
const LIAR: usize = HONEST + 1;
/// Paths of an honest vehicle.
const PATHS: usize = 2;
const STEP: Duration = Duration::from_millis(1);
/// The longest run, in steps.
const MOST_STEPS: usize = 1500;
/// A packet each way of every honest vehicle in so many steps.
const PACKET_EACH: usize = 4;
/// After the script: what is under way arrives.
const REST: usize = 600;
/// Datagrams that the gateway sends to the liar in a step at most: what it has for it, eight times again, over all paths.
const MOST_TO_LIAR: usize = 1 << 15;
/// A datagram takes no more.
const MOST_PROBE_BYTES: u16 = 65_000;
const GATEWAY: ([u8; 4], u16) = ([192, 0, 2, 1], 4760);

/// Plays one script.
pub fn run(script: &[u8]) {
    let mut world = World::new();
    let mut script = Script(script);
    (0..40).for_each(|_| world.step());
    while !script.0.is_empty() && world.steps < MOST_STEPS {
        world.lie(&mut script);
    }
    world.offering = false;
    (0..REST).for_each(|_| world.step());
    world.judge();
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

    /// Anything, or what is near the ends of the range.
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

/// A side of the tunnel as its program drives it.
struct Side {
    end: Endpoint,
    outbox: Outbox,
    intake: ReceiveState,
    came: Vec<Vec<u8>>,
}

impl Side {
    fn new(end: Endpoint) -> Side {
        Side { end, outbox: Outbox::default(), intake: ReceiveState::default(), came: Vec::new() }
    }

    fn send(&mut self, now: Instant, mut send: impl FnMut(Transmit<'_>)) {
        let since = now.since(gateway::BEGIN);
        self.end.maintain(now, gateway::unix_ns(since), &mut send);
        for peer in 0..self.end.peers() {
            // A full outbox is to be emptied again.
            while self.end.transmit(now, peer, &mut self.outbox, &mut send) == Some(now) {}
            self.end.changes(peer, &mut self.outbox);
            self.end.deliver(peer, |packet| self.came.push(packet.into()));
        }
    }

    fn take(&mut self, now: Instant, way: PathAddress, tos: u8, datagram: &[u8]) -> Option<Vec<u8>> {
        let reply = self.end.on_datagram(&mut self.intake, now, way, tos, datagram);
        self.end.flush(&mut self.intake, now, |packet| self.came.push(packet.into()));
        reply
    }
}

/// The liar: keys that the gateway knows, and what it heard.
struct Liar {
    security: Security,
    session: Option<Arc<Session>>,
    /// The newest number that the gateway used of each path.
    numbers: [u32; MAX_PATHS],
    heard: u32,
    epoch: u32,
    plain: Vec<u8>,
}

struct World {
    now: Instant,
    steps: usize,
    gateway: Side,
    vehicles: Vec<Side>,
    liar: Liar,
    /// To the gateway: where from, DSCP and ECN, and the datagram.
    up: Vec<(SocketAddr, u8, Vec<u8>)>,
    down: Vec<(SocketAddr, u8, Vec<u8>)>,
    offering: bool,
    offered: BTreeMap<(usize, bool), Vec<Vec<u8>>>,
    number: u32,
}

/// Where a vehicle's path comes from.
fn home(vehicle: usize, path: usize) -> SocketAddr {
    ([198, 51, path as u8, vehicle as u8], 40_000).into()
}

/// Whose path an address is.
fn owner(address: SocketAddr) -> Option<(usize, usize)> {
    let SocketAddr::V4(address) = address else { return None };
    let [198, 51, path, vehicle] = address.ip().octets() else { return None };
    Some((usize::from(vehicle), usize::from(path)))
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
        let mut vehicles: Vec<Side> =
            (1..=HONEST).map(|vehicle| Side::new(gateway::end(vehicle, &[0], Some(GATEWAY), true, false))).collect();
        for side in &mut vehicles {
            (0..PATHS).for_each(|path| side.end.set_path(gateway::BEGIN, PathId(path as u8), Some(path)));
        }
        let mut world = World {
            now: gateway::BEGIN,
            steps: 0,
            gateway: Side::new(gateway::end(0, &peers, None, true, false)),
            vehicles,
            liar: Liar {
                security: Security::new(gateway::key(LIAR), vec![gateway::key(0).public()]),
                session: None,
                numbers: [0; MAX_PATHS],
                heard: 0,
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
                Some((LIAR, _)) => self.liar.hear(self.now, &datagram),
                Some((vehicle, path)) => {
                    let way = PathAddress { via: path, to: GATEWAY.into(), from: None };
                    let reply = self.vehicles[vehicle - 1].take(self.now, way, tos, &datagram);
                    self.up.extend(reply.map(|reply| (home(vehicle, path), 0, reply)));
                }
                None => panic!("a datagram to {to}"),
            }
        }
        if self.offering && self.steps.is_multiple_of(PACKET_EACH) {
            (1..=HONEST).for_each(|vehicle| self.offer(vehicle));
        }
        let (mut to_liar, down) = (0, &mut self.down);
        self.gateway.send(self.now, |sent| {
            for datagram in sent.bytes.chunks(sent.segment) {
                to_liar += usize::from(owner(sent.address.to).is_some_and(|(vehicle, _)| vehicle == LIAR));
                down.push((sent.address.to, sent.tos, datagram.into()));
            }
        });
        assert!(to_liar <= MOST_TO_LIAR, "{to_liar} datagrams at once");
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

    /// A packet of a vehicle each way.
    fn offer(&mut self, vehicle: usize) {
        self.number += 1;
        for is_up in [true, false] {
            let (from, to) = if is_up { (vehicle, 0) } else { (0, vehicle) };
            let made = packet(gateway::inside(from), gateway::inside(to), self.number);
            let side = if is_up { &mut self.vehicles[vehicle - 1] } else { &mut self.gateway };
            side.end.ingress(self.now, &mut made.clone(), |_| {});
            self.offered.entry((vehicle, is_up)).or_default().push(made);
        }
    }

    /// What the liar does next.
    fn lie(&mut self, script: &mut Script<'_>) {
        match script.byte() % 8 {
            0 | 1 => (0..=script.byte() % 32).for_each(|_| self.step()),
            2 => {
                // The gateway has something for it, of several flows.
                for _ in 0..=script.byte() {
                    self.number += 1;
                    let from = [10, 77, 0, 3 + (self.number % 4) as u8];
                    let mut made = packet(from, gateway::inside(LIAR), self.number);
                    self.gateway.end.ingress(self.now, &mut made, |_| {});
                }
                self.step();
            }
            3 => {
                let (key, number) = (script.word(), script.word());
                let made = packet(gateway::inside(LIAR), gateway::inside(0), number);
                self.say(
                    script.byte(),
                    Header { payload: Payload::Ipv4, key: Some(key), sequence: Some(number), checksum: false },
                    &made,
                );
            }
            4 => {
                // Bytes that mean nothing.
                let length = usize::from(script.byte()).min(script.0.len());
                let (bytes, rest) = script.0.split_at(length);
                script.0 = rest;
                let key = GreKey { path: PathId(script.byte() % 16), flow: 0, sequence: 0 }.key();
                self.say(
                    script.byte(),
                    Header { payload: Payload::Control, key: Some(key), sequence: None, checksum: false },
                    bytes,
                );
            }
            _ => {
                let (message, path) = (self.liar.message(script), script.byte() % 16);
                let sequence = (script.byte().is_multiple_of(4)).then(|| script.word());
                let key = GreKey { path: PathId(path), flow: 0, sequence: 0 }.key();
                let mut bytes = Vec::new();
                message.write(&mut bytes);
                self.say(path, Header { payload: Payload::Control, key: Some(key), sequence, checksum: false }, &bytes);
            }
        }
    }

    /// The liar says this, sealed as of a path.
    fn say(&mut self, path: u8, header: Header, payload: &[u8]) {
        let path = path % MAX_PATHS as u8;
        let (mut plain, mut datagram) = (Vec::new(), Vec::new());
        header.write(payload, &mut plain);
        if let Some(session) = &self.liar.session {
            session.seal(path, &plain, &mut datagram).expect("there are keys");
            self.up.push((home(LIAR, usize::from(path)), 0, datagram));
        }
        if self.up.len() > 256 {
            self.step();
        }
    }

    /// All packets of the honest vehicles came, once and in order, and nothing else.
    fn judge(self) {
        assert!(self.liar.session.is_some(), "the gateway does not know the liar");
        for vehicle in 1..=HONEST {
            let source = gateway::inside(vehicle);
            let came: Vec<&Vec<u8>> = self.gateway.came.iter().filter(|packet| packet[12..16] == source).collect();
            let up: Vec<&Vec<u8>> = self.offered[&(vehicle, true)].iter().collect();
            assert!(came == up, "up of vehicle {vehicle}: {} of {}", came.len(), up.len());
            let down = &self.offered[&(vehicle, false)];
            let came = &self.vehicles[vehicle - 1].came;
            assert!(came == down, "down to vehicle {vehicle}: {} of {}", came.len(), down.len());
        }
        let known = |packet: &Vec<u8>| (1..=LIAR).any(|vehicle| packet[12..16] == gateway::inside(vehicle));
        assert!(self.gateway.came.iter().all(known), "a source that is nobody's");
    }
}

impl Liar {
    fn hear(&mut self, now: Instant, datagram: &[u8]) {
        let Some(session) = &self.session else {
            if let HandshakeEvent::Established { session, .. } = self.security.receive(now, datagram) {
                self.session = Some(session);
            }
            return;
        };
        if session.open(datagram, &mut self.plain).is_err() {
            return;
        }
        let Ok((header, payload)) = gre::read(&self.plain) else { return };
        if let (Some(key), Some(number)) = (header.key, header.sequence) {
            self.numbers[usize::from(GreKey::of_key(key).path.0)] = number;
        }
        if let Some(message) = Message::read(payload).filter(|_| header.payload == Payload::Control) {
            self.heard = message.epoch;
        }
    }

    /// A message that can be, of what is under way mostly.
    fn message(&mut self, script: &mut Script<'_>) -> Message {
        let flags = script.byte();
        if flags & 0xe0 == 0xe0 {
            self.epoch = script.word();
        }
        let heard = if script.byte() == 0 { script.word() } else { self.heard };
        let body = match flags & 7 {
            0 if flags & 8 == 0 => Body::Probe,
            0 => Body::MtuProbe((script.word() as u16).min(MOST_PROBE_BYTES)),
            1 => Body::PacketTrain,
            _ => Body::Report {
                peer_epoch: heard,
                paths: (0..1 + script.byte() % 4).map(|_| self.report(script)).collect(),
            },
        };
        let mode = Mode::ALL[usize::from(script.byte()) % Mode::ALL.len()];
        Message { epoch: self.epoch, mode, retransmits: flags & 8 != 0, is_initiator: flags & 16 != 0, body }
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
            highest,
            arrival_us: script.figure(u32::from(path) * 60_000),
            held_us: script.figure(0),
            packets: script.figure(newest),
            bytes: script.figure(newest.wrapping_mul(1400)),
            missing: (0..runs).map(|_| run(script)).collect(),
        }
    }
}
