//! Two engines of the tunnel on a wire controlled by a script of bytes; and one engine with arbitrary
//! inputs. The fuzz targets use this module too.

#![allow(dead_code, unused_imports, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use crosslane_core::engine::Engine;
use crosslane_core::path::{PathId, PathState};
use crosslane_core::time::Instant;
use crosslane_core::tunnel::wire::control_message::Message;
use crosslane_core::tunnel::wire::gre_key::GreKey;
use crosslane_core::tunnel::wire::overhead::Overhead;
use crosslane_core::tunnel::wire::path_feedback::PathFeedback;
use crosslane_core::tunnel::{Copies, Input, Mode, Output, Setup, Tunnel};
use crosslane_core::wanted::Order;

mod liar;

pub use liar::liar;

/// Maximum number of packets that one engine may hold: queued, in flight, to be retransmitted, and held for
/// reordering.
const MAX_HELD: usize = 100_000;
/// Maximum number of wake-ups of an idle engine per second.
const MAX_WAKEUPS: usize = 2_000;
/// Maximum number of immediate wake-ups in a row.
const MAX_IN_A_ROW: usize = 8;
/// Time between two calls of a driver.
const TICK: Duration = Duration::from_micros(1);
/// Maximum number of datagrams on the wire.
const MAX_ON_WIRE: usize = 4_096;
const BYTES: u32 = 1200;
const ACKNOWLEDGEMENT_BYTES: u32 = 60;
const MTU: u32 = 1500;
const STATES: [PathState; 3] = [PathState::Active, PathState::Backup, PathState::Closed];

/// A packet: its flow, its number in the flow, and a token that counts its copies.
#[derive(Clone, Debug)]
struct Packet {
    flow: u8,
    number: u32,
    _token: Rc<()>,
}

type Endpoint = Tunnel<Packet>;

/// Length of the packets of a flow.
fn bytes_of(flow: u8) -> u32 {
    if flow % 4 == 2 { ACKNOWLEDGEMENT_BYTES } else { BYTES }
}

/// Whether the packets of a flow are pure acknowledgements.
fn is_pure_ack(flow: u8) -> bool {
    bytes_of(flow) == ACKNOWLEDGEMENT_BYTES
}

/// A packet that was sent, at the other end.
fn arrived(key: GreKey, number: u32, feedback: Option<PathFeedback>, packet: Packet) -> Input<Packet> {
    let (bytes, is_pure_ack) = (bytes_of(key.flow), is_pure_ack(key.flow));
    Input::Arrived { key, number: Some(number), bytes, feedback, is_pure_ack, packet }
}

/// The rest of the script; zeros after its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, run_idle)) = self.0.split_first() else { return 0 };
        self.0 = run_idle;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(u16::from_be_bytes([self.byte(), self.byte()])) % bound.max(1)
    }
}

/// An order of paths, often malformed, or none.
fn order(script: &mut Script<'_>) -> Order {
    match script.byte() % 6 {
        0 => Order::Free,
        count => Order::Paths((0..count).map(|_| PathId(script.byte() % 5 * (1 + script.byte() % 8))).collect()),
    }
}

fn engine(is_initiator: bool, mode: Mode, epoch: u32) -> Endpoint {
    let mut endpoint = Tunnel::new(Setup {
        mode,
        is_initiator,
        copies: Copies::default(),
        ranks: vec![1, 0, 3, 2],
        epoch,
        overhead: Overhead::new(false, true),
    });
    endpoint.probe_mtu_up_to(MTU);
    endpoint
}

struct Pair {
    now: Instant,
    endpoints: [Endpoint; 2],
    /// Receiving endpoint, and output.
    wire: Vec<(usize, Output<Packet>)>,
    offered: [[u32; 256]; 2],
    /// Packets delivered at each endpoint.
    delivered: [BTreeSet<(u8, u32)>; 2],
    newest: [[Option<u32>; 256]; 2],
    disordered: [u64; 2],
    token: Rc<()>,
}

/// Runs a script. Each packet is delivered at most once, in the order of its flow unless it is a pure acknowledgement or counted
/// as late; memory is bounded; no engine asks for immediate wake-ups for ever.
pub fn pair(script: &[u8]) {
    let mut script = Script(script);
    let mode = Mode::ALL[usize::from(script.byte()) % Mode::ALL.len()];
    let paths = 1 + script.byte() % 4;
    let mut pair = Pair {
        now: Instant::from_millis(1),
        endpoints: [engine(true, mode, 7), engine(false, Mode::default(), 8)],
        wire: Vec::new(),
        offered: [[0; 256]; 2],
        delivered: Default::default(),
        newest: [[None; 256]; 2],
        disordered: [0; 2],
        token: Rc::new(()),
    };
    for path in 0..paths {
        pair.endpoints[0].handle(pair.now, Input::Present(PathId(path), true));
    }
    while !script.0.is_empty() {
        pair.step(&mut script);
        pair.run_due();
    }
    pair.run_idle();
}

