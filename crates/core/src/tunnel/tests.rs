use alloc::vec;

use super::wire::overhead::Overhead;
use super::wire::path_feedback::FEEDBACK_BYTES;
use super::*;
use crate::link::{Bottleneck, Direction, DirectionParams, Exit, Hop, Link, Loss, PacketId, QueueLimit};
use crate::path::PathState;

mod burst_end;
mod changing_rates;
mod clocks;
mod explain;
mod higher_delay_path;
mod holes;
mod idle;
mod liar;
mod limits;
mod packet_trains;
mod primary_path;
mod rescue;
mod restarts;
mod retransmissions;
mod riding;
mod slow_start;
mod small_paths;
mod stories;

/// A packet: its flow, its number in the flow, and when it was offered.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Numbered {
    flow: u8,
    number: u64,
    offered: Instant,
}

/// Bytes of each packet of the flows below 100, of the next hundred, and of the others.
const BYTES: u32 = 1400;
const MESSAGE_BYTES: u32 = 1052;
const ACKNOWLEDGEMENT_BYTES: u32 = 52;
const HEADERS: Overhead = Overhead::new(false, false);
const OVERHEAD: u32 = HEADERS.around_packet();

fn bytes_of(flow: u8) -> u32 {
    match flow {
        0..100 => BYTES,
        100..200 => MESSAGE_BYTES,
        200.. => ACKNOWLEDGEMENT_BYTES,
    }
}

type Sent = Output<Numbered>;

/// Two endpoints connected by links.
struct Testbed {
    now: Instant,
    endpoints: [Tunnel<Numbered>; 2],
    links: Vec<Link>,
    in_flight: Vec<(Sent, u32)>,
    /// Packets delivered at the second endpoint, with their times.
    delivered: Vec<(Instant, Numbered)>,
    offered: [u64; 256],
    /// Whether offered packets belong to bulk flows.
    bulk: bool,
    /// Alters the first endpoint's messages in transit.
    tamper: fn(&mut Message),
    /// The clock of each endpoint.
    clocks: [Clock; 2],
}

/// A clock: its offset, and its drift in parts per million.
#[derive(Clone, Copy, Default)]
struct Clock {
    ahead: Duration,
    drift_ppm: u32,
}

impl Clock {
    fn at(self, now: Instant) -> Instant {
        let drift = now.as_nanos() / 1_000_000 * u64::from(self.drift_ppm);
        now + self.ahead + Duration::from_nanos(drift)
    }

    /// The earliest time at which the clock shows `shown`.
    fn when(self, shown: Instant) -> Instant {
        let since = shown.since(Instant::ZERO + self.ahead);
        let drift = since.as_secs_f64() * f64::from(self.drift_ppm) / (1e6 + f64::from(self.drift_ppm));
        Instant::ZERO + since.saturating_sub(Duration::from_secs_f64(drift))
    }
}

/// A constant link: rate in Mbit/s, one-way delay in ms, loss.
fn params(mbit_s: f64, delay_ms: f64, loss: f64) -> DirectionParams {
    DirectionParams {
        bottleneck: Bottleneck::Rate { bit_s: mbit_s * 1e6 },
        delay: Duration::from_secs_f64(delay_ms / 1e3),
        loss: Loss::Independent(loss),
        queue: QueueLimit::Bytes((mbit_s * 1e6 / 8.0 * 0.05).max(6000.0) as u32),
        codel: None,
    }
}

