//! Objects that are generated periodically, each with a deadline, sent by the
//! transfer engine.

use std::collections::BTreeMap;

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

pub(super) const KEYS: [&str; 7] =
    ["object_bytes", "min_object_bytes", "period_s", "deadline_s", "objects", "droppable_every", "late"];

/// Least size of an object, in bytes.
const MIN_BYTES: u64 = 1_000;
/// Minimum period, and maximum period and deadline, in s.
const MIN_PERIOD_S: f64 = 0.001;
const MAX_S: f64 = 3600.0;
/// Maximum random delay of the first object, in s. By this the seeds of a world
/// without randomness differ.
const PHASE_S: f64 = 1.0;
/// Factor on the size of objects after a late one.
const DECREASE: f64 = 0.8;
/// Part of the range of sizes that an object in good time adds: 10 s from the least to the greatest at 25 a second.
const INCREASE: f64 = 0.004;
/// An object is in good time in this part of the time that it has.
const GOOD_TIME: f64 = 2.0 / 3.0;
/// Objects without a result that are remembered.
const MAX_AWAITED: usize = 1024;

/// Objects that are generated periodically, each with a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DeadlineTraffic {
    /// Size of an object, in bytes (1,000 to 10⁹).
    pub object_bytes: u64,
    /// Least size to which a sender that adapts reduces them, in bytes (1,000 to `object_bytes`); `None`: it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_object_bytes: Option<u64>,
    /// Period, in s (0.001 to 3600).
    pub period_s: f64,
    /// Time from an object's generation to its last byte read, in s (above 0, at
    /// most 3600).
    pub deadline_s: f64,
    /// Maximum number of objects.
    pub objects: u32,
    /// Every n-th object is dropped rather than sent late, for this n (from 1 on); `None`: none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub droppable_every: Option<u32>,
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
        let object_bytes = keys.within("object_bytes", MIN_BYTES..=1_000_000_000, None)?;
        let period_s = keys.within("period_s", MIN_PERIOD_S..=MAX_S, None)?;
        let deadline_s = keys.above_zero("deadline_s", MAX_S)?;
        let objects = keys.within("objects", 1..=u32::MAX, Some(u32::MAX))?;
        let late = keys.take("late")?.unwrap_or_default();
        let min_object_bytes = Some(keys.within("min_object_bytes", MIN_BYTES..=object_bytes, Some(object_bytes))?);
        let min_object_bytes = min_object_bytes.filter(|bytes| *bytes < object_bytes);
        let droppable_every = Some(keys.within("droppable_every", 1..=u32::MAX, Some(u32::MAX))?);
        let droppable_every = droppable_every.filter(|every| *every < u32::MAX);
        Ok(DeadlineTraffic { object_bytes, min_object_bytes, period_s, deadline_s, objects, droppable_every, late })
    }

    /// Whether the object of this number, from 0 on, is dropped rather than sent late.
    pub fn is_droppable(&self, number: u64) -> bool {
        self.droppable_every.is_some_and(|every| (number + 1).is_multiple_of(every.into()))
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

/// The size of each object: it adapts to how late those before were, if the traffic has a least size, as the encoder of a
/// camera does.
#[derive(Clone, Debug)]
pub struct Sizes {
    rules: DeadlineTraffic,
    bytes: f64,
    /// When it was last reduced.
    reduced: Instant,
    /// Generation times of the objects without a result, by number.
    awaited: BTreeMap<u64, Instant>,
}

impl Sizes {
    /// Those of a run: the least at first, if there is one.
    pub fn new(rules: DeadlineTraffic) -> Sizes {
        let bytes = rules.min_object_bytes.unwrap_or(rules.object_bytes) as f64;
        Sizes { rules, bytes, reduced: Instant::ZERO, awaited: BTreeMap::new() }
    }

    /// The rules of its traffic.
    pub fn rules(&self) -> &DeadlineTraffic {
        &self.rules
    }

    /// The size of an object that is generated now, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// The object of this number is sent.
    pub fn begin(&mut self, number: u64, start: Instant) {
        if self.rules.min_object_bytes.is_some() && self.awaited.len() < MAX_AWAITED {
            self.awaited.insert(number, start);
        }
    }

    /// An object has arrived, or is abandoned. A late one reduces the next ones, once for all that were on their way.
    pub fn on_result(&mut self, now: Instant, number: u64, has_arrived: bool) {
        let (Some(start), Some(min)) = (self.awaited.remove(&number), self.rules.min_object_bytes) else { return };
        let (min, max) = (min as f64, self.rules.object_bytes as f64);
        let part = now.since(start).as_secs_f64() / self.rules.deadline_s;
        if (!has_arrived || part > 1.0) && start >= self.reduced {
            (self.bytes, self.reduced) = ((self.bytes * DECREASE).max(min), now);
        } else if has_arrived && part < GOOD_TIME {
            self.bytes = (self.bytes + INCREASE * (max - min)).min(max);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: DeadlineTraffic = DeadlineTraffic {
        object_bytes: 100_000,
        min_object_bytes: Some(20_000),
        period_s: 0.04,
        deadline_s: 0.15,
        objects: u32::MAX,
        droppable_every: Some(3),
        late: Late::GiveUp,
    };

    #[test]
    fn sizes_grow_while_objects_are_in_good_time_and_a_late_one_reduces_them_once() {
        let mut sizes = Sizes::new(RULES);
        assert_eq!(sizes.bytes(), 20_000);
        let at = |number: u64| Instant::from_millis(40 * number);
        for number in 0..300 {
            sizes.begin(number, at(number));
            sizes.on_result(at(number) + Duration::from_millis(60), number, true);
        }
        assert_eq!(sizes.bytes(), 100_000);
        (300..303).for_each(|number| sizes.begin(number, at(number)));
        sizes.on_result(at(303), 300, false);
        sizes.on_result(at(306), 301, true);
        // Arrived in time, and not in good time.
        sizes.on_result(at(305), 302, true);
        assert_eq!(sizes.bytes(), 80_000);
    }

    #[test]
    fn without_a_least_size_it_is_constant_and_every_third_object_may_be_dropped() {
        let mut sizes = Sizes::new(DeadlineTraffic { min_object_bytes: None, ..RULES });
        sizes.begin(0, Instant::ZERO);
        sizes.on_result(Instant::from_millis(900), 0, false);
        assert_eq!(sizes.bytes(), 100_000);
        assert_eq!((0..7).filter(|number| RULES.is_droppable(*number)).collect::<Vec<_>>(), [2, 5]);
    }
}