impl Pair {
    fn step(&mut self, script: &mut Script<'_>) {
        let side = usize::from(script.byte() & 1);
        match script.byte() % 16 {
            0..=3 => self.offer(side, script.byte() % 4, 1 + script.below(64)),
            4 => self.offer(side, script.byte(), 1),
            5 | 6 => self.now = self.now + Duration::from_micros(script.below(2_000) as u64),
            7 => self.now = self.now + Duration::from_millis(script.below(400) as u64),
            8 => {
                let due = self.endpoints.iter().filter_map(Engine::next_wakeup).min();
                self.now = due.unwrap_or(self.now).max(self.now);
            }
            // In order, out of order, duplicated, lost.
            9 | 10 => (0..script.below(64)).for_each(|_| self.deliver(0, false)),
            11 => self.deliver(script.below(self.wire.len()), false),
            12 => self.deliver(script.below(self.wire.len()), true),
            13 => {
                let lost = script.below(self.wire.len() + 1).min(32);
                self.wire.drain(..lost.min(self.wire.len()));
            }
            14 => {
                let (path, is_present) = (PathId(script.byte() % 4), script.byte() & 1 == 0);
                self.endpoints[0].handle(self.now, Input::Present(path, is_present));
            }
            _ => match script.byte() % 3 {
                0 => {
                    let states = (0..4).map(|_| STATES[usize::from(script.byte()) % 3]).collect();
                    self.endpoints[0].handle(self.now, Input::SetWantedStates(states));
                }
                1 => self.endpoints[0].handle(self.now, Input::SetOrder(order(script))),
                _ => {
                    let mode = Mode::ALL[usize::from(script.byte()) % Mode::ALL.len()];
                    self.endpoints[0].handle(self.now, Input::SetMode(mode));
                }
            },
        }
    }

    fn offer(&mut self, side: usize, flow: u8, count: usize) {
        for _ in 0..count {
            let number = &mut self.offered[side][usize::from(flow)];
            let packet = Packet { flow, number: *number, _token: self.token.clone() };
            *number += 1;
            let (bulk, bytes) = (flow % 2 == 1, bytes_of(flow));
            self.endpoints[side].handle(self.now, Input::Packet { flow, bytes, bulk, packet });
        }
    }

    fn deliver(&mut self, index: usize, duplicate: bool) {
        if index >= self.wire.len() {
            return;
        }
        let (to, output) = if duplicate { self.wire[index].clone() } else { self.wire.remove(index) };
        let input = match output {
            Output::Send { key, number, feedback, packet } => arrived(key, number, feedback, packet),
            Output::Message { path, number, message } => {
                let mut wire = Vec::new();
                message.write(&mut wire);
                let message = Message::read(&wire).expect("a written message can be read");
                Input::Message { path, number, message }
            }
            Output::Deliver(_) | Output::Changed { .. } => return,
        };
        self.endpoints[to].handle(self.now, input);
    }

    /// An engine may ask for an immediate wake-up, but not again and again.
    fn run_due(&mut self) {
        self.exchange();
        for _ in 0..MAX_IN_A_ROW {
            if self.endpoints.iter().filter_map(Engine::next_wakeup).all(|due| due > self.now) {
                return;
            }
            self.now = self.now + TICK;
            self.exchange();
        }
        let due = self.endpoints.each_ref().map(Engine::next_wakeup);
        panic!("the endpoints are due at {due:?}, and the time is {:?}", self.now);
    }

    fn exchange(&mut self) {
        for side in 0..2 {
            while let Some(output) = self.endpoints[side].poll(self.now) {
                match output {
                    Output::Deliver(packet) => self.take(side, &packet),
                    Output::Changed { .. } => {}
                    sent => self.wire.push((1 - side, sent)),
                }
            }
            assert!(self.disordered[side] <= self.endpoints[side].late(), "packets out of order do not count as late");
        }
        // The oldest datagrams are lost.
        self.wire.drain(..self.wire.len().saturating_sub(MAX_ON_WIRE));
        assert!(Rc::strong_count(&self.token) <= 2 * MAX_HELD + MAX_ON_WIRE, "too much is held");
    }

    fn take(&mut self, side: usize, packet: &Packet) {
        let Packet { flow, number, .. } = *packet;
        assert!(self.delivered[side].insert((flow, number)), "packet {number} of flow {flow} was delivered twice");
        assert!(number < self.offered[1 - side][usize::from(flow)], "packet {number} of flow {flow} was never offered");
        let newest = &mut self.newest[side][usize::from(flow)];
        if newest.is_some_and(|newest| number < newest) {
            self.disordered[side] += u64::from(!is_pure_ack(flow));
        } else {
            *newest = Some(number);
        }
    }

    /// No datagram arrives any more.
    fn run_idle(&mut self) {
        self.wire.clear();
        let until = self.now + Duration::from_secs(3);
        let mut wakeups = 0;
        while let Some(due) = self.endpoints.iter().filter_map(Engine::next_wakeup).min().filter(|due| *due < until) {
            self.now = due.max(self.now);
            self.run_due();
            self.wire.clear();
            wakeups += 1;
            assert!(wakeups < 2 * 3 * MAX_WAKEUPS, "{wakeups} wake-ups of idle engines");
        }
        self.now = until;
        self.run_due();
        self.wire.clear();
    }
}