impl Testbed {
    /// A testbed with links as in [`params`].
    fn new(mode: Mode, links: &[(f64, f64, f64)]) -> Testbed {
        let endpoint = |is_initiator| {
            Tunnel::new(Setup {
                mode,
                is_initiator,
                copies: Copies::default(),
                ranks: vec![],
                epoch: 7 + u32::from(is_initiator),
                overhead: HEADERS,
            })
        };
        let link = |(index, &(rate, delay, loss)): (usize, &(f64, f64, f64))| {
            let direction = params(rate, delay, loss);
            Link::new(5 + index as u64, "link", direction.clone(), direction)
        };
        let mut testbed = Testbed {
            now: Instant::ZERO,
            endpoints: [endpoint(true), endpoint(false)],
            links: links.iter().enumerate().map(link).collect(),
            in_flight: Vec::new(),
            delivered: Vec::new(),
            offered: [0; 256],
            bulk: false,
            tamper: |_| {},
            clocks: [Clock::default(); 2],
        };
        testbed.set_clocks([Clock::default(); 2]);
        testbed
    }

    /// Sets the clocks of the endpoints; to be called first.
    fn set_clocks(&mut self, clocks: [Clock; 2]) {
        self.clocks = clocks;
        for path in 0..self.links.len() {
            let path = PathId(path as u8);
            let now = self.clock(0);
            self.endpoints[0].handle(now, Input::Present(path, false));
            self.endpoints[0].handle(now, Input::Present(path, true));
        }
    }

    /// The present time by an endpoint's clock.
    fn clock(&self, endpoint: usize) -> Instant {
        self.clocks[endpoint].at(self.now)
    }

    fn set(&mut self, path: usize, mbit_s: f64, delay_ms: f64, loss: f64) {
        for direction in [Direction::Up, Direction::Down] {
            self.links[path].set(self.now, direction, params(mbit_s, delay_ms, loss));
        }
    }

    fn offer(&mut self, flow: u8) {
        self.offer_at(0, flow);
    }

    fn offer_at(&mut self, endpoint: usize, flow: u8) {
        let number = self.offered[usize::from(flow)];
        self.offered[usize::from(flow)] += 1;
        let packet = Numbered { flow, number, offered: self.now };
        let now = self.clock(endpoint);
        self.endpoints[endpoint].handle(now, Input::Packet { flow, bytes: bytes_of(flow), bulk: self.bulk, packet });
    }

    /// Offers packets of a flow at a rate (of the packets' own bytes) until `until_ms`.
    fn stream(&mut self, flow: u8, mbit_s: f64, until_ms: u64) {
        let each = Duration::from_secs_f64(f64::from(BYTES) * 8.0 / (mbit_s * 1e6));
        let mut next = self.now;
        while next < Instant::from_millis(until_ms) {
            self.run_until(next);
            self.offer(flow);
            next = next + each;
        }
        self.run_until(Instant::from_millis(until_ms));
    }

    fn run_until(&mut self, until: Instant) {
        loop {
            self.exchange();
            let links = self.links.iter().filter_map(Link::next_wakeup);
            let endpoints = self.endpoints.iter().zip(self.clocks);
            let due = endpoints.filter_map(|(endpoint, clock)| Some(clock.when(endpoint.next_wakeup()?)));
            let next = links.chain(due).min();
            let Some(at) = next.filter(|at| *at <= until) else { break };
            // A driver needs time between two calls.
            self.now = at.max(self.now + Duration::from_nanos(u64::from(at <= self.now)));
        }
        self.now = until;
    }

