//! UDP traffic: one datagram per message, sent when it is due.

use std::collections::VecDeque;

use crosslane_core::time::{Duration, Instant};

use super::packet::Datagram;
use super::traffic::Results;
use crate::record::rows::MessageRow;
use crate::scenario::{self, TrafficKind};

pub(super) struct Datagrams {
    size: u16,
    down: bool,
    period: Duration,
    stop: Instant,
    due: Option<Instant>,
    ready: VecDeque<Datagram>,
    /// All messages; a row is completed when its datagram arrives.
    rows: Vec<MessageRow>,
    results: Results,
    duplicates: u64,
    keep: bool,
}

impl Datagrams {
    pub(super) fn new(config: &scenario::Traffic, keep: bool) -> Datagrams {
        let size = match config.kind {
            TrafficKind::Messages { size_bytes, .. } | TrafficKind::Stream { size_bytes, .. } => size_bytes,
            TrafficKind::Bulk | TrafficKind::Uploads { .. } | TrafficKind::Deadline(_) => 0,
        };
        Datagrams {
            size: size as u16,
            down: config.down,
            period: Duration::from_nanos(config.kind.period_ns().max(1)),
            stop: Instant::from_secs_f64(config.stop_s),
            due: Some(Instant::from_secs_f64(config.start_s)),
            ready: VecDeque::new(),
            rows: Vec::new(),
            results: Results::default(),
            duplicates: 0,
            keep,
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.due
    }

    /// True from the server to the vehicle.
    pub(super) fn is_down(&self) -> bool {
        self.down
    }

    /// Sends the datagrams that are due.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some(due) = self.due.filter(|due| *due <= now) {
            self.due = Some(due + self.period).filter(|next| *next < self.stop);
            if due < self.stop {
                self.send(now);
            }
        }
    }

    fn send(&mut self, now: Instant) {
        let number = self.rows.len() as u64;
        self.results.written += 1;
        self.ready.push_back(Datagram { number, payload: self.size });
        let (sent_ns, size_bytes) = (now.as_nanos(), u32::from(self.size));
        self.rows.push(MessageRow { number, sent_ns, written_ns: None, received_ns: None, size_bytes });
    }

    /// The next datagram to transmit.
    pub(super) fn poll(&mut self) -> Option<Datagram> {
        self.ready.pop_front()
    }

    /// A datagram has arrived.
    pub(super) fn receive(&mut self, now: Instant, datagram: Datagram) {
        let Some(row) = self.rows.get_mut(datagram.number as usize) else { return };
        if row.received_ns.is_some() {
            self.duplicates += 1;
            return;
        }
        row.received_ns = Some(now.as_nanos());
        self.results.delivered_bytes += u64::from(datagram.payload);
        self.results.delays.note(Duration::from_nanos(now.as_nanos() - row.sent_ns));
    }

    /// Messages, their results, and the number of duplicates.
    pub(super) fn finish(self) -> (Vec<MessageRow>, Results, u64) {
        (if self.keep { self.rows } else { Vec::new() }, self.results, self.duplicates)
    }
}
