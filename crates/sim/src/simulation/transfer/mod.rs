//! Traffic of kind `deadline` over a TCP connection for each path: the engines of `core::transfer::multipath`,
//! driven as `crosslane send` and `crosslane receive` drive them.

use std::collections::{BTreeMap, VecDeque};

use crosslane_core::agent::Output;
use crosslane_core::link::Direction;
use crosslane_core::path::PathId;
use crosslane_core::time::{Duration, Instant};
use crosslane_core::transfer::frame::Receipt;
use crosslane_core::transfer::multipath::frame::{self, DIGEST_BYTES, Outcome, PIECE_HEADER_BYTES, Reply};
use crosslane_core::transfer::multipath::receiver::Receiver;
use crosslane_core::transfer::multipath::sender::{Decision, Sender, Write};
use crosslane_core::transfer::multipath::{CONNECT_TIMEOUT, IDLE_INTERVAL, POLL_INTERVAL, RETRY_INTERVAL};

mod connection;

use super::Side;
use crate::record::messages::{MessageLog, Results};
use crate::record::rows::MessageRow;
use crate::scenario::Scenario;
use crate::traffic::{Sizes, Starts};
use crate::transport::{Segment, Settings, SubflowInfo};
use connection::{Connection, Read};

/// Numbers of connections repeat after this many.
const NUMBERS: u16 = 20_000;

pub(super) struct Transfer {
    sizes: Sizes,
    /// The sizes of open objects.
    bytes: BTreeMap<u32, u64>,
    starts: std::iter::Peekable<Starts>,
    sender: Sender,
    receiver: Receiver,
    links: Vec<Link>,
    /// Of the vehicle's kernel and the server's.
    settings: [Settings; 2],
    begun: u16,
    poll_at: Instant,
    /// When the last piece so far of each object was read.
    last: BTreeMap<u32, Instant>,
    log: MessageLog,
    skipped: u64,
    outputs: VecDeque<Output>,
}

/// A path of the transfer.
struct Link {
    path: PathId,
    open: Option<Connection>,
    /// A connection that does not stand yet, and when it began.
    attempt: Option<(Connection, Instant)>,
    next_attempt: Instant,
}

