//! The sender: gives each piece to the path that is to carry it.
//!
//! Every 10 ms the plan of strategy `deadline` says which paths carry, by deadline, price and what each has
//! delivered. A path that carries takes the next piece of the object due earliest while its backlog is
//! small. Pieces of a connection that breaks are given out again. When an object has no other pieces left,
//! a path takes a second copy of those that another one would deliver too late or not at all.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

mod drops;
mod open;
mod outputs;
mod path;

use open::Open;
pub use outputs::{Carried, Decision, Write};
use path::{Flight, Path};

use super::ranges::Ranges;
use super::{MAX_OBJECT_BYTES, MAX_PATHS};
use crate::allocate::Allocator;
use crate::allocate::deadline::{Deadline, Params};
use crate::assess::Belief;
use crate::demand::{self, Admission};
use crate::path::Transport;
use crate::time::{Duration, Instant};
use crate::transfer::sender::MAX_OPEN;
use crate::transfer::{Abandoned, Late, MAX_BEGUN, demanded, due};

/// Time between two evaluations of the plan.
const EVALUATION: Duration = Duration::from_millis(10);
/// A path that delivers nothing for this long, and for three RTTs, is stalled.
const STALL: Duration = Duration::from_millis(300);
/// The same for a path that an agent takes for lost.
const DOUBTED_STALL: Duration = Duration::from_millis(50);
/// After this time without a delivery another connection of the path is tried.
const SILENCE: Duration = Duration::from_secs(1);
/// An object that is in flight at its deadline is waited for.
const RECEIPT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long before its deadline an object is to be acknowledged, in ms: less than over MPTCP, since a piece that would be
/// later than this is sent over another path too.
const MARGIN_MS: f64 = 20.0;
/// How much earlier the cheaper paths must be done for a path to be switched off, in ms: a change costs little here.
const SPARE_MS: f64 = 10.0;
/// A path that carries pauses if it could for this long, in ms: on a separate connection a change costs little.
const PAUSE_MS: f64 = 200.0;
/// A path that never had a connection counts as good for this long after the first object.
const CONNECT_PATIENCE: Duration = Duration::from_millis(300);

/// The engine of the sending end.
#[derive(Debug)]
pub struct Sender {
    late: Late,
    plan: Deadline,
    evaluated: Option<Instant>,
    /// When the plan was evaluated first.
    began: Option<Instant>,
    paths: Vec<Path>,
    /// Open objects, the earliest deadline first.
    open: Vec<Open>,
    next_number: u32,
    changed: bool,
    decisions: VecDeque<Decision>,
}

impl Sender {
    /// A sender over paths of these prices of a byte, in any unit, the preferred path first; at most
    /// [`MAX_PATHS`] are used. All are [closed](Self::close).
    pub fn new(late: Late, unit_costs: &[f64]) -> Sender {
        let paths = unit_costs.iter().take(MAX_PATHS).map(|cost| Path::new(*cost)).collect();
        let (margin_ms, spare_ms, pause_ms) = (MARGIN_MS, SPARE_MS, PAUSE_MS);
        let params = Params { margin_ms, spare_ms, pause_ms, ..Params::default() };
        let plan = Deadline::without_ordering(params, late == Late::GiveUp);
        Sender {
            late,
            plan,
            evaluated: None,
            began: None,
            paths,
            open: Vec::new(),
            next_number: 0,
            changed: false,
            decisions: VecDeque::new(),
        }
    }

