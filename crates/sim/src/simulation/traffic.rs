//! The traffic of a run: the traffic endpoints of the emulator as an engine.
//!
//! A message is due at `start + number × period`. While the socket accepts no
//! data, due messages wait at the source for at most a second; older ones are
//! skipped and counted. The delay starts with the write.

use std::collections::VecDeque;

use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};

use crate::record::histogram::Histogram;
use crate::record::rows::MessageRow;
use crate::scenario::{self, TrafficKind};
use crate::transport::Endpoint;

/// Size of a message of bulk traffic.
const BULK_BYTES: u32 = 65_536;
/// Time for which due messages wait for the socket before they are skipped.
const BACKLOG: Duration = Duration::from_secs(1);

/// Results over the messages of a run.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Messages written.
    pub written: u64,
    /// Bytes of the messages that were read.
    pub delivered_bytes: u64,
    /// Delays of the messages that were read.
    pub delays: Histogram,
}

/// A message that was written and not yet read.
#[derive(Clone, Copy, Debug)]
struct OpenMessage {
    number: u64,
    size: u64,
    /// Stream offset of its end.
    end: u64,
    sent: Instant,
}

pub(super) struct Traffic {
    kind: TrafficKind,
    down: bool,
    /// Each message is answered before the next is sent.
    answered: bool,
    /// Bytes of answers that the server has not written yet.
    answers: u64,
    requested: u64,
    period: Duration,
    stop: Instant,
    due: Option<Instant>,
    /// Bytes of the current message that the socket has not accepted.
    pending: u64,
    connected: bool,
    /// The socket accepted only a part; the writer waits until it is writeable.
    blocked: bool,
    /// The message is a file whose last byte is not acknowledged yet.
    uploading: bool,
    /// Messages written and not read; the send buffer limits their number.
    open: VecDeque<OpenMessage>,
    written_bytes: u64,
    results: Results,
    /// All messages, if they are kept.
    rows: Vec<MessageRow>,
    keep: bool,
    skipped: u64,
    rng: Rng,
}

impl Traffic {
    pub(super) fn new(config: &scenario::Traffic, seed: u64, keep: bool) -> Traffic {
        Traffic {
            kind: config.kind,
            down: config.down,
            answered: config.answered,
            answers: 0,
            requested: 0,
            period: Duration::from_nanos(config.kind.period_ns()),
            stop: Instant::from_secs_f64(config.stop_s),
            due: Some(Instant::from_secs_f64(config.start_s)),
            pending: 0,
            connected: false,
            blocked: false,
            uploading: false,
            open: VecDeque::new(),
            written_bytes: 0,
            results: Results::default(),
            rows: Vec::new(),
            keep,
            skipped: 0,
            rng: Rng::new(seed, "traffic"),
        }
    }

    /// Time of the next message. A writer that waits for the socket needs no
    /// timer: the events of the connection wake it.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.due.filter(|_| self.connected && self.pending == 0 && !self.uploading && !self.awaits_answer())
    }

    /// Writes and reads at `now`.
    pub(super) fn advance(&mut self, now: Instant, vehicle: &mut Endpoint, server: &mut Endpoint) {
        if self.answered {
            self.answer(now, server);
            self.read(now, vehicle.delivered());
            return self.write(now, vehicle);
        }
        let (sender, receiver) = if self.down { (server, vehicle) } else { (vehicle, server) };
        self.read(now, receiver.delivered());
        self.write(now, sender);
    }

    /// The server answers with as many bytes as it has received.
    fn answer(&mut self, now: Instant, server: &mut Endpoint) {
        let requested = server.delivered();
        self.answers += requested - self.requested;
        self.requested = requested;
        if self.answers > 0 {
            self.answers -= server.write(now, self.answers);
        }
    }

    fn awaits_answer(&self) -> bool {
        self.answered && !self.open.is_empty()
    }

    /// Messages, their results, and the number skipped.
    pub(super) fn finish(self) -> (Vec<MessageRow>, Results, u64) {
        (self.rows, self.results, self.skipped)
    }

    fn write(&mut self, now: Instant, sender: &mut Endpoint) {
        self.connected = sender.is_connected();
        if !self.connected {
            return;
        }
        if self.uploading && self.pending == 0 && sender.outstanding() == 0 {
            self.uploading = false;
            self.due = Some(now + self.pause());
        }
        loop {
            if self.pending > 0 && !self.write_pending(now, sender) {
                return;
            }
            if self.uploading || self.awaits_answer() || self.due.is_none_or(|due| due > now) {
                return;
            }
            self.begin(now);
        }
    }

    /// False if the socket accepts no more data.
    fn write_pending(&mut self, now: Instant, sender: &mut Endpoint) -> bool {
        if self.blocked && !sender.is_writeable() {
            return false;
        }
        self.pending -= sender.write(now, self.pending);
        self.blocked = self.pending > 0;
        !self.blocked
    }

    /// Starts the message that is due.
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
        self.pending = size;
        self.written_bytes += size;
        let number = self.results.written;
        self.results.written += 1;
        self.open.push_back(OpenMessage { number, size, end: self.written_bytes, sent: now });
        if self.keep {
            let (sent_ns, size_bytes) = (now.as_nanos(), size as u32);
            self.rows.push(MessageRow { number, sent_ns, written_ns: None, received_ns: None, size_bytes });
        }
    }

    fn read(&mut self, now: Instant, delivered: u64) {
        while let Some(open) = self.open.front().copied().filter(|open| open.end <= delivered) {
            self.open.pop_front();
            self.results.delivered_bytes += open.size;
            self.results.delays.note(now.since(open.sent));
            if let Some(row) = self.rows.get_mut(open.number as usize) {
                row.received_ns = Some(now.as_nanos());
            }
        }
    }

    fn size(&mut self) -> u64 {
        match self.kind {
            TrafficKind::Messages { size_bytes, .. } | TrafficKind::Stream { size_bytes, .. } => u64::from(size_bytes),
            TrafficKind::Bulk | TrafficKind::Deadline(_) => u64::from(BULK_BYTES),
            TrafficKind::Uploads { size_bytes: [min, max], .. } => {
                let factor = libm::pow(max as f64 / min as f64, self.rng.uniform());
                (min as f64 * factor) as u64
            }
        }
    }

    fn pause(&mut self) -> Duration {
        match self.kind {
            TrafficKind::Uploads { pause_s: [min, max], .. } => {
                Duration::from_secs_f64(min + (max - min) * self.rng.uniform())
            }
            _ => Duration::ZERO,
        }
    }
}
