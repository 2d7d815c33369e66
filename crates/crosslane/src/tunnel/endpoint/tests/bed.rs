//! A gateway and its vehicles without sockets and clocks.

use std::net::Ipv4Addr;

use etherparse::PacketBuilder;

use crosslane_core::tunnel::Mode;

use super::super::*;
use crate::tunnel::packets_for_tests::sum_ip;
use crate::tunnel::security::PrivateKey;

/// Paths of each vehicle.
pub const PATHS: usize = 2;
/// What moves: as long as each datagram is under way.
pub const STEP: Duration = Duration::from_millis(1);
pub const GATEWAY: usize = 0;
pub const MTU: u32 = 1400;
/// Of IPv4 and UDP.
const OUTER_BYTES: usize = 28;

/// A gateway and its vehicles, joined by wires that lose nothing.
pub struct Bed {
    pub now: Instant,
    pub unix_ns: u64,
    pub keys: Option<Vec<PrivateKey>>,
    pub standard: bool,
    pub sides: Vec<Side>,
    /// Address of each vehicle on each path, as the gateway sees it.
    pub homes: Vec<[SocketAddr; PATHS]>,
    pub wire: Vec<Flight>,
    /// What went over the wire, while it is wanted.
    pub seen: Option<Vec<Flight>>,
    /// A vehicle's path that carries datagrams up to so long, outer headers
    /// included; longer ones only if they may be cut.
    pub narrow: Option<(usize, usize, usize)>,
}

pub struct Side {
    pub end: End,
    pub outbox: Outbox,
    pub intake: Intake,
    pub came: Vec<Vec<u8>>,
    pub answers: Vec<Vec<u8>>,
    /// Whether it takes and sends anything.
    pub is_up: bool,
}

#[derive(Clone)]
pub struct Flight {
    pub to: usize,
    pub way: Way,
    pub tos: u8,
    pub bytes: Vec<u8>,
}

pub fn gateway_address() -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, 1), 4760).into()
}

/// Inner addresses: the gateway's network has vehicle 0.
pub fn inner(vehicle: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, vehicle as u8, 2)
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
    // Not to be cut.
    bytes[6] = 0x40;
    sum_ip(&mut bytes);
    bytes
}

impl Bed {
    pub fn new(vehicles: usize, is_encrypted: bool) -> Bed {
        Bed::of(vehicles, is_encrypted, false)
    }

    pub fn of(vehicles: usize, is_encrypted: bool, standard: bool) -> Bed {
        let keys = is_encrypted.then(|| (0..=vehicles).map(|_| PrivateKey::generate().unwrap()).collect());
        let home = |vehicle: usize, path: usize| (Ipv4Addr::new(198, 51, path as u8, vehicle as u8), 40_000).into();
        let homes = (1..=vehicles).map(|vehicle| [home(vehicle, 0), home(vehicle, 1)]).collect();
        let mut bed = Bed {
            now: Instant::from_millis(1000),
            unix_ns: 1_700_000_000_000_000_000,
            keys,
            standard,
            sides: Vec::new(),
            homes,
            wire: Vec::new(),
            seen: None,
            narrow: None,
        };
        for side in 0..=vehicles {
            let made = bed.side(side);
            bed.sides.push(made);
        }
        bed
    }

