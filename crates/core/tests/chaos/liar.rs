//! An authenticated vehicle with false reports: an honest engine whose messages a script alters in transit,
//! and between which it sends forged messages, to a gateway that sends traffic to it.

use super::*;
use crosslane_core::tunnel::wire::control_message::{Body, MAX_MISSING_RANGES, MAX_PATHS, PathReport};

/// Packets of a train, as many as the engine sends.
const TRAIN_PACKETS: usize = 24;
/// Maximum number of messages after one input: a probe and a train for each path, and two reports on two
/// paths each.
const MAX_MESSAGES: usize = MAX_PATHS * (1 + TRAIN_PACKETS) + 4;
/// Maximum number of liveness changes after one input.
const MAX_CHANGES: usize = 2 * MAX_PATHS;
/// Maximum number of transmissions of a packet: the first and eight retransmissions, on all paths.
const MAX_TRANSMISSIONS: usize = 9 * MAX_PATHS;
/// Minimum time between two accepted restarts of the peer, each of which may cause new trains.
const MIN_RESTART_INTERVAL: Duration = Duration::from_millis(250);

struct LiarRun {
    now: Instant,
    gateway: Endpoint,
    vehicle: Endpoint,
    /// Time of arrival, endpoint (0: the gateway), and output.
    wire: Vec<(Instant, usize, Output<Packet>)>,
    /// The newest path sequence number of the gateway on each path.
    numbers: [u32; MAX_PATHS],
    offered: usize,
    arrived: usize,
    transmitted: usize,
    delivered: usize,
    trains: usize,
    token: Rc<()>,
}

/// Runs a script.
pub fn liar(script: &[u8]) {
    let mut script = Script(script);
    let mode = Mode::ALL[usize::from(script.byte()) % Mode::ALL.len()];
    let mut run = LiarRun {
        now: Instant::from_millis(1),
        gateway: engine(false, Mode::default(), 7),
        vehicle: engine(true, mode, 8),
        wire: Vec::new(),
        numbers: [0; MAX_PATHS],
        offered: 0,
        arrived: 0,
        transmitted: 0,
        delivered: 0,
        trains: 0,
        token: Rc::new(()),
    };
    for path in 0..1 + script.byte() % 4 {
        run.vehicle.handle(run.now, Input::Present(PathId(path), true));
    }
    run.run_due();
    while !script.0.is_empty() {
        run.step(&mut script);
        run.run_due();
    }
}

