//! A gateway and its vehicles without sockets and clocks.

use std::net::{Ipv4Addr, SocketAddr};

use etherparse::PacketBuilder;
use ipnet::Ipv4Net;

use crosslane_core::packet::checksum::Sum;
use crosslane_core::tunnel::wire::overhead::Overhead;
use crosslane_core::tunnel::{Copies, Mode};

use super::super::*;
use crate::tunnel::security::PrivateKey;

/// Paths of each vehicle.
pub const PATHS: usize = 2;
/// Duration of a step, in which each datagram arrives.
pub const STEP: Duration = Duration::from_millis(1);
pub const GATEWAY: usize = 0;
pub const MTU: u32 = 1400;
/// IPv4 and UDP headers.
const OUTER_BYTES: usize = 28;

/// A gateway and its vehicles, connected without loss.
pub struct Testbed {
    pub now: Instant,
    pub unix_ns: u64,
    pub keys: Option<Vec<PrivateKey>>,
    pub rfc8086_only: bool,
    pub sides: Vec<Side>,
    /// Address of each vehicle on each path, as observed by the gateway.
    pub addresses: Vec<[SocketAddr; PATHS]>,
    pub wire: Vec<Flight>,
    /// The datagrams on the wire, if recording is on.
    pub recorded: Option<Vec<Flight>>,
    /// A vehicle, its path, and the longest datagram that the path carries, outer headers
    /// included; longer ones only if they may be fragmented.
    pub narrow: Option<(usize, usize, usize)>,
}

pub struct Side {
    pub endpoint: Endpoint,
    pub outbox: Outbox,
    pub state: ReceiveState,
    pub received: Vec<Vec<u8>>,
    pub answers: Vec<Vec<u8>>,
    /// Whether it receives and sends anything.
    pub is_up: bool,
}

#[derive(Clone)]
pub struct Flight {
    pub to: usize,
    pub address: PathAddress,
    pub tos: u8,
    pub bytes: Vec<u8>,
}

pub fn gateway_address() -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, 1), 4760).into()
}

/// Inner addresses: the gateway's network has number 0.
pub fn inner(vehicle: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, vehicle as u8, 2)
}

/// A vehicle in the gateway's configuration.
pub fn vehicle_plan(place: usize) -> PeerPlan {
    let prefixes = vec![Ipv4Net::new_assert(inner(place), 24).into()];
    PeerPlan { name: format!("car{place}"), prefixes, at: None }
}

pub fn packet(from: usize, to: usize, number: u32, length: usize) -> Vec<u8> {
    between(inner(from), inner(to), number, length)
}