    pub fn side(&self, side: usize) -> Side {
        let vehicle = |place: usize| PeerPlan {
            name: format!("car{place}"),
            prefixes: vec![Prefix { address: inner(place).into(), bits: 24 }],
            at: None,
        };
        let gateway = PeerPlan { name: "gateway".into(), prefixes: Vec::new(), at: Some(gateway_address()) };
        let peers = if side == GATEWAY { (1..=self.homes.len()).map(vehicle).collect() } else { vec![gateway] };
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
            overhead_bytes: 68,
            mtu: MTU,
            addresses: vec![inner(side).into()],
            standard: self.standard,
        };
        let end = End::new(plan, self.unix_ns);
        if side != GATEWAY {
            (0..PATHS).for_each(|path| end.set_path(self.now, PathId(path as u8), Some(path)));
        }
        let (outbox, intake) = (Outbox::default(), Intake::default());
        Side { end, outbox, intake, came: Vec::new(), answers: Vec::new(), is_up: true }
    }

    /// A program that knows nothing of before takes the place of the other.
    pub fn restart(&mut self, side: usize) {
        self.sides[side] = self.side(side);
    }

    /// Where what a side sends arrives, and where it seems to come from there.
    pub fn arrival(&self, from: usize, way: Way) -> Option<(usize, Way)> {
        if from != GATEWAY {
            return (way.to == gateway_address())
                .then(|| (GATEWAY, Way { via: 0, to: self.homes[from - 1][way.via], from: None }));
        }
        let at = |place: usize| self.homes[place].iter().position(|home| *home == way.to).map(|via| (place, via));
        let (place, via) = (0..self.homes.len()).find_map(at)?;
        Some((place + 1, Way { via, to: gateway_address(), from: None }))
    }

    pub fn step(&mut self) {
        let (homes, narrow) = (self.homes.clone(), self.narrow);
        let passes = |place: usize, out: &Sent<'_>, bytes: &[u8]| match narrow {
            Some((vehicle, path, carries)) => {
                let over = (place == vehicle && out.way.via == path) || out.way.to == homes[vehicle - 1][path];
                !over || out.may_be_cut || bytes.len() + OUTER_BYTES <= carries
            }
            None => true,
        };
        let mut sent: Vec<(usize, Way, u8, Vec<u8>)> = Vec::new();
        for flight in std::mem::take(&mut self.wire) {
            let side = &mut self.sides[flight.to];
            if !side.is_up {
                continue;
            }
            let reply = side.end.take_out(&mut side.intake, self.now, flight.way, flight.tos, &flight.bytes);
            sent.extend(reply.map(|reply| (flight.to, flight.way, 0, reply)));
            side.end.settle(&mut side.intake, self.now, |packet| side.came.push(packet.into()));
        }
        for (place, side) in self.sides.iter_mut().enumerate().filter(|(_, side)| side.is_up) {
            let mut send = |out: Sent<'_>| {
                let through = out.bytes.chunks(out.segment).filter(|bytes| passes(place, &out, bytes));
                through.for_each(|bytes| sent.push((place, out.way, out.tos, bytes.into())));
            };
            side.end.upkeep(self.now, self.unix_ns, &mut send);
            for peer in 0..side.end.peers() {
                side.end.depart(self.now, peer, &mut side.outbox, &mut send);
                side.end.changes(peer, &mut side.outbox);
                side.end.deliveries(peer, |packet| side.came.push(packet.into()));
            }
        }
        for (from, way, tos, bytes) in sent {
            let Some((to, way)) = self.arrival(from, way) else { continue };
            self.wire.push(Flight { to, way, tos, bytes });
        }
        if let Some(seen) = &mut self.seen {
            seen.extend(self.wire.iter().cloned());
        }
        self.now = self.now + STEP;
        self.unix_ns += STEP.as_nanos() as u64;
    }

    pub fn run(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.step());
    }

    pub fn offer(&mut self, side: usize, mut packet: Vec<u8>) -> Option<usize> {
        let Side { end, answers, .. } = &mut self.sides[side];
        end.take_in(self.now, &mut packet, |told| answers.push(told.into()))
    }

    pub fn came(&mut self, side: usize) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sides[side].came)
    }

    /// Runs with a packet each 10 ms both ways until one has come to each side;
    /// for how many ms.
    pub fn until_both_ways(&mut self, vehicle: usize, at_most_ms: u64) -> u64 {
        self.came(GATEWAY);
        self.came(vehicle);
        for ms in 0..at_most_ms {
            if ms % 10 == 0 {
                self.offer(vehicle, packet(vehicle, GATEWAY, ms as u32, 100));
                self.offer(GATEWAY, packet(GATEWAY, vehicle, ms as u32, 100));
            }
            self.step();
            if !self.sides[GATEWAY].came.is_empty() && !self.sides[vehicle].came.is_empty() {
                return ms;
            }
        }
        panic!("nothing both ways in {at_most_ms} ms");
    }

    /// Offers packets both ways, one each ms; how many came to the gateway and to
    /// the first vehicle.
    pub fn both_ways(&mut self, count: u32) -> [usize; 2] {
        self.run(300);
        self.came(GATEWAY);
        self.came(1);
        for number in 0..count {
            self.offer(1, packet(1, GATEWAY, number, 100));
            self.offer(GATEWAY, packet(GATEWAY, 1, number, 100));
            self.step();
        }
        self.run(300);
        [self.came(GATEWAY).len(), self.came(1).len()]
    }

    pub fn refused(&self, side: usize) -> u64 {
        self.sides[side].end.counts.rejected.load(Relaxed)
    }

    pub fn misrouted(&self, side: usize) -> u64 {
        self.sides[side].end.counts.misrouted.load(Relaxed)
    }
}