impl Transfer {
    /// The transfer of the scenario's objects, before the first one; none if the traffic has no deadlines.
    pub(super) fn new(scenario: &Scenario, seed: u64, settings: [Settings; 2], keep: bool) -> Option<Transfer> {
        let rules = scenario.traffic.kind.deadlines()?;
        let mut paths = scenario.paths();
        let (ranks, costs) = (scenario.ranks(), scenario.unit_costs());
        paths.sort_by_key(|path| ranks[usize::from(path.id.0)]);
        let unit_costs: Vec<f64> = paths.iter().map(|path| costs[usize::from(path.id.0)]).collect();
        let mut starts = rules.starts(scenario.traffic.span(), seed).peekable();
        let first = starts.peek().copied().unwrap_or(Instant::from_nanos(u64::MAX));
        let link = |path: crate::scenario::PathEntry<'_>| Link {
            path: path.id,
            open: None,
            attempt: None,
            next_attempt: first,
        };
        Some(Transfer {
            sizes: Sizes::new(rules),
            bytes: BTreeMap::new(),
            starts,
            sender: Sender::new(rules.late, &unit_costs),
            receiver: Receiver::default(),
            links: paths.into_iter().map(link).collect(),
            settings,
            begun: 0,
            poll_at: first,
            last: BTreeMap::new(),
            log: MessageLog::new(keep),
            skipped: 0,
            outputs: VecDeque::new(),
        })
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let connections = self.links.iter().flat_map(Link::connections).filter_map(Connection::next_wakeup);
        connections.chain([self.poll_at]).min()
    }

    /// Handles expired timers, and reads and writes what the sockets have and accept.
    pub(super) fn advance(&mut self, now: Instant) {
        for connection in self.links.iter_mut().flat_map(Link::connections_mut) {
            connection.on_time(now);
        }
        let is_due = self.poll_at <= now || self.links.iter().any(Link::has_new);
        if is_due {
            self.generate(now);
            self.connect(now);
        }
        let mut is_changed = is_due;
        for place in 0..self.links.len() {
            self.receive(now, place);
            is_changed |= self.read_replies(now, place);
        }
        if is_due {
            self.review(now);
        }
        for place in 0..self.links.len() {
            self.write(now, place, is_changed);
        }
    }

    /// A segment arrives that was sent in this direction.
    pub(super) fn on_segment(&mut self, now: Instant, direction: Direction, segment: &Segment, sent: Instant) {
        let to = if direction == Direction::Up { Side::Server } else { Side::Vehicle };
        let mut connections = self.links.iter_mut().flat_map(Link::connections_mut);
        if let Some(connection) = connections.find(|connection| connection.number == segment.subflow) {
            connection.on_segment(now, to, segment, sent);
        }
    }

    /// The next segment to be sent in this direction.
    pub(super) fn poll_segment(&mut self, direction: Direction) -> Option<Segment> {
        let from = if direction == Direction::Up { Side::Vehicle } else { Side::Server };
        self.links.iter_mut().flat_map(Link::connections_mut).find_map(|connection| connection.poll_segment(from))
    }

    /// The next decision or prediction.
    pub(super) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The vehicle's end of each connection that stands.
    pub(super) fn subflows(&self) -> impl Iterator<Item = SubflowInfo> {
        self.links.iter().filter_map(|link| link.open.as_ref()?.subflow())
    }

    /// Objects, their results, the number skipped, and no number of duplicate datagrams.
    pub(super) fn finish(self) -> (Vec<MessageRow>, Results, u64, Option<u64>) {
        let (rows, results) = self.log.finish();
        (rows, results, self.skipped, None)
    }

    /// Takes objects that have been generated, and gives late ones up.
    fn generate(&mut self, now: Instant) {
        while let Some(at) = self.starts.next_if(|at| *at <= now) {
            let size_bytes = self.sizes.bytes();
            let Some(number) = self.sender.submit(size_bytes, 0, at, Some(at + self.sizes.rules().deadline())) else {
                self.skipped += 1;
                continue;
            };
            if self.sizes.rules().is_droppable(number.into()) {
                self.sender.allow_drop(number);
            }
            self.bytes.insert(number, size_bytes);
            self.sizes.begin(self.log.begin(at, size_bytes), at);
        }
        while let Some(number) = self.sender.poll_late(now) {
            self.bytes.remove(&number);
            self.sizes.on_result(now, number.into(), false);
        }
        let interval = if self.sender.is_idle() { IDLE_INTERVAL } else { POLL_INTERVAL };
        let due = self.starts.peek().copied();
        self.poll_at = due.map_or(now + interval, |due| due.min(now + interval));
    }

    /// Opens the connections that are missing, or over which nothing arrives.
    fn connect(&mut self, now: Instant) {
        for (place, link) in self.links.iter_mut().enumerate() {
            let is_needed = link.open.is_none() || self.sender.is_silent(now, place);
            match link.attempt.take().filter(|_| is_needed) {
                Some((connection, _)) if connection.stands() => {
                    link.open = Some(connection);
                    self.sender.open(now, place);
                }
                Some((_, since)) if now.since(since) >= CONNECT_TIMEOUT => link.next_attempt = now + RETRY_INTERVAL,
                Some(attempt) => link.attempt = Some(attempt),
                None if is_needed && link.next_attempt <= now => {
                    let number = self.begun;
                    self.begun = (self.begun + 1) % NUMBERS;
                    let connection = Connection::begin(now, number, (link.path, place), &self.settings);
                    link.attempt = Some((connection, now));
                }
                None => {}
            }
        }
    }

    /// The receiver reads what a path has delivered.
    fn receive(&mut self, now: Instant, place: usize) {
        let Some(open) = &mut self.links[place].open else { return };
        let before = open.received();
        let Ok(events) = open.receive(now, place as u8, &mut self.receiver) else { return self.down(now, place) };
        if open.received() > before {
            self.log.read(now);
        }
        for event in events {
            match event {
                Read::Piece(number) => {
                    self.last.insert(number, now);
                }
                Read::Complete(number) => {
                    let last = self.last.remove(&number).unwrap_or(now);
                    self.log.received(last, number.into());
                    self.end(now, number, Outcome::Stored);
                }
                Read::Abandon(number) => {
                    self.last.remove(&number);
                    self.end(now, number, Outcome::Partial);
                }
                Read::Closed(receipt) => self.send_receipt(now, place, &receipt),
            }
        }
    }

    /// Sends the receipt over all connections, since any may break.
    fn end(&mut self, now: Instant, number: u32, outcome: Outcome) {
        let receipt = Receipt { number, outcome, waited: Duration::ZERO, text: String::new() };
        (0..self.links.len()).for_each(|place| self.send_receipt(now, place, &receipt));
        self.receiver.close(receipt);
    }

    fn send_receipt(&mut self, now: Instant, place: usize, receipt: &Receipt) {
        if let Some(open) = self.links[place].open.as_mut().filter(|open| open.is_joined()) {
            let mut bytes = Vec::new();
            frame::receipt(&mut bytes, receipt);
            open.reply(now, &bytes);
        }
    }

    /// The sender reads the replies that a path has delivered; true if there are any.
    fn read_replies(&mut self, now: Instant, place: usize) -> bool {
        let replies = self.links[place].open.as_mut().map(Connection::read_replies);
        let Some(Ok(replies)) = replies else {
            if replies.is_some() {
                self.down(now, place);
            }
            return false;
        };
        for reply in &replies {
            match reply {
                Reply::Received(pieces) => {
                    self.sender.on_received(now, place, *pieces);
                }
                Reply::Receipt(receipt) => {
                    self.sender.close_object(receipt.number);
                    self.bytes.remove(&receipt.number);
                    self.sizes.on_result(now, receipt.number.into(), receipt.outcome == Outcome::Stored);
                }
                // No object is resumed.
                Reply::Have(..) => {}
            }
        }
        !replies.is_empty()
    }

    /// The connection of a path broke.
    fn down(&mut self, now: Instant, place: usize) {
        self.sender.close(place);
        self.receiver.disconnect(place as u8);
        (self.links[place].open, self.links[place].next_attempt) = (None, now + RETRY_INTERVAL);
    }

    /// Passes statistics to the plan, and records its results.
    fn review(&mut self, now: Instant) {
        for (place, link) in self.links.iter().enumerate() {
            if let Some(transport) = link.open.as_ref().and_then(Connection::statistics) {
                self.sender.on_transport(now, place, &transport);
            }
        }
        self.sender.review(now);
        while let Some(Decision { path, state, was, reason }) = self.sender.poll_decision() {
            self.outputs.push_back(Output::Decision { path: self.links[path].path, state, was, reason });
        }
        while let Some(admission) = self.sender.poll_admission() {
            self.outputs.push_back(Output::Admission(admission));
        }
    }

    /// Writes to a path what its socket accepts and, if anything has changed, as much as the engine gives it.
    fn write(&mut self, now: Instant, place: usize, is_changed: bool) {
        while let Some(open) = &mut self.links[place].open
            && open.flush(now)
            && is_changed
        {
            let Some(write) = self.sender.poll(now, place) else { return };
            let mut bytes = Vec::with_capacity(PIECE_HEADER_BYTES);
            match write {
                Write::Abandon { number, why } => frame::abandon(&mut bytes, number, why),
                Write::Offer { number } => {
                    let deadline_ms = self.sizes.rules().deadline().as_millis() as u32;
                    let size_bytes = self.bytes.get(&number).copied().unwrap_or_default();
                    frame::offer(&mut bytes, number, size_bytes, 0, deadline_ms, &number.to_string());
                }
                Write::End { number } => {
                    frame::end(&mut bytes, number, &[0; DIGEST_BYTES]);
                    self.log.accepted(now, number.into());
                }
                Write::Piece { number, index, length, .. } => {
                    frame::piece(&mut bytes, number, index, length);
                    bytes.resize(bytes.len() + length as usize, 0);
                }
            }
            open.write(&bytes);
        }
    }
}

impl Link {
    /// Whether a connection stands that is not in use yet.
    fn has_new(&self) -> bool {
        self.attempt.as_ref().is_some_and(|(connection, _)| connection.stands())
    }

    fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.open.iter().chain(self.attempt.as_ref().map(|(connection, _)| connection))
    }

    fn connections_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.open.iter_mut().chain(self.attempt.as_mut().map(|(connection, _)| connection))
    }
}
