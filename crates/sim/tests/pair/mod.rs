//! Two endpoints of a connection, joined by links, without a world: the testbed of
//! the story and property tests of the transport model.
//!
//! After each event the pair checks the invariants (see `watch`), so a story only
//! checks its specific rule.
#![allow(dead_code, missing_docs)]

use std::collections::{BTreeMap, VecDeque};

use crosslane_core::link::jitter::JitterParams;
use crosslane_core::link::{Direction, Link, PacketId};
use crosslane_core::mptcp::{AddressId, Command, Event, Token};
use crosslane_core::path::PathId;
use crosslane_core::time::{Duration, Instant};
use crosslane_sim::addresses::vehicle_address;
use crosslane_sim::transport::{Endpoint, SERVER_ADDRESS, Segment, SubflowInfo};

mod plan;
mod watch;

pub use plan::{Action, Setup, Source, TestPath};
use watch::Watch;

/// Size of a write of bulk traffic.
const BULK_BYTES: u64 = 65_536;

/// Maximum number of segments that one endpoint may send for one event.
const MAX_AT_ONCE: usize = 20_000;

/// A data segment to the server that entered a link.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    pub at: Instant,
    pub path: u8,
    pub dsn: u64,
    pub len: u64,
    /// True if its bytes were not sent before, on any subflow.
    pub first: bool,
}

/// A message of the source.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub written: Instant,
    pub endpoint: u64,
    pub read: Option<Instant>,
}

pub struct Pair {
    pub now: Instant,
    pub client: Endpoint,
    pub server: Endpoint,
    pub carried: Vec<Carried>,
    pub messages: Vec<Message>,
    pub events: Vec<(Instant, Event)>,
    /// Bytes that arrived at the server, by path.
    pub arrived: Vec<u64>,
    pub watch: Watch,
    setup: Setup,
    links: Vec<Link>,
    in_flight: BTreeMap<u64, (Segment, Instant)>,
    packets: u64,
    plan: VecDeque<(Instant, Action)>,
    writing: bool,
    due: Instant,
    offered: u64,
    rest: u64,
    unread: usize,
}

impl Pair {
    /// A pair that connects over path 0 at time 0; the times of `plan` are in
    /// ms.
    pub fn new(setup: Setup, plan: &[(u64, Action)]) -> Pair {
        let links = setup.test_paths.iter().enumerate();
        let links = links.map(|(n, test_path)| {
            let name = format!("path{n}");
            let mut link = Link::new(setup.seed, &name, test_path.params(test_path.loss), test_path.params(0.0));
            if test_path.jitter_ms > 0 {
                let most = Duration::from_millis(test_path.jitter_ms);
                link.set_jitter(setup.seed, &name, JitterParams { share: 1.0, most });
            }
            link
        });
        let mut plan: Vec<(Instant, Action)> =
            plan.iter().map(|&(ms, action)| (Instant::from_millis(ms), action)).collect();
        plan.sort_by_key(|(at, _)| *at);
        let mut pair = Pair {
            now: Instant::ZERO,
            client: Endpoint::client(setup.settings("vehicle")),
            server: Endpoint::server(setup.settings("server")),
            carried: Vec::new(),
            messages: Vec::new(),
            events: Vec::new(),
            arrived: vec![0; setup.test_paths.len()],
            watch: Watch::new(),
            links: links.collect(),
            in_flight: BTreeMap::new(),
            packets: 0,
            plan: plan.into(),
            writing: true,
            due: Instant::ZERO,
            offered: 0,
            rest: 0,
            unread: 0,
            setup,
        };
        pair.client.connect(Instant::ZERO, PathId(0));
        pair.transmit(None);
        pair
    }

    /// Advances the pair until this time, in ms.
    pub fn run_until_ms(&mut self, until_ms: u64) {
        let until = Instant::from_millis(until_ms);
        while let Some(at) = self.next_wakeup().filter(|at| *at <= until) {
            assert!(at >= self.now || self.client.next_wakeup() != Some(at), "the clock runs backwards");
            self.now = self.now.max(at);
            self.watch.count_step(self.now);
            self.step();
        }
        self.now = until;
    }

    /// Maximum time from write to read of the messages written in this interval,
    /// in ms; one that was never read counts until now.
    pub fn worst_delay_ms(&self, from_ms: u64, to_ms: u64) -> f64 {
        let span = Instant::from_millis(from_ms)..Instant::from_millis(to_ms);
        let written = self.messages.iter().filter(|message| span.contains(&message.written));
        let delay = |message: &Message| message.read.unwrap_or(self.now).since(message.written);
        written.map(delay).max().unwrap_or_default().as_secs_f64() * 1e3
    }

