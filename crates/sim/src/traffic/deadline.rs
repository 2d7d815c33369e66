//! Objects that are generated periodically, each with a deadline, sent by the
//! transfer engine.

use crosslane_core::demand;
use crosslane_core::rng::Rng;
use crosslane_core::time::{Duration, Instant};
use crosslane_core::transfer::Late;
use crosslane_core::transfer::frame::{END_BYTES, PREFACE};
use crosslane_core::transfer::sender::{self, Sender};
use serde::Serialize;
use toml::Table;

use super::keys::{Fault, Keys, table};
use super::{Source, Span, TrafficKind, Write};

pub(super) const KEYS: [&str; 5] = ["object_bytes", "period_s", "deadline_s", "objects", "late"];

/// Maximum period and deadline, in s.
const MAX_S: f64 = 3600.0;
/// Maximum random delay of the first object, in s. By this the seeds of a world
/// without randomness differ.
const PHASE_S: f64 = 1.0;

/// Objects that are generated periodically, each with a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DeadlineTraffic {
    /// Size of an object, in bytes (1,000 to 10⁹).
    pub object_bytes: u64,
    /// Period, in s (above 0, at most 3600).
    pub period_s: f64,
    /// Time from an object's generation to its last byte read, in s (above 0, at
    /// most 3600).
    pub deadline_s: f64,
    /// Maximum number of objects.
    pub objects: u32,
    /// Handling of an object after its deadline.
    pub late: Late,
}

/// Generation times of the objects.
#[derive(Clone, Copy, Debug)]
pub struct Starts {
    next: Instant,
    stop: Instant,
    period: Duration,
    remaining: u32,
}

impl DeadlineTraffic {
    pub(super) fn read(keys: &mut Keys) -> Result<DeadlineTraffic, Fault> {
        let object_bytes = keys.whole("object_bytes", 1_000..=1_000_000_000, None)?;
        let (period_s, deadline_s) = (keys.above_zero("period_s", MAX_S)?, keys.above_zero("deadline_s", MAX_S)?);
        let objects = keys.whole("objects", 1..=u32::MAX, Some(u32::MAX))?;
        let late = keys.take("late")?.unwrap_or_default();
        Ok(DeadlineTraffic { object_bytes, period_s, deadline_s, objects, late })
    }

    /// Generation times of the objects of a run.
    pub fn starts(&self, span: Span, seed: u64) -> Starts {
        let start_s = span.start.as_secs_f64() + PHASE_S * Rng::new(seed, "objects").uniform();
        Starts {
            next: Instant::from_secs_f64(start_s),
            stop: span.stop,
            period: Duration::from_secs_f64(self.period_s),
            remaining: self.objects,
        }
    }

    /// Time from an object's generation to its deadline.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs_f64(self.deadline_s)
    }
}

impl Starts {
    /// The next one.
    fn due(&self) -> Option<Instant> {
        (self.next < self.stop && self.remaining > 0).then_some(self.next)
    }
}

impl Iterator for Starts {
    type Item = Instant;

    fn next(&mut self) -> Option<Instant> {
        let start = self.due()?;
        self.remaining -= 1;
        self.next = start + self.period;
        Some(start)
    }
}

impl TrafficKind for DeadlineTraffic {
    fn name(&self) -> &'static str {
        "deadline"
    }

    fn parameters(&self) -> Table {
        table(self)
    }

    fn source(&self, span: Span, seed: u64) -> Box<dyn Source> {
        let (starts, sender) = (self.starts(span, seed), Sender::new(self.late));
        Box::new(Objects { rules: *self, starts, sender, begun: false, skipped: 0 })
    }

    fn deadlines(&self) -> Option<DeadlineTraffic> {
        Some(*self)
    }
}

#[derive(Debug)]
struct Objects {
    rules: DeadlineTraffic,
    /// Generation times of the next object and of those after it.
    starts: Starts,
    sender: Sender,
    /// The preface is written.
    begun: bool,
    skipped: u64,
}

impl Source for Objects {
    /// Objects are written as soon as the connection accepts them.
    fn next_write(&self) -> Option<Instant> {
        None
    }

    fn poll(&mut self, _now: Instant) -> Option<Write> {
        if !std::mem::replace(&mut self.begun, true) {
            return Some(Write::Part { bytes: PREFACE.len() as u64, ends: None });
        }
        let (write, bytes) = self.sender.poll()?;
        let ends = match write {
            sender::Write::Chunk { number, last: true, .. } => Some((number.into(), END_BYTES as u64)),
            _ => None,
        };
        Some(Write::Part { bytes, ends })
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }

    fn on_outstanding(&mut self, _now: Instant, bytes: u64) {
        self.sender.set_outstanding(bytes);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.starts.due().into_iter().chain(self.sender.next_wakeup()).min()
    }

    fn generate(&mut self, now: Instant) -> Option<(Instant, u64)> {
        let size_bytes = self.rules.object_bytes;
        while let Some(at) = self.starts.due().filter(|due| *due <= now) {
            self.starts.next();
            if self.sender.submit("", size_bytes, at, Some(at + self.rules.deadline())).is_some() {
                return Some((at, size_bytes));
            }
            self.skipped += 1;
        }
        while self.sender.poll_late(now).is_some() {}
        None
    }

    fn set_backlog(&mut self, bytes: Option<u64>) {
        self.sender.set_backlog(bytes);
    }

    fn demand(&mut self, always: bool) -> Option<Vec<demand::Object>> {
        (self.sender.take_changed() || always).then(|| self.sender.demand())
    }
}
