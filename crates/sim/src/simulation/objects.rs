//! Traffic of kind `deadline`: objects that come up periodically and are due
//! some time later.
//!
//! They are written in order, 64 KiB at a time, and no more than the strategy
//! wants to have under way. An object past its deadline is given up (what was
//! written of it still arrives) or goes on, as the scenario says.

use std::collections::VecDeque;

use crosslane_core::demand::{Demand, Object};
use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};

use super::traffic::Tally;
use crate::records::MessageRow;
use crate::scenario::{DeadlineTraffic, Late, Traffic};
use crate::transport::Endpoint;

/// Size of a write: smaller ones end each mapping with a small packet.
const WRITE_BYTES: u64 = 65_536;
/// Objects begin up to so much later, by the seed, so that runs of a world
/// without chance differ.
const PHASE_S: f64 = 1.0;

pub(super) struct Objects {
    rules: DeadlineTraffic,
    down: bool,
    stop: Instant,
    due: Option<Instant>,
    /// Objects not done, the earliest first.
    open: VecDeque<Open>,
    /// Place in `rows` and last byte of objects written and not read.
    unread: VecDeque<(usize, u64)>,
    connected: bool,
    blocked: bool,
    written: u64,
    acked: u64,
    backlog: Option<u64>,
    changed: bool,
    unit_costs: Vec<f64>,
    rows: Vec<MessageRow>,
}

#[derive(Clone, Copy)]
struct Open {
    place: usize,
    start: Instant,
    deadline: Instant,
    /// Bytes not written.
    rest: u64,
    /// Where its first byte stands in the stream, once one is written.
    begin: Option<u64>,
}

impl Objects {
    pub(super) fn new(traffic: &Traffic, rules: DeadlineTraffic, unit_costs: Vec<f64>, seed: u64) -> Objects {
        let start_s = traffic.start_s + PHASE_S * Rng::new(seed, "objects").uniform();
        Objects {
            rules,
            down: traffic.down,
            stop: Instant::from_secs_f64(traffic.stop_s),
            due: Some(Instant::from_secs_f64(start_s)),
            open: VecDeque::new(),
            unread: VecDeque::new(),
            connected: false,
            blocked: false,
            written: 0,
            acked: 0,
            backlog: None,
            changed: false,
            unit_costs,
            rows: Vec::new(),
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let ends = self.open.iter().filter(|_| self.rules.late == Late::GiveUp).map(|open| open.deadline);
        self.due.into_iter().chain(ends).min().filter(|_| self.connected)
    }

    /// Sets how much may be written and not acknowledged.
    pub(super) fn set_backlog(&mut self, bytes: Option<u64>) {
        self.backlog = bytes;
    }

    pub(super) fn play(&mut self, now: Instant, vehicle: &mut Endpoint, server: &mut Endpoint) {
        let (sender, receiver) = if self.down { (server, vehicle) } else { (vehicle, server) };
        let delivered = receiver.delivered();
        while let Some((place, _)) = self.unread.front().copied().filter(|(_, end)| *end <= delivered) {
            self.unread.pop_front();
            self.rows[place].received_ns = Some(now.as_nanos());
        }
        self.connected = sender.is_connected();
        if !self.connected {
            return;
        }
        self.acked = self.written - sender.outstanding();
        self.begin(now);
        self.end(now);
        self.write(now, sender);
    }

    /// What is open, if there is news since the last call: an object came or
    /// went.
    pub(super) fn news(&mut self) -> Option<Demand> {
        std::mem::take(&mut self.changed).then(|| self.demand())
    }

    /// What is open.
    pub(super) fn demand(&self) -> Demand {
        let objects = self.open.iter().map(|open| Object {
            number: open.place as u64,
            size_bytes: self.rules.object_bytes,
            acked_bytes: open.begin.map_or(0, |begin| self.acked.saturating_sub(begin)).min(self.rules.object_bytes),
            start: open.start,
            deadline: open.deadline,
        });
        Demand { objects: objects.collect(), unit_costs: self.unit_costs.clone() }
    }

    pub(super) fn finish(self) -> (Vec<MessageRow>, Tally, u64) {
        (self.rows, Tally::default(), 0)
    }

    fn begin(&mut self, now: Instant) {
        while let Some(due) = self.due.filter(|due| *due <= now) {
            let place = self.rows.len();
            let deadline = due + Duration::from_secs_f64(self.rules.deadline_s);
            self.open.push_back(Open { place, start: due, deadline, rest: self.rules.object_bytes, begin: None });
            let (number, size_bytes) = (place as u64, self.rules.object_bytes as u32);
            let sent_ns = due.as_nanos();
            self.rows.push(MessageRow { number, sent_ns, written_ns: None, received_ns: None, size_bytes });
            self.changed = true;
            let next = due + Duration::from_secs_f64(self.rules.period_s);
            self.due = Some(next).filter(|next| *next < self.stop && self.rows.len() < self.rules.objects as usize);
        }
    }

    /// Takes away what is done and what is given up.
    fn end(&mut self, now: Instant) {
        let (acked, size) = (self.acked, self.rules.object_bytes);
        let gives_up = self.rules.late == Late::GiveUp;
        let before = self.open.len();
        self.open.retain(|open| {
            let done = open.rest == 0 && open.begin.is_some_and(|begin| acked >= begin + size);
            !(done || gives_up && now >= open.deadline)
        });
        self.changed |= self.open.len() != before;
    }

    fn write(&mut self, now: Instant, sender: &mut Endpoint) {
        let written = &mut self.written;
        for open in &mut self.open {
            while open.rest > 0 {
                let piece = open.rest.min(WRITE_BYTES);
                let full = self.backlog.is_some_and(|most| sender.outstanding() + piece > most);
                if full || (self.blocked && !sender.is_writeable()) {
                    return;
                }
                let taken = sender.write(now, piece);
                self.blocked = taken < piece;
                open.begin.get_or_insert(*written);
                *written += taken;
                open.rest -= taken;
                if open.rest == 0 {
                    self.unread.push_back((open.place, *written));
                    self.rows[open.place].written_ns = Some(now.as_nanos());
                }
            }
        }
    }
}