    /// Data segments that entered a path in this interval, in ms.
    pub fn carried_between(&self, path: u8, from_ms: u64, to_ms: u64) -> impl Iterator<Item = &Carried> {
        let span = Instant::from_millis(from_ms)..Instant::from_millis(to_ms);
        self.carried.iter().filter(move |segment| segment.path == path && span.contains(&segment.at))
    }

    /// The vehicle's open subflow on a path.
    pub fn subflow(&self, path: u8) -> Option<SubflowInfo> {
        self.client.subflows().find(|info| info.path == PathId(path))
    }

    /// Bytes that the source has written to the socket.
    pub fn written(&self) -> u64 {
        self.offered - self.rest
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let links = self.links.iter().filter_map(Link::next_wakeup);
        let endpoints = [self.client.next_wakeup(), self.server.next_wakeup()].into_iter().flatten();
        let plan = self.plan.front().map(|(at, _)| *at);
        links.chain(endpoints).chain(plan).chain(self.next_message()).min()
    }

    fn next_message(&self) -> Option<Instant> {
        let waits = self.rest == 0 && self.writing && self.client.is_connected();
        (waits && matches!(self.setup.source, Source::Messages { .. })).then_some(self.due)
    }

    fn step(&mut self) {
        let now = self.now;
        for place in 0..self.links.len() {
            while let Some(exit) = self.links[place].poll(now) {
                let Some((segment, sent)) = self.in_flight.remove(&exit.packet.0) else { continue };
                if exit.dropped.is_none() {
                    self.arrive(&segment, sent, exit.hop.direction);
                }
            }
        }
        if self.client.next_wakeup().is_some_and(|at| at <= now) {
            self.client.on_time(now);
            self.transmit(None);
            assert!(self.client.next_wakeup().is_none_or(|at| at > now), "the vehicle's timers do not move on");
        }
        if self.server.next_wakeup().is_some_and(|at| at <= now) {
            self.server.on_time(now);
            self.transmit(None);
            assert!(self.server.next_wakeup().is_none_or(|at| at > now), "the server's timers do not move on");
        }
        while let Some((_, action)) = self.plan.front().copied().filter(|(at, _)| *at <= now) {
            self.plan.pop_front();
            self.act(action);
            self.transmit(None);
        }
        self.write_due();
    }

    fn arrive(&mut self, segment: &Segment, sent: Instant, direction: Direction) {
        self.watch.note_arrival(segment, direction);
        match direction {
            Direction::Up => {
                self.arrived[usize::from(segment.path.0)] += u64::from(segment.payload);
                self.server.on_segment(self.now, segment, sent);
            }
            Direction::Down => self.client.on_segment(self.now, segment, sent),
        }
        self.transmit(Some(direction));
        self.watch.check_delivered(self.server.delivered());
        while let Some(message) = self.messages.get_mut(self.unread).filter(|m| m.endpoint <= self.server.delivered()) {
            message.read = Some(self.now);
            self.unread += 1;
        }
    }

    fn act(&mut self, action: Action) {
        let token = Token(1);
        let local = |path: u8| vehicle_address(usize::from(path)).into();
        let remote = SERVER_ADDRESS;
        let named = |pair: &Pair, path: u8| pair.subflow(path).map(|info| (local(path), info.port).into());
        let command = match action {
            Action::Carry { path, on } => return self.links[usize::from(path)].set_on(self.now, on),
            Action::Write { on } => return self.writing = on,
            Action::Restore { mbit_s } => return self.restore(mbit_s),
            Action::Create { path, backup } => Some(Command::CreateSubflow {
                token,
                local_id: AddressId(path + 1),
                local: local(path),
                if_index: 0,
                remote,
                backup,
            }),
            Action::Destroy { path } => named(self, path)
                .filter(|_| self.client.subflows().count() > 1)
                .map(|local| Command::DestroySubflow { token, local, remote, lost: false }),
            Action::Flag { path, backup } => {
                named(self, path).map(|local| Command::SetBackup { token, local, remote, backup })
            }
        };
        if let Some(command) = command {
            self.client.command(self.now, &command);
        }
    }

    fn restore(&mut self, mbit_s: f64) {
        for (link, test_path) in self.links.iter_mut().zip(&mut self.setup.test_paths) {
            test_path.mbit_s = test_path.mbit_s.max(mbit_s);
            link.set_on(self.now, true);
            for direction in Direction::BOTH {
                link.set(self.now, direction, test_path.params(0.0));
            }
        }
    }

