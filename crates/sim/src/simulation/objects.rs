//! Traffic of kind `deadline`: objects that are generated periodically, each with
//! a deadline, sent by the transfer engine.

use std::collections::VecDeque;

use crosslane_core::demand::Demand;
use crosslane_core::time::Instant;
use crosslane_core::transfer::frame::{END_BYTES, PREFACE};
use crosslane_core::transfer::sender::{Sender, Write};

use super::traffic::Results;
use crate::record::rows::MessageRow;
use crate::scenario::{DeadlineTraffic, Starts, Traffic};
use crate::transport::Endpoint;

pub(super) struct Objects {
    rules: DeadlineTraffic,
    down: bool,
    /// Generation time of the next object, and of those after it.
    due: Option<Instant>,
    starts: Starts,
    sender: Sender,
    /// Row index and end offset of the objects written and not read.
    unread: VecDeque<(usize, u64)>,
    connected: bool,
    blocked: bool,
    /// Bytes that the engine has output, and the part not yet accepted by the
    /// socket.
    written: u64,
    pending: u64,
    /// The object whose last chunk is being written.
    ending: Option<usize>,
    unit_costs: Vec<f64>,
    rows: Vec<MessageRow>,
    skipped: u64,
}

impl Objects {
    pub(super) fn new(traffic: &Traffic, rules: DeadlineTraffic, unit_costs: Vec<f64>, seed: u64) -> Objects {
        let mut starts = rules.starts(traffic, seed);
        Objects {
            rules,
            down: traffic.down,
            due: starts.next(),
            starts,
            sender: Sender::new(rules.late),
            unread: VecDeque::new(),
            connected: false,
            blocked: false,
            written: PREFACE.len() as u64,
            pending: PREFACE.len() as u64,
            ending: None,
            unit_costs,
            rows: Vec::new(),
            skipped: 0,
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.due.into_iter().chain(self.sender.next_wakeup()).min().filter(|_| self.connected)
    }

    /// Sets the limit of bytes written and not acknowledged.
    pub(super) fn set_backlog(&mut self, bytes: Option<u64>) {
        self.sender.set_backlog(bytes);
    }

    pub(super) fn advance(&mut self, now: Instant, vehicle: &mut Endpoint, server: &mut Endpoint) {
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
        self.sender.set_outstanding(sender.outstanding() + self.pending);
        while let Some(due) = self.due.filter(|due| *due <= now) {
            self.due = self.starts.next();
            self.begin(due);
        }
        while self.sender.poll_late(now).is_some() {}
        self.write(now, sender);
    }

    /// The current demand, if an object was added or removed since the last call.
    pub(super) fn changed_demand(&mut self) -> Option<Demand> {
        self.sender.take_changed().then(|| self.demand())
    }

    /// The current demand.
    pub(super) fn demand(&self) -> Demand {
        Demand { objects: self.sender.demand(), unit_costs: self.unit_costs.clone() }
    }

    pub(super) fn finish(self) -> (Vec<MessageRow>, Results, u64) {
        (self.rows, Results::default(), self.skipped)
    }

    fn begin(&mut self, due: Instant) {
        let deadline = due + self.rules.deadline();
        let Some(number) = self.sender.submit("", self.rules.object_bytes, due, Some(deadline)) else {
            self.skipped += 1;
            return;
        };
        let (number, size_bytes) = (number.into(), self.rules.object_bytes as u32);
        let sent_ns = due.as_nanos();
        self.rows.push(MessageRow { number, sent_ns, written_ns: None, received_ns: None, size_bytes });
    }

    fn write(&mut self, now: Instant, sender: &mut Endpoint) {
        loop {
            if self.pending > 0 {
                if self.blocked && !sender.is_writeable() {
                    return;
                }
                self.pending -= sender.write(now, self.pending);
                self.blocked = self.pending > 0;
                if self.blocked {
                    return;
                }
                if let Some(place) = self.ending.take() {
                    self.rows[place].written_ns = Some(now.as_nanos());
                }
            }
            let Some((write, bytes)) = self.sender.poll() else { return };
            self.written += bytes;
            self.pending = bytes;
            if let Write::Chunk { number, last: true, .. } = write {
                self.unread.push_back((number as usize, self.written - END_BYTES as u64));
                self.ending = Some(number as usize);
            }
        }
    }
}