impl LiarRun {
    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 8 {
            0 | 1 => {
                let flow = script.byte() % 8;
                (0..1 + script.below(64)).for_each(|_| self.offer(flow));
            }
            2 | 3 => self.advance_time(Duration::from_millis(script.below(64) as u64), script),
            4 => self.advance_time(Duration::from_micros(script.below(4000) as u64), script),
            5 => {
                let message = self.forged(script);
                let (path, number) = (PathId(script.byte() % 16), numbered(script));
                self.inject(Input::Message { path, number, message });
            }
            6 => {
                let packet = self.packet(0);
                let key = GreKey::of_key(script.word());
                let (number, bytes) = (numbered(script), script.word() & 0xffff);
                let feedback = self.forged_feedback(script);
                self.inject(Input::Arrived {
                    key,
                    number,
                    bytes,
                    feedback,
                    is_pure_ack: is_pure_ack(key.flow),
                    packet,
                });
            }
            _ => {
                let packet = self.packet(0);
                self.vehicle.handle(self.now, Input::Packet { flow: 1, bytes: BYTES, bulk: true, packet });
            }
        }
    }

    fn packet(&self, flow: u8) -> Packet {
        Packet { flow, number: 0, _token: self.token.clone() }
    }

    fn offer(&mut self, flow: u8) {
        let packet = self.packet(flow);
        self.offered += 1;
        let bytes = bytes_of(flow);
        self.gateway.handle(self.now, Input::Packet { flow, bytes, bulk: flow % 2 == 1, packet });
    }

    /// Passes an input to the gateway; its outputs are limited.
    fn inject(&mut self, input: Input<Packet>) {
        self.arrived += usize::from(matches!(input, Input::Arrived { .. }));
        self.gateway.handle(self.now, input);
        self.drain_gateway();
    }

    fn drain_gateway(&mut self) {
        let (mut messages, mut changes) = (0, 0);
        while let Some(output) = self.gateway.poll(self.now) {
            let (path, number) = match &output {
                Output::Send { key, number, .. } => {
                    self.transmitted += 1;
                    (key.path, Some(*number))
                }
                Output::Message { path, number, message } => {
                    messages += 1;
                    self.trains += usize::from(message.body == Body::PacketTrain);
                    (*path, *number)
                }
                Output::Deliver(_) => {
                    self.delivered += 1;
                    continue;
                }
                Output::Changed { .. } => {
                    changes += 1;
                    continue;
                }
            };
            if let Some(number) = number {
                self.numbers[usize::from(path.0)] = number;
            }
            self.send(1, path, output);
        }
        assert!(
            messages <= MAX_MESSAGES && changes <= MAX_CHANGES,
            "{messages} messages and {changes} changes after one input"
        );
        assert!(
            self.transmitted <= self.offered * MAX_TRANSMISSIONS,
            "{} transmissions of {} packets",
            self.transmitted,
            self.offered
        );
        assert!(self.delivered <= self.arrived, "{} of {} packets delivered", self.delivered, self.arrived);
        let mut passes = (0..MAX_PATHS as u8).filter_map(|path| self.gateway.passes_bytes(PathId(path)));
        assert!(passes.all(|bytes| (576..=MTU).contains(&bytes)), "a path MTU out of range");
        let starts = 2 + self.now.as_nanos() / MIN_RESTART_INTERVAL.as_nanos() as u64;
        assert!(self.trains as u64 <= starts * (MAX_PATHS * TRAIN_PACKETS) as u64, "{} packets of trains", self.trains);
        let held = Rc::strong_count(&self.token);
        assert!(held <= 2 * MAX_HELD + MAX_ON_WIRE, "{held} packets are held");
    }

    /// Each path has 20 ms more delay than the one before.
    fn send(&mut self, to: usize, path: PathId, output: Output<Packet>) {
        let takes = Duration::from_millis(2 + 20 * u64::from(path.0 % 4));
        if self.wire.len() < MAX_ON_WIRE {
            self.wire.push((self.now + takes, to, output));
        }
    }

    fn advance_time(&mut self, time: Duration, script: &mut Script<'_>) {
        let until = self.now + time;
        loop {
            let wire = self.wire.iter().map(|(at, ..)| *at);
            let endpoints = [&self.gateway, &self.vehicle].into_iter().filter_map(Engine::next_wakeup);
            let Some(due) = wire.chain(endpoints).min().filter(|due| *due <= until) else { break };
            self.now = due.max(self.now + TICK);
            let (arrived, in_transit) =
                std::mem::take(&mut self.wire).into_iter().partition(|(at, ..)| *at <= self.now);
            self.wire = in_transit;
            let arrived: Vec<(Instant, usize, Output<Packet>)> = arrived;
            arrived.into_iter().for_each(|(_, to, output)| self.deliver(to, output, script));
            self.run_due();
        }
        self.now = until.max(self.now);
    }

    fn deliver(&mut self, to: usize, output: Output<Packet>, script: &mut Script<'_>) {
        let input = match output {
            Output::Send { key, number, mut feedback, packet } => {
                if to == 0 {
                    feedback = feedback.map(|feedback| self.altered_feedback(feedback, script));
                }
                arrived(key, number, feedback, packet)
            }
            Output::Message { path, number, message } => {
                let message = if to == 0 { self.altered(message, script) } else { message };
                Input::Message { path, number, message }
            }
            Output::Deliver(_) | Output::Changed { .. } => return,
        };
        match to {
            0 => self.inject(input),
            _ => self.vehicle.handle(self.now, input),
        }
    }

    /// No engine may ask for an immediate wake-up again and again.
    fn run_due(&mut self) {
        for _ in 0..MAX_IN_A_ROW {
            self.drain_gateway();
            while let Some(output) = self.vehicle.poll(self.now) {
                let path = match &output {
                    Output::Send { key, .. } => key.path,
                    Output::Message { path, .. } => *path,
                    _ => continue,
                };
                self.send(0, path, output);
            }
            if [&self.gateway, &self.vehicle].into_iter().filter_map(Engine::next_wakeup).all(|due| due > self.now) {
                return;
            }
            self.now = self.now + TICK;
        }
        panic!("the gateway is due at {:?}, and the time is {:?}", self.gateway.next_wakeup(), self.now);
    }

    /// A message of the vehicle, altered by the script.
    fn altered(&self, mut message: Message, script: &mut Script<'_>) -> Message {
        if script.byte().is_multiple_of(4) {
            return message;
        }
        match script.byte() % 16 {
            0 => message.epoch = u32::from(script.byte()),
            1 => message.mode = Mode::ALL[usize::from(script.byte()) % Mode::ALL.len()],
            2 => message.retransmits ^= true,
            _ => {}
        }
        if let Body::Report { peer_epoch, paths } = &mut message.body {
            if script.byte() == 1 {
                *peer_epoch = u32::from(script.byte());
            }
            paths.iter_mut().for_each(|report| self.alter(report, script));
        }
        message
    }

    fn alter(&self, report: &mut PathReport, script: &mut Script<'_>) {
        let newest = self.numbers[usize::from(report.path.0) % MAX_PATHS];
        match script.byte() % 16 {
            0 => report.bytes = extreme(report.bytes, script),
            1 => report.arrival_us = extreme(report.arrival_us, script),
            2 => report.held_us = extreme(report.held_us, script),
            3 => report.packets = extreme(report.packets, script),
            4 => report.highest = newest,
            5 => report.highest = extreme(report.highest, script),
            6 => report.missing = vec![(report.highest.wrapping_sub(u32::from(script.byte())), u16::MAX)],
            7 => report.missing = (0..MAX_MISSING_RANGES).map(|_| (script.word(), script.word() as u16)).collect(),
            8 => (report.bytes, report.arrival_us) = (script.word(), script.word()),
            9 => (report.bytes, report.highest) = (0, newest),
            10 => report.wanted_state = STATES[usize::from(script.byte()) % 3],
            11 => report.rank = script.byte(),
            12 => report.path = PathId(script.byte() % 16),
            _ => {}
        }
    }

    /// Feedback on a packet of the vehicle, altered by the script.
    fn altered_feedback(&self, mut feedback: PathFeedback, script: &mut Script<'_>) -> PathFeedback {
        match script.byte() % 16 {
            0 => feedback.bytes = extreme(feedback.bytes, script),
            1 => feedback.arrival_us = extreme(feedback.arrival_us, script),
            2 => feedback.held = extreme(feedback.held.into(), script) as u16,
            3 => feedback.highest = extreme(feedback.highest, script) & 0xff_ffff,
            4 => feedback.path = PathId(script.byte() % 16),
            5 => feedback.check = script.byte(),
            _ => {}
        }
        feedback
    }

    /// Forged feedback, mostly about packets in flight.
    fn forged_feedback(&self, script: &mut Script<'_>) -> Option<PathFeedback> {
        let mut forged = feedback(script)?;
        if !script.byte().is_multiple_of(4) {
            let newest = self.numbers[usize::from(forged.path.0)];
            forged.highest = newest.wrapping_sub(u32::from(script.byte() % 8)) & 0xff_ffff;
        }
        Some(forged)
    }

    /// A forged report of the vehicle, mostly about packets in flight.
    fn forged(&self, script: &mut Script<'_>) -> Message {
        let mut forged_message = message(script);
        if !script.byte().is_multiple_of(4) {
            forged_message.epoch = 8;
        }
        if let Body::Report { paths, .. } = &mut forged_message.body {
            for report in paths {
                let newest = self.numbers[usize::from(report.path.0)];
                if !script.byte().is_multiple_of(4) {
                    report.highest = newest.wrapping_sub(u32::from(script.byte() % 8));
                }
            }
        }
        forged_message
    }
}

fn numbered(script: &mut Script<'_>) -> Option<u32> {
    (script.byte() & 1 == 0).then(|| script.word())
}

/// Extreme values, and values close to `of`.
fn extreme(of: u32, script: &mut Script<'_>) -> u32 {
    match script.byte() % 8 {
        0 => 0,
        1 => u32::MAX,
        2 => 1 << 31,
        3 => of.wrapping_add(1 << 31),
        4 => of.wrapping_neg(),
        5 => of.wrapping_sub(u32::from(script.byte())),
        6 => of.wrapping_mul(1000),
        _ => script.word(),
    }
}