    fn write_due(&mut self) {
        if !self.client.is_connected() || !self.writing {
            return;
        }
        self.due = if self.offered == 0 { self.now } else { self.due };
        loop {
            if self.rest > 0 {
                self.rest -= self.client.write(self.now, self.rest);
                self.transmit(None);
                if self.rest > 0 {
                    return;
                }
            }
            match self.setup.source {
                Source::Bulk => self.rest = BULK_BYTES,
                Source::Messages { bytes, every_ms } => {
                    if self.due > self.now {
                        return;
                    }
                    self.due = self.due + Duration::from_millis(every_ms);
                    self.rest = bytes;
                    self.messages.push(Message { written: self.now, endpoint: self.offered + bytes, read: None });
                }
            }
            self.offered += self.rest;
        }
    }

    /// Sends the segments of both endpoints after one event; `received` is the
    /// direction of the segment that was received, if any.
    fn transmit(&mut self, received: Option<Direction>) {
        for direction in Direction::BOTH {
            let endpoint = if direction == Direction::Up { &mut self.client } else { &mut self.server };
            let mut segments = Vec::new();
            segments.extend(std::iter::from_fn(|| endpoint.poll_segment()).take(MAX_AT_ONCE + 1));
            assert!(segments.len() <= MAX_AT_ONCE, "an endpoint sends without endpoint");
            self.watch.check_sent(endpoint, direction, &segments, received);
            for segment in segments {
                self.send(direction, segment);
            }
        }
        while let Some(event) = self.client.poll_event() {
            self.events.push((self.now, event));
        }
        while self.server.poll_event().is_some() {}
    }

    fn send(&mut self, direction: Direction, segment: Segment) {
        let path = segment.path.0;
        if direction == Direction::Up && segment.payload > 0 {
            let dsn = segment.dsn.unwrap_or(segment.seq - 1);
            let first = self.watch.is_first(dsn);
            self.carried.push(Carried { at: self.now, path, dsn, len: u64::from(segment.payload), first });
        }
        self.watch.note_sent(&segment, direction);
        let packet = PacketId(self.packets);
        self.packets += 1;
        self.in_flight.insert(packet.0, (segment, self.now));
        let bytes = u32::from(segment.ip_bytes());
        if self.links[usize::from(path)].send(self.now, direction, packet, bytes).is_err() {
            self.in_flight.remove(&packet.0);
        }
    }
}

/// Median of `figure` over the seeds 1 to `seeds`.
pub fn median(seeds: u64, figure: impl FnMut(u64) -> f64) -> f64 {
    let mut figures: Vec<f64> = (1..=seeds).map(figure).collect();
    figures.sort_by(f64::total_cmp);
    println!("figures: {figures:.1?}");
    figures[figures.len() / 2]
}

/// True if the figure is within a factor 1.5 or 20 ms of the kernel's range.
pub fn agrees_ms(figure: f64, least: f64, greatest: f64) -> bool {
    let (low, high) = ((least / 1.5).min(least - 20.0), (greatest * 1.5).max(greatest + 20.0));
    println!("{figure:.1} ms, the kernel {least} to {greatest} ms");
    (low..=high).contains(&figure)
}

/// Time of the failure of [`silent_failure`], in ms, without its phase.
pub const FAILURE_MS: u64 = 5_000;

/// A path fails silently as in the kernel's table: a message of 1 kB every 20 ms,
/// RTTs of 40 ms, and a second path. The times of `plan` are in ms relative to the
/// failure; the seed determines its phase among messages and ticks. Returns the
/// maximum delay.
pub fn silent_failure(seed: u64, stale_loss_count: u32, backup: bool, plan: &[(i64, Action)]) -> f64 {
    let test_paths = [TestPath::new(20.0, 20), TestPath::new(20.0, 20)];
    let source = Source::Messages { bytes: 1000, every_ms: 20 };
    let failure_ms = FAILURE_MS + seed * 7 % 20;
    let mut whole = vec![(500, Action::Create { path: 1, backup }), (failure_ms, Action::Carry { path: 0, on: false })];
    whole.extend(plan.iter().map(|&(ms, action)| (failure_ms.saturating_add_signed(ms), action)));
    let mut pair = Pair::new(Setup { stale_loss_count, seed, ..Setup::new(&test_paths, source) }, &whole);
    pair.run_until_ms(FAILURE_MS + 15_000);
    pair.worst_delay_ms(FAILURE_MS - 1000, FAILURE_MS + 5000)
}
