//! A path of the sender: its connection, what is in flight on it, and what it delivers.

use alloc::collections::VecDeque;

use super::{Carried, DOUBTED_STALL, STALL};
use crate::allocate::{Latest, PathInput, PathSupply};
use crate::assess::throughput::Rate;
use crate::assess::{Assessor, Belief};
use crate::path::{PathId, PathState, Rat, Sample, SampleKind, Transport};
use crate::time::{Duration, Instant};
use crate::transfer::multipath::PIECE_BYTES;

/// Limit of unacknowledged bytes while the rate of a path is unknown, unless it just delivered so much that more takes no
/// longer.
const FIRST_BYTES: f64 = 262_144.0;
/// Maximum bytes that the connection holds unsent, in s at the rate of the path: these cannot be taken back.
const UNSENT_S: f64 = 0.025;
/// Limit of unacknowledged bytes, in RTTs at the rate of the path: 1 is in flight, the rest lets the rate
/// grow.
const BACKLOG_RTTS: f64 = 2.5;
/// The same at least, for objects that have little time.
const MIN_BACKLOG_RTTS: f64 = 1.25;
/// A delivery may take this many RTTs.
const DELIVERY_RTTS: u32 = 3;
/// Payload of a full TCP segment, in bytes.
const SEGMENT_BYTES: u64 = 1448;

/// A piece in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub number: u32,
    pub index: u32,
    pub length: u32,
    pub given: Instant,
    /// Of an object that is closed: whether it is the first copy.
    pub is_first: Option<bool>,
}

#[derive(Debug)]
pub(super) struct Path {
    pub cost: f64,
    pub carried: Carried,
    is_open: bool,
    was_open: bool,
    state: PathState,
    rate: Rate,
    latest: Latest,
    /// Pieces that the receiver has not reported, in the order of the connection.
    flights: VecDeque<Flight>,
    /// Pieces that the receiver has read from the connection.
    received: u64,
    /// Bytes that have not arrived as far as is known, and of these not sent; with what was given since the last statistics.
    unacked: u64,
    unsent: u64,
    bytes_acked: u64,
    /// Bytes acknowledged within the last [`UNSENT_S`], and when the present ones began to be counted, from how many on.
    delivered: f64,
    counted: (Instant, u64),
    /// When something was delivered, or nothing was in flight.
    progress: Instant,
    /// What an agent believes of it, if it doubts.
    doubt: Option<Belief>,
}

impl Path {
    pub(super) fn new(cost: f64) -> Path {
        Path {
            cost,
            carried: Carried::default(),
            is_open: false,
            was_open: false,
            state: PathState::Backup,
            rate: Rate::default(),
            latest: Latest::default(),
            flights: VecDeque::new(),
            received: 0,
            unacked: 0,
            unsent: 0,
            bytes_acked: 0,
            delivered: 0.0,
            counted: (Instant::ZERO, 0),
            progress: Instant::ZERO,
            doubt: None,
        }
    }

    /// What an agent believes of it: true if that is new. Only a doubt counts, since the connection itself shows what is
    /// good.
    pub(super) fn set_belief(&mut self, belief: Belief) -> bool {
        let doubt = Some(belief).filter(|belief| *belief > Belief::Good);
        core::mem::replace(&mut self.doubt, doubt) != doubt
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(super) fn open(&mut self, now: Instant) {
        (self.is_open, self.was_open, self.progress) = (true, true, now);
        (self.delivered, self.counted) = (0.0, (now, 0));
    }

    /// Returns the pieces in flight.
    pub(super) fn close(&mut self) -> VecDeque<Flight> {
        (self.is_open, self.state, self.received) = (false, PathState::Backup, 0);
        (self.unacked, self.unsent, self.bytes_acked) = (0, 0, 0);
        core::mem::take(&mut self.flights)
    }

    /// Returns the previous state.
    pub(super) fn set_state(&mut self, state: PathState) -> PathState {
        core::mem::replace(&mut self.state, state)
    }

    /// What is in flight; nothing is learnt of the rate.
    pub(super) fn on_backlog(&mut self, now: Instant, transport: &Transport) {
        self.unsent = transport.notsent_bytes.into();
        // What follows a lost segment has arrived: it leaves room for more.
        let in_flight = transport.unacked.saturating_sub(transport.sacked);
        self.unacked = u64::from(in_flight) * SEGMENT_BYTES + self.unsent;
        if transport.bytes_acked > self.bytes_acked || self.unacked == 0 {
            self.progress = now;
        }
        self.bytes_acked = transport.bytes_acked;
        let (since, acked) = self.counted;
        let counted_s = now.since(since).as_secs_f64();
        if counted_s >= UNSENT_S {
            self.delivered = self.bytes_acked.saturating_sub(acked) as f64 / counted_s * UNSENT_S;
            self.counted = (now, self.bytes_acked);
        }
    }

    pub(super) fn on_transport(&mut self, now: Instant, transport: &Transport) {
        self.on_backlog(now, transport);
        let kind = SampleKind::Transport(*transport);
        self.latest.observe(now, &kind);
        // The smoothed RTT grows with the queue that the transfer makes itself.
        let rtt = transport.min_rtt.unwrap_or(transport.rtt);
        let kind = SampleKind::Transport(Transport { rtt, ..*transport });
        self.rate.observe(now, &Sample { path: PathId(0), kind });
    }

    /// What the plan knows of it, with or without its history. Before its first connection stands, it is good while
    /// the transfer `is_connecting`: else a costly path that connects sooner carries instead.
    pub(super) fn supply(&self, rank: u8, is_known: bool, is_connecting: bool) -> PathSupply<'_> {
        let is_good = self.is_open || (is_connecting && !self.was_open);
        let belief = if is_good { self.doubt.unwrap_or(Belief::Good) } else { Belief::Lost };
        let input = PathInput { belief, was: self.state, rank, radio: None };
        let history = self.rate.history().filter(|_| is_known);
        PathSupply { input, rat: Rat::Other, unit_cost: Some(self.cost), history, latest: &self.latest }
    }