    fn exchange(&mut self) {
        for path in 0..self.links.len() {
            while let Some(exit) = self.links[path].poll(self.now) {
                let Exit { packet, hop: Hop { direction, .. }, dropped: None, .. } = exit else { continue };
                let (sent, _) = self.in_flight[packet.0 as usize].clone();
                let endpoint = usize::from(direction == Direction::Up);
                let input = match sent {
                    Output::Send { key, number, feedback, packet } => {
                        let bytes = bytes_of(key.flow);
                        Input::Arrived {
                            key,
                            number: Some(number),
                            bytes,
                            feedback,
                            is_pure_ack: key.flow >= 200,
                            packet,
                        }
                    }
                    Output::Message { path, number, mut message } => {
                        if endpoint == 1 {
                            (self.tamper)(&mut message);
                        }
                        Input::Message { path, number, message }
                    }
                    _ => continue,
                };
                let now = self.clock(endpoint);
                self.endpoints[endpoint].handle(now, input);
            }
        }
        for (endpoint, direction) in [(0, Direction::Up), (1, Direction::Down)] {
            let now = self.clock(endpoint);
            while let Some(output) = self.endpoints[endpoint].poll(now) {
                let (path, bytes) = match &output {
                    Output::Deliver(packet) => {
                        self.delivered.push((self.now, *packet));
                        continue;
                    }
                    Output::Send { key, feedback, .. } => {
                        let feedback = feedback.map_or(0, |_| FEEDBACK_BYTES);
                        (key.path, bytes_of(key.flow) + feedback + OVERHEAD)
                    }
                    Output::Message { path, message, .. } => {
                        let mut wire = Vec::new();
                        message.write(&mut wire);
                        (*path, wire.len() as u32 + OVERHEAD)
                    }
                    Output::Changed { .. } => continue,
                };
                let id = PacketId(self.in_flight.len() as u64);
                self.in_flight.push((output, bytes));
                // A packet that finds the queue full is dropped.
                let _ = self.links[usize::from(path.0)].send(self.now, direction, id, bytes);
            }
            let (due, wakeup) = (self.endpoints[endpoint].due(), self.endpoints[endpoint].next_wakeup());
            let late = |due: Instant| wakeup.is_none_or(|at| at > due.max(now + Duration::from_nanos(1)));
            assert!(!due.is_some_and(late), "wakes at {wakeup:?}, but a timer expires at {due:?}");
        }
    }

    /// Offers a packet of an unused flow and sends it; returns its path.
    fn path_of(&mut self, flow: u8, bulk: bool) -> Option<PathId> {
        self.bulk = bulk;
        self.offer(flow);
        self.bulk = false;
        self.run_until(self.now + Duration::from_millis(1));
        self.paths_of(flow).first().copied()
    }

    /// The paths of a flow's packets, in order of transmission.
    fn paths_of(&self, flow: u8) -> Vec<PathId> {
        let path = |output: &Sent| match output {
            Output::Send { key, .. } if key.flow == flow => Some(key.path),
            _ => None,
        };
        self.in_flight.iter().filter_map(|(output, _)| path(output)).collect()
    }

    /// The sending state of a path at the first endpoint.
    fn sender(&self, path: u8) -> &SendPath<Numbered> {
        &self.endpoints[0].paths.get(PathId(path)).expect("the path is present").sender
    }

    /// Goodput of delivered packets between two times, in Mbit/s of their own bytes.
    fn goodput(&self, from_ms: u64, to_ms: u64) -> f64 {
        let (from, to) = (Instant::from_millis(from_ms), Instant::from_millis(to_ms));
        let count = self.delivered.iter().filter(|(at, _)| (from..to).contains(at)).count();
        count as f64 * f64::from(BYTES) * 8.0 / ((to_ms - from_ms) as f64 * 1e3)
    }

    /// Delays of a flow's packets offered between two times, in ms, sorted; and the number of lost packets.
    fn delays(&self, flow: u8, from_ms: u64, to_ms: u64) -> (Vec<f64>, usize) {
        let (from, to) = (Instant::from_millis(from_ms), Instant::from_millis(to_ms));
        let mut delays: Vec<f64> = self
            .delivered
            .iter()
            .filter(|(_, packet)| packet.flow == flow && (from..to).contains(&packet.offered))
            .map(|(at, packet)| at.since(packet.offered).as_secs_f64() * 1e3)
            .collect();
        delays.sort_unstable_by(f64::total_cmp);
        let mut numbers: Vec<u64> =
            self.delivered.iter().filter(|(_, packet)| packet.flow == flow).map(|(_, packet)| packet.number).collect();
        numbers.sort_unstable();
        let once = numbers.len();
        numbers.dedup();
        assert_eq!(once, numbers.len(), "a packet was delivered twice");
        (delays, (self.offered[usize::from(flow)] as usize).saturating_sub(once))
    }
}