    /// Adds an object generated at `start` and returns its number; `None` while it [is full](Self::is_full),
    /// or if the object is longer than [`MAX_OBJECT_BYTES`]. `modified_ns`: when its content was last modified, in
    /// ns since 1970; 0: not known, so the receiver has nothing of it.
    pub fn submit(&mut self, size: u64, modified_ns: u64, start: Instant, deadline: Option<Instant>) -> Option<u32> {
        if self.is_full() || size > MAX_OBJECT_BYTES {
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        let open = Open::new(number, size, modified_ns, start, deadline);
        let index = self.open.partition_point(|other| due(other.deadline) <= due(deadline));
        self.open.insert(index, open);
        self.evaluated = None;
        self.changed = true;
        Some(number)
    }

    /// True while [`MAX_OPEN`] objects are open.
    pub fn is_full(&self) -> bool {
        self.open.len() >= MAX_OPEN
    }

    /// Abandons an object; false if it is not open.
    pub fn abandon(&mut self, number: u32, why: Abandoned) -> bool {
        let Some(open) = self.open.iter_mut().find(|open| open.number == number && open.abandoned.is_none()) else {
            return false;
        };
        open.abandoned = Some(why);
        self.changed = true;
        self.forget_abandoned();
        true
    }

    /// The receiver has closed an object.
    pub fn close_object(&mut self, number: u32) {
        let Some(place) = self.open.iter().position(|open| open.number == number) else { return };
        let mut closed = self.open.remove(place);
        for flight in self.paths.iter_mut().flat_map(|path| path.flights_of(number)) {
            flight.is_first = Some(closed.receive(*flight));
        }
        self.changed = true;
    }

    /// A new connection of a path stands.
    pub fn open(&mut self, now: Instant, path: usize) {
        self.close(path);
        if let Some(path) = self.paths.get_mut(path) {
            path.open(now);
        }
        self.evaluated = None;
    }

    /// The connection of a path broke: its pieces are given out again.
    pub fn close(&mut self, path: usize) {
        let Some(closing) = self.paths.get_mut(path) else { return };
        for flight in closing.close() {
            let Some(open) = self.open.iter_mut().find(|open| open.number == flight.number) else { continue };
            let Some(copies) = open.in_flight.get_mut(&flight.index) else { continue };
            *copies -= 1;
            if *copies == 0 {
                open.in_flight.remove(&flight.index);
                open.missing.insert(flight.index);
            }
        }
        for open in &mut self.open {
            open.offered &= !bit(path);
            open.ended &= !bit(path);
        }
        self.forget_abandoned();
        self.evaluated = None;
    }

    /// The receiver was started again: all connections are closed, and open objects are offered again.
    pub fn restart(&mut self) {
        (0..self.paths.len()).for_each(|path| self.close(path));
        self.open.iter_mut().for_each(Open::restart);
    }

    /// The receiver has these pieces of an object. True if it is its first answer: then the object ends only after
    /// [`on_digest`](Self::on_digest), unless it has none.
    pub fn on_have(&mut self, number: u32, pieces: &Ranges) -> bool {
        self.evaluated = None;
        self.open.iter_mut().find(|open| open.number == number).is_some_and(|open| open.on_have(pieces))
    }

    /// The digests of all pieces that the receiver has are known.
    pub fn on_digest(&mut self, number: u32) {
        self.open.iter_mut().filter(|open| open.number == number).for_each(|open| open.has_digest = true);
    }

    /// The statistics of a path's connection, with the bytes that wait in the driver among those not sent.
    pub fn on_transport(&mut self, now: Instant, path: usize, transport: &Transport) {
        if let Some(path) = self.paths.get_mut(path) {
            path.on_transport(now, transport);
        }
    }

    /// Statistics between two of [`on_transport`](Self::on_transport): a fast path delivers what it holds before the next
    /// ones, and would then wait for them.
    pub fn on_backlog(&mut self, now: Instant, path: usize, transport: &Transport) {
        if let Some(path) = self.paths.get_mut(path) {
            path.on_backlog(now, transport);
        }
    }

    /// What an agent believes of a path. A doubted one carries only while no other is good; [`Belief::Good`] and
    /// [`Belief::Unknown`] change nothing.
    pub fn on_belief(&mut self, path: usize, belief: Belief) {
        if self.paths.get_mut(path).is_some_and(|path| path.set_belief(belief)) {
            self.evaluated = None;
        }
    }

    /// The receiver has read this number of pieces from a path's connection since it began; false if fewer
    /// were written.
    pub fn on_received(&mut self, now: Instant, path: usize, pieces: u64) -> bool {
        let Some(path) = self.paths.get_mut(path) else { return false };
        while path.received() < pieces {
            let Some(flight) = path.take_received(now) else { return false };
            let open = self.open.iter_mut().find(|open| open.number == flight.number);
            let is_first = flight.is_first.unwrap_or_else(|| open.is_some_and(|open| open.receive(flight)));
            path.count(flight, is_first);
        }
        true
    }

    /// Evaluates the plan if it is time.
    pub fn review(&mut self, now: Instant) {
        if self.evaluated.is_some_and(|at| now < at + EVALUATION) {
            return;
        }
        self.evaluated = Some(now);
        let is_connecting = now < *self.began.get_or_insert(now) + CONNECT_PATIENCE;
        let demand = self.demand(now);
        // Until a rate is known the plan is to learn: without a history it does not take a first value for one.
        let is_known = self.paths.iter().any(|path| path.bytes_s().is_some());
        let supplies: Vec<_> =
            (0..).zip(&self.paths).map(|(rank, path)| path.supply(rank, is_known, is_connecting)).collect();
        let reason = self.plan.on_demand(now, &demand, &supplies);
        let inputs: Vec<_> = supplies.iter().map(|supply| supply.input).collect();
        let wanted = self.plan.allocate(&inputs);
        self.decisions.clear();
        for (place, (path, state)) in self.paths.iter_mut().zip(wanted.states()).enumerate() {
            let (was, state) = (path.set_state(*state), *state);
            let reason = reason.clone().filter(|_| was != state);
            self.decisions.extend(reason.map(|reason| Decision { path: place, state, was, reason }));
        }
    }

    /// The next decision of the last [`review`](Self::review).
    pub fn poll_decision(&mut self) -> Option<Decision> {
        self.decisions.pop_front()
    }

    /// The next prediction for a new object.
    pub fn poll_admission(&mut self) -> Option<Admission> {
        self.plan.poll_admission()
    }

    /// The next object that is not whole at its deadline, if such objects are given up: it is abandoned. If all of it
    /// is in flight, it is so [`RECEIPT_TIMEOUT`] later. One that [may be dropped](Self::allow_drop) is abandoned before, in
    /// either case.
    pub fn poll_late(&mut self, now: Instant) -> Option<u32> {
        let patience = |open: &Open| if open.is_in_flight() { RECEIPT_TIMEOUT } else { Duration::ZERO };
        let is_late = |open: &&Open| open.deadline.is_some_and(|at| at + patience(open) <= now);
        let is_whole = |open: &Open| open.is_in_flight() && open.in_flight.is_empty();
        let late = self.active().find(|open| self.late == Late::GiveUp && is_late(open) && !is_whole(open));
        let number = late.map(|open| open.number).or_else(|| self.next_drop(now))?;
        self.abandon(number, Abandoned::Late).then_some(number)
    }

    /// What to write to the connection of a path now.
    pub fn poll(&mut self, now: Instant, path: usize) -> Option<Write> {
        let stalled = self.stalled(now);
        let own = bit(path);
        let this = self.paths.get(path).filter(|path| path.is_open())?;
        for open in &mut self.open {
            let number = open.number;
            if let Some(why) = open.abandoned.filter(|_| open.offered & own != 0) {
                open.offered &= !own;
                self.forget_abandoned();
                return Some(Write::Abandon { number, why });
            }
            if open.is_in_flight() && open.has_digest && open.offered & !open.ended & own != 0 {
                open.ended |= own;
                return Some(Write::End { number });
            }
        }
        let has_s = |open: &Open| Some(open.deadline?.since(open.start).as_secs_f64());
        if !this.carries(now, self.active().filter_map(has_s).fold(f64::INFINITY, f64::min)) {
            return None;
        }
        let begun = self.active().filter(|open| open.offered != 0).count();
        let place = (0..self.open.len()).find(|&place| {
            let open = &self.open[place];
            let may_begin = open.is_begun() || begun < MAX_BEGUN;
            open.abandoned.is_none()
                && may_begin
                && self.plan.may_carry(path, open.number.into())
                && (open.offered & !stalled == 0 || self.piece_for(now, path, place).is_some())
        })?;
        let number = self.open[place].number;
        if self.open[place].offered & own == 0 {
            self.open[place].offered |= own;
            return Some(Write::Offer { number });
        }
        let index = self.piece_for(now, path, place)?;
        let (offset, length) = self.open[place].give_out(index);
        self.paths.get_mut(path)?.give(now, Flight { number, index, length, given: now, is_first: None });
        Some(Write::Piece { number, index, offset, length })
    }

    /// Takes back the piece that was polled last for a path, since its bytes cannot be read, and abandons
    /// its object.
    pub fn take_back(&mut self, path: usize, why: Abandoned) {
        if let Some(flight) = self.paths.get_mut(path).and_then(Path::take_back) {
            self.abandon(flight.number, why);
        }
    }

    /// Whether an object was added or removed since the last call.
    pub fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.changed)
    }

    /// Whether no object is open.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether nothing was delivered over a path for so long that another connection may serve better.
    pub fn is_silent(&self, now: Instant, path: usize) -> bool {
        self.paths.get(path).is_some_and(|path| path.delivers_nothing_for(now, SILENCE))
    }

    /// What a path has carried.
    pub fn carried(&self, path: usize) -> Carried {
        self.paths.get(path).map(|path| path.carried).unwrap_or_default()
    }

    /// Number and arrived bytes of the open objects due first, as many as a demand has.
    pub fn progress(&self) -> impl Iterator<Item = (u32, u64)> {
        self.active().map(|open| (open.number, open.acked)).filter(|(_, bytes)| *bytes > 0).take(demand::MAX_OBJECTS)
    }

    /// What the plan is to send: an object past its deadline only if more of it is to be sent.
    fn demand(&self, now: Instant) -> Vec<demand::Object> {
        let is_of_use = |open: &&Open| self.late == Late::Continue || due(open.deadline) > now || !open.is_in_flight();
        let object = |open: &Open| demanded(open.number, [open.size, open.acked], open.start, open.deadline);
        self.active()
            .filter(|open| open.acked < open.size)
            .filter(is_of_use)
            .filter_map(object)
            .take(demand::MAX_OBJECTS)
            .collect()
    }

    fn active(&self) -> impl Iterator<Item = &Open> {
        self.open.iter().filter(|open| open.abandoned.is_none())
    }

    fn stalled(&self, now: Instant) -> u16 {
        let stalled = self.paths.iter().enumerate().filter(|(_, path)| path.is_stalled(now));
        stalled.fold(0, |all, (place, _)| all | bit(place))
    }

    /// The piece of an object that a path is to carry next.
    fn piece_for(&self, now: Instant, path: usize, place: usize) -> Option<u32> {
        let open = self.open.get(place)?;
        open.next_piece().or_else(|| self.late_piece(now, path, open))
    }

    /// A piece in flight on another path over which it would be acknowledged too late, and later than over this one. If
    /// late objects are given up, this one must deliver it in time: a copy that comes late only holds up others.
    fn late_piece(&self, now: Instant, path: usize, open: &Open) -> Option<u32> {
        let left_s = open.deadline.map_or(f64::INFINITY, |at| at.as_secs_f64() - now.as_secs_f64());
        let here_s = self.paths.get(path)?.next_acked_s();
        let is_useless = self.late == Late::GiveUp && left_s < here_s;
        let others = self.paths.iter().enumerate().filter(|(other, _)| *other != path && !is_useless);
        others.flat_map(|(_, other)| other.flights(now)).find_map(|(flight, acked_s)| {
            let is_single = flight.number == open.number && open.in_flight.get(&flight.index) == Some(&1);
            let is_late = acked_s > left_s - MARGIN_MS / 1e3 || acked_s.is_infinite();
            (is_single && is_late && here_s < acked_s).then_some(flight.index)
        })
    }

    /// Removes abandoned objects of which no connection needs to be notified.
    fn forget_abandoned(&mut self) {
        self.open.retain(|open| open.abandoned.is_none() || open.offered != 0);
    }
}

fn bit(path: usize) -> u16 {
    1 << path.min(MAX_PATHS)
}
