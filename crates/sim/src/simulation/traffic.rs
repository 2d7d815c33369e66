//! The traffic of a run: what the emulated ends do, as engines.
//!
//! A message is due at `start + number × period`. While the socket takes no
//! more, due messages wait at the source, for a second at most; older ones are
//! skipped and counted. Delay is counted from the beginning of the write.

use std::collections::VecDeque;

use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};

use crate::record::histogram::Histogram;
use crate::record::rows::MessageRow;
use crate::scenario::{self, TrafficKind};
use crate::transport::Endpoint;

/// Size of a message of bulk traffic.
const BULK_BYTES: u32 = 65_536;
/// How long due messages may wait for the socket before they are skipped.
const BACKLOG: Duration = Duration::from_secs(1);

/// What the messages of a run add up to.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Messages written.
    pub written: u64,
    /// Bytes of those that were read.
    pub delivered_bytes: u64,
    /// Their delays.
    pub delays: Histogram,
}

/// A message written and not read.
#[derive(Clone, Copy, Debug)]
struct Open {
    number: u64,
    size: u64,
    /// Its last byte among all.
    end: u64,
    sent: Instant,
}

pub(super) struct Traffic {
    kind: TrafficKind,
    down: bool,
    /// Each message is answered before the next.
    answered: bool,
    /// Bytes of answers that the server has yet to write.
    answers: u64,
    asked: u64,
    period: Duration,
    stop: Instant,
    due: Option<Instant>,
    /// Bytes of the present message that the socket has not taken.
    rest: u64,
    connected: bool,
    /// The socket took less than was offered; the writer waits to be woken.
    blocked: bool,
    /// The message is a file, and its last byte is not acknowledged yet.
    uploading: bool,
    /// Messages written and not read; their number is bounded by the send buffer.
    open: VecDeque<Open>,
    handed_over: u64,
    tally: Results,
    /// Every message, if they are kept.
    rows: Vec<MessageRow>,
    keep: bool,
    skipped: u64,
    rng: Rng,
}

impl Traffic {
    pub(super) fn new(wanted: &scenario::Traffic, seed: u64, keep: bool) -> Traffic {
        Traffic {
            kind: wanted.kind,
            down: wanted.down,
            answered: wanted.answered,
            answers: 0,
            asked: 0,
            period: Duration::from_nanos(wanted.kind.period_ns()),
            stop: Instant::from_secs_f64(wanted.stop_s),
            due: Some(Instant::from_secs_f64(wanted.start_s)),
            rest: 0,
            connected: false,
            blocked: false,
            uploading: false,
            open: VecDeque::new(),
            handed_over: 0,
            tally: Results::default(),
            rows: Vec::new(),
            keep,
            skipped: 0,
            rng: Rng::new(seed, "traffic"),
        }
    }

    /// When something is due; what waits for the socket is woken by what that
    /// does.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.due.filter(|_| self.connected && self.rest == 0 && !self.uploading && !self.awaits_answer())
    }

    /// Writes and reads what can be at `now`.
    pub(super) fn play(&mut self, now: Instant, vehicle: &mut Endpoint, server: &mut Endpoint) {
        if self.answered {
            self.answer(now, server);
            self.read(now, vehicle.delivered());
            return self.write(now, vehicle);
        }
        let (sender, receiver) = if self.down { (server, vehicle) } else { (vehicle, server) };
        self.read(now, receiver.delivered());
        self.write(now, sender);
    }

    /// The server writes back as much as has come.
    fn answer(&mut self, now: Instant, server: &mut Endpoint) {
        let asked = server.delivered();
        self.answers += asked - self.asked;
        self.asked = asked;
        if self.answers > 0 {
            self.answers -= server.write(now, self.answers);
        }
    }

    fn awaits_answer(&self) -> bool {
        self.answered && !self.open.is_empty()
    }

    /// Messages, what they add up to, and how many were skipped.
    pub(super) fn finish(self) -> (Vec<MessageRow>, Results, u64) {
        (self.rows, self.tally, self.skipped)
    }

    fn write(&mut self, now: Instant, sender: &mut Endpoint) {
        self.connected = sender.is_connected();
        if !self.connected {
            return;
        }
        if self.uploading && self.rest == 0 && sender.outstanding() == 0 {
            self.uploading = false;
            self.due = Some(now + self.pause());
        }
        loop {
            if self.rest > 0 && !self.write_rest(now, sender) {
                return;
            }
            if self.uploading || self.awaits_answer() || self.due.is_none_or(|due| due > now) {
                return;
            }
            self.begin(now);
        }
    }

    /// False if the socket takes no more.
    fn write_rest(&mut self, now: Instant, sender: &mut Endpoint) -> bool {
        if self.blocked && !sender.is_writeable() {
            return false;
        }
        self.rest -= sender.write(now, self.rest);
        self.blocked = self.rest > 0;
        !self.blocked
    }

    /// Begins the message that is due.
    fn begin(&mut self, now: Instant) {
        let Some(due) = self.due else { return };
        if due.max(now) >= self.stop {
            self.due = None;
            return;
        }
        let mut due = due;
        if !self.period.is_zero() && now > due + BACKLOG {
            let late = now.since(due + BACKLOG).as_nanos() / self.period.as_nanos();
            self.skipped += late as u64;
            due = due + self.period * late as u32;
        }
        self.due = Some(if self.period.is_zero() { now } else { due + self.period });
        let size = self.size();
        self.uploading = matches!(self.kind, TrafficKind::Uploads { .. });
        self.rest = size;
        self.handed_over += size;
        let number = self.tally.written;
        self.tally.written += 1;
        self.open.push_back(Open { number, size, end: self.handed_over, sent: now });
        if self.keep {
            let (sent_ns, size_bytes) = (now.as_nanos(), size as u32);
            self.rows.push(MessageRow { number, sent_ns, written_ns: None, received_ns: None, size_bytes });
        }
    }

    fn read(&mut self, now: Instant, delivered: u64) {
        while let Some(open) = self.open.front().copied().filter(|open| open.end <= delivered) {
            self.open.pop_front();
            self.tally.delivered_bytes += open.size;
            self.tally.delays.note(now.since(open.sent));
            if let Some(row) = self.rows.get_mut(open.number as usize) {
                row.received_ns = Some(now.as_nanos());
            }
        }
    }

    fn size(&mut self) -> u64 {
        match self.kind {
            TrafficKind::Messages { size_bytes, .. } | TrafficKind::Stream { size_bytes, .. } => u64::from(size_bytes),
            TrafficKind::Bulk | TrafficKind::Deadline(_) => u64::from(BULK_BYTES),
            TrafficKind::Uploads { size_bytes: [least, greatest], .. } => {
                let factor = libm::pow(greatest as f64 / least as f64, self.rng.uniform());
                (least as f64 * factor) as u64
            }
        }
    }

    fn pause(&mut self) -> Duration {
        match self.kind {
            TrafficKind::Uploads { pause_s: [least, greatest], .. } => {
                Duration::from_secs_f64(least + (greatest - least) * self.rng.uniform())
            }
            _ => Duration::ZERO,
        }
    }
}