pub fn between(from: Ipv4Addr, to: Ipv4Addr, number: u32, length: usize) -> Vec<u8> {
    let step = PacketBuilder::ipv4(from.octets(), to.octets(), 64).udp(5000, 6000);
    let mut payload = vec![7; length.max(4)];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    let mut bytes = vec![0; step.size(payload.len())];
    step.write_to_slice(&mut bytes, &payload).unwrap();
    // DF.
    bytes[6] = 0x40;
    bytes[10..12].fill(0);
    let checksum = Sum::default().with(&bytes[..20]).checksum();
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

impl Testbed {
    pub fn new(vehicles: usize, is_encrypted: bool) -> Testbed {
        Testbed::of(vehicles, is_encrypted, false)
    }

    pub fn of(vehicles: usize, is_encrypted: bool, rfc8086_only: bool) -> Testbed {
        let keys = is_encrypted.then(|| (0..=vehicles).map(|_| PrivateKey::generate().unwrap()).collect());
        let home = |vehicle: usize, path: usize| (Ipv4Addr::new(198, 51, path as u8, vehicle as u8), 40_000).into();
        let addresses = (1..=vehicles).map(|vehicle| [home(vehicle, 0), home(vehicle, 1)]).collect();
        let mut testbed = Testbed {
            now: Instant::from_millis(1000),
            unix_ns: 1_700_000_000_000_000_000,
            keys,
            rfc8086_only,
            sides: Vec::new(),
            addresses,
            wire: Vec::new(),
            recorded: None,
            narrow: None,
        };
        for side in 0..=vehicles {
            let made = testbed.side(side);
            testbed.sides.push(made);
        }
        testbed
    }

    pub fn side(&self, side: usize) -> Side {
        let gateway = PeerPlan { name: "gateway".into(), prefixes: Vec::new(), at: Some(gateway_address()) };
        let peers =
            if side == GATEWAY { (1..=self.addresses.len()).map(vehicle_plan).collect() } else { vec![gateway] };
        let keys = self.keys.as_ref().map(|keys| {
            let others = if side == GATEWAY { &keys[1..] } else { &keys[..1] };
            (keys[side].clone(), others.iter().map(PrivateKey::public).collect())
        });
        let plan = Plan {
            peers,
            keys,
            is_initiator: side != GATEWAY,
            mode: Mode::Aggregate,
            ranks: vec![0, 1],
            copies: Copies::default(),
            keepalives: Vec::new(),
            overhead: Overhead::new(false, self.keys.is_some()),
            mtu: MTU,
            max_peers: 4,
            addresses: vec![inner(side).into()],
            rfc8086_only: self.rfc8086_only,
        };
        let endpoint = Endpoint::new(plan, self.unix_ns);
        if side != GATEWAY {
            (0..PATHS).for_each(|path| endpoint.set_path(self.now, PathId(path as u8), Some(path)));
        }
        let (outbox, state) = (Outbox::default(), ReceiveState::default());
        Side { endpoint, outbox, state, received: Vec::new(), answers: Vec::new(), is_up: true }
    }

    /// Replaces a side by a new one without its state.
    pub fn restart(&mut self, side: usize) {
        self.sides[side] = self.side(side);
    }

    /// The receiver of a side's datagram, and the address it observes.
    pub fn arrival(&self, from: usize, address: PathAddress) -> Option<(usize, PathAddress)> {
        if from != GATEWAY {
            return (address.to == gateway_address())
                .then(|| (GATEWAY, PathAddress { via: 0, to: self.addresses[from - 1][address.via], from: None }));
        }
        let at =
            |place: usize| self.addresses[place].iter().position(|home| *home == address.to).map(|via| (place, via));
        let (place, via) = (0..self.addresses.len()).find_map(at)?;
        Some((place + 1, PathAddress { via, to: gateway_address(), from: None }))
    }

    pub fn step(&mut self) {
        let (addresses, narrow) = (self.addresses.clone(), self.narrow);
        let passes = |place: usize, out: &Transmit<'_>, bytes: &[u8]| match narrow {
            Some((vehicle, path, carries)) => {
                let over =
                    (place == vehicle && out.address.via == path) || out.address.to == addresses[vehicle - 1][path];
                !over || out.may_fragment || bytes.len() + OUTER_BYTES <= carries
            }
            None => true,
        };
        let mut transmitted: Vec<(usize, PathAddress, u8, Vec<u8>)> = Vec::new();
        for flight in std::mem::take(&mut self.wire) {
            let side = &mut self.sides[flight.to];
            if !side.is_up {
                continue;
            }
            let reply = side.endpoint.on_datagram(&mut side.state, self.now, flight.address, flight.tos, &flight.bytes);
            transmitted.extend(reply.map(|reply| (flight.to, flight.address, 0, reply)));
            side.endpoint.flush(&mut side.state, self.now, |packet| side.received.push(packet.packet().into()));
        }
        for (place, side) in self.sides.iter_mut().enumerate().filter(|(_, side)| side.is_up) {
            let mut send = |out: Transmit<'_>| {
                let through = out.bytes.chunks(out.segment).filter(|bytes| passes(place, &out, bytes));
                through.for_each(|bytes| transmitted.push((place, out.address, out.tos, bytes.into())));
            };
            side.endpoint.maintain(self.now, self.unix_ns, &mut send);
            for peer in 0..side.endpoint.peers() {
                side.endpoint.transmit(self.now, peer, &mut side.outbox, &mut send);
                side.endpoint.changes(peer, &mut side.outbox);
                side.endpoint.deliver(peer, |packet| side.received.push(packet.packet().into()));
            }
        }
        for (from, address, tos, bytes) in transmitted {
            let Some((to, address)) = self.arrival(from, address) else { continue };
            self.wire.push(Flight { to, address, tos, bytes });
        }
        if let Some(recorded) = &mut self.recorded {
            recorded.extend(self.wire.iter().cloned());
        }
        self.now = self.now + STEP;
        self.unix_ns += STEP.as_nanos() as u64;
    }

    pub fn run(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.step());
    }

    pub fn offer(&mut self, side: usize, mut packet: Vec<u8>) -> Option<usize> {
        let Side { endpoint, answers, .. } = &mut self.sides[side];
        endpoint.ingress(self.now, &mut packet, |message| answers.push(message.into()))
    }

    pub fn received(&mut self, side: usize) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sides[side].received)
    }

    /// Runs with a packet every 10 ms in both directions until each side has received one;
    /// returns the duration in ms.
    pub fn until_bidirectional(&mut self, vehicle: usize, at_most_ms: u64) -> u64 {
        self.received(GATEWAY);
        self.received(vehicle);
        for ms in 0..at_most_ms {
            if ms % 10 == 0 {
                self.offer(vehicle, packet(vehicle, GATEWAY, ms as u32, 100));
                self.offer(GATEWAY, packet(GATEWAY, vehicle, ms as u32, 100));
            }
            self.step();
            if !self.sides[GATEWAY].received.is_empty() && !self.sides[vehicle].received.is_empty() {
                return ms;
            }
        }
        panic!("no bidirectional traffic in {at_most_ms} ms");
    }

    /// Sends packets in both directions, one per ms; returns how many the gateway and
    /// the first vehicle received.
    pub fn exchange(&mut self, count: u32) -> [usize; 2] {
        self.run(300);
        self.received(GATEWAY);
        self.received(1);
        for number in 0..count {
            self.offer(1, packet(1, GATEWAY, number, 100));
            self.offer(GATEWAY, packet(GATEWAY, 1, number, 100));
            self.step();
        }
        self.run(300);
        [self.received(GATEWAY).len(), self.received(1).len()]
    }

    pub fn rejected(&self, side: usize) -> u64 {
        self.sides[side].endpoint.counts.rejected.load(Relaxed)
    }

    pub fn misrouted(&self, side: usize) -> u64 {
        self.sides[side].endpoint.counts.misrouted.load(Relaxed)
    }
}