    /// Whether it is to carry a further piece, of objects that have this time at least, in s. Half of what the delay leaves
    /// of it is their queue at most.
    pub(super) fn carries(&self, now: Instant, has_s: f64) -> bool {
        let rtt_s = self.min_rtt_s();
        let queue_s = ((has_s - rtt_s / 2.0) / 2.0).max(rtt_s * (MIN_BACKLOG_RTTS - 1.0));
        let limits = |bytes_s: f64| {
            // With a piece in addition: else the rate of a path that carries two or three could not grow.
            let unacked =
                (bytes_s * (rtt_s + queue_s) + PIECE_BYTES as f64).min(bytes_s * (rtt_s * BACKLOG_RTTS + UNSENT_S));
            (unacked, bytes_s * UNSENT_S)
        };
        let (unacked, unsent) = self.bytes_s().map_or_else(
            || {
                let (unacked, unsent) = limits(self.delivered_bytes_s());
                (unacked.max(FIRST_BYTES), unsent.max(FIRST_BYTES / 4.0))
            },
            limits,
        );
        let has_room = |bytes: u64, limit: f64| {
            bytes == 0 || ((bytes + PIECE_BYTES) as f64) <= limit.max(2.0 * PIECE_BYTES as f64)
        };
        self.state == PathState::Active
            && !self.is_stalled(now)
            && has_room(self.unacked, unacked)
            && (self.unsent == 0 || self.unsent as f64 <= unsent - PIECE_BYTES as f64)
    }

    /// Whether it delivers nothing; of a path that an agent takes for lost, this is known sooner.
    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        let is_doubted = self.doubt > Some(Belief::Fading);
        self.delivers_nothing_for(now, if is_doubted { DOUBTED_STALL } else { STALL })
    }

    /// Whether nothing was delivered for this long although something is not acknowledged.
    pub(super) fn delivers_nothing_for(&self, now: Instant, time: Duration) -> bool {
        let rtt = self.latest.transport.map_or(Duration::ZERO, |(_, transport)| transport.rtt);
        self.is_open && self.unacked > 0 && now.since(self.progress) > time.max(rtt * DELIVERY_RTTS)
    }

    pub(super) fn give(&mut self, now: Instant, flight: Flight) {
        if self.flights.is_empty() {
            self.progress = now;
        }
        self.flights.push_back(flight);
        self.unsent += u64::from(flight.length);
        self.unacked += u64::from(flight.length);
    }

    pub(super) fn take_back(&mut self) -> Option<Flight> {
        self.flights.pop_back()
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// The receiver has read the oldest piece in flight.
    pub(super) fn take_received(&mut self, now: Instant) -> Option<Flight> {
        let flight = self.flights.pop_front()?;
        self.received += 1;
        self.progress = now;
        Some(flight)
    }

    pub(super) fn flights_of(&mut self, number: u32) -> impl Iterator<Item = &mut Flight> {
        self.flights.iter_mut().filter(move |flight| flight.number == number)
    }

    pub(super) fn count(&mut self, flight: Flight, is_first: bool) {
        self.carried.bytes += u64::from(flight.length);
        self.carried.duplicate_bytes += if is_first { 0 } else { u64::from(flight.length) };
    }

    /// The pieces in flight, the last first, with the expected time until each is acknowledged, in s.
    pub(super) fn flights(&self, now: Instant) -> impl Iterator<Item = (Flight, f64)> {
        let mut bytes = self.flight_bytes();
        let is_stalled = self.is_stalled(now);
        self.flights.iter().rev().map(move |flight| {
            let acked_s = if is_stalled { f64::INFINITY } else { self.acked_s(bytes, now.since(flight.given)) };
            bytes -= u64::from(flight.length);
            (*flight, acked_s)
        })
    }

    /// The expected time until a piece that it is given now is acknowledged, in s.
    pub(super) fn next_acked_s(&self) -> f64 {
        self.acked_s(self.flight_bytes() + PIECE_BYTES, Duration::ZERO)
    }

    pub(super) fn flight_bytes(&self) -> u64 {
        self.flights.iter().map(|flight| u64::from(flight.length)).sum()
    }

    /// The expected time until the last of these bytes in flight is acknowledged, in s: an RTT after it was given to the path
    /// at the earliest, and an RTT from now if it is overdue.
    fn acked_s(&self, bytes: u64, since_given: Duration) -> f64 {
        let rtt_s = self.min_rtt_s();
        let is_overdue = since_given.as_secs_f64() > rtt_s * f64::from(DELIVERY_RTTS);
        let left_s = if is_overdue { rtt_s } else { rtt_s - since_given.as_secs_f64() };
        self.bytes_s().map_or(rtt_s, |bytes_s| (bytes as f64 / bytes_s.max(1.0)).max(left_s))
    }

    /// Its rate in bytes/s, once it is known.
    pub(super) fn bytes_s(&self) -> Option<f64> {
        self.rate.history()?.mean_rate(0.0)
    }

    /// The rate at which it delivered within the last [`UNSENT_S`], in bytes/s.
    pub(super) fn delivered_bytes_s(&self) -> f64 {
        self.delivered / UNSENT_S
    }

    pub(super) fn min_rtt_s(&self) -> f64 {
        self.rate.history().map_or(0.0, |history| history.min_rtt().as_secs_f64())
    }
}