/// Passes arbitrary inputs to one engine, as any peer of an unencrypted tunnel can: no panic, bounded
/// memory, no endless wake-ups.
pub fn stranger(script: &[u8]) {
    let mut script = Script(script);
    let token = Rc::new(());
    let mut now = Instant::from_millis(1);
    let mut endpoint = engine(script.byte() & 1 == 0, Mode::default(), 7);
    let mut number = 0;
    while !script.0.is_empty() {
        let packet = Packet { flow: 0, number, _token: token.clone() };
        number += 1;
        match script.byte() % 9 {
            0 | 1 => {
                let key = GreKey::of_key(script.word());
                let has_number = script.byte() & 1 == 0;
                let numbered = has_number.then(|| script.word());
                let (bytes, feedback) = (script.word() & 0xffff, feedback(&mut script));
                let is_pure_ack = is_pure_ack(key.flow);
                endpoint.handle(now, Input::Arrived { key, number: numbered, bytes, feedback, is_pure_ack, packet });
            }
            2 => {
                let length = script.below(200).min(script.0.len());
                let (message, run_idle) = script.0.split_at(length);
                script.0 = run_idle;
                if let Some(message) = Message::read(message) {
                    messages(&mut endpoint, now, &mut script, message);
                }
            }
            3 => {
                let message = message(&mut script);
                messages(&mut endpoint, now, &mut script, message);
            }
            4 => {
                let (flow, bytes) = (script.byte(), script.word() & 0xffff);
                endpoint.handle(now, Input::Packet { flow, bytes, bulk: flow % 2 == 1, packet });
            }
            5 => endpoint.handle(now, Input::Keyless(packet)),
            6 => endpoint.handle(now, Input::Present(PathId(script.byte()), script.byte() & 1 == 0)),
            7 => endpoint.handle(now, Input::SetOrder(order(&mut script))),
            _ => now = now + Duration::from_micros(script.below(65_536) as u64 * 10),
        }
        let mut in_a_row = 0;
        while endpoint.poll(now).is_some() {}
        while endpoint.next_wakeup().is_some_and(|due| due <= now) {
            now = now + TICK;
            while endpoint.poll(now).is_some() {}
            in_a_row += 1;
            assert!(in_a_row < MAX_IN_A_ROW, "due at {:?}, and the time is {now:?}", endpoint.next_wakeup());
        }
        assert!(Rc::strong_count(&token) <= MAX_HELD, "too much is held");
    }
}

fn messages(endpoint: &mut Endpoint, now: Instant, script: &mut Script<'_>, message: Message) {
    let path = PathId(script.byte() % 16);
    let has_number = script.byte() & 1 == 0;
    let number = has_number.then(|| script.word());
    endpoint.handle(now, Input::Message { path, number, message });
}

/// Feedback on a packet, or none.
fn feedback(script: &mut Script<'_>) -> Option<PathFeedback> {
    (script.byte() & 1 == 0).then(|| PathFeedback {
        // The sum of the epochs of most engines and messages.
        check: if script.byte() & 1 == 0 { 15 } else { script.byte() },
        path: PathId(script.byte() % 16),
        highest: script.word() & 0xff_ffff,
        arrival_us: script.word(),
        held: script.word() as u16,
        bytes: script.word(),
    })
}

/// A well-formed message, so that not all random bytes are spent on the form.
fn message(script: &mut Script<'_>) -> Message {
    use crosslane_core::tunnel::wire::control_message::{Body, MAX_MISSING_RANGES, PathReport};
    let mode = Mode::ALL[usize::from(script.byte()) % Mode::ALL.len()];
    let flags = script.byte();
    let paths = (0..script.byte() % 4).map(|_| PathReport {
        path: PathId(script.byte() % 16),
        wanted_state: STATES[usize::from(script.byte()) % 3],
        rank: script.byte(),
        is_overdue: script.byte() & 1 == 1,
        highest: script.word(),
        arrival_us: script.word(),
        held_us: script.word(),
        packets: script.word(),
        bytes: script.word(),
        missing: (0..usize::from(script.byte()) % (MAX_MISSING_RANGES + 1))
            .map(|_| (script.word(), script.word() as u16))
            .collect(),
    });
    let paths: Vec<PathReport> = paths.collect();
    let body = match flags & 12 {
        4 if flags & 16 == 0 => Body::Probe,
        4 => Body::MtuProbe(script.word() as u16),
        12 => Body::PacketTrain,
        _ => Body::Report { peer_epoch: 7, paths },
    };
    Message {
        epoch: u32::from(flags >> 6),
        mode,
        retransmits: flags & 1 != 0,
        is_initiator: flags & 2 != 0,
        reads_feedback: flags & 16 == 0,
        body,
    }
}
