//! Counts what a path carries, from the counter of its interface.
//!
//! The state on the disk is older than the counts. It has a reserve, by which the counts may be ahead of it. After a
//! loss of power the reserve is added: nothing is lost unless more was carried since the state was written. It is
//! written again when half of the reserve is used.

use std::cmp::Reverse;

use chrono::NaiveDate;
use crosslane_core::time::{Duration, Instant};
use crosslane_core::volume::{Limit, Periods, Volume};
use serde::{Deserialize, Serialize};

use super::calendar;

/// Smallest reserve, in bytes.
pub const MIN_RESERVE: u64 = 1_000_000;
/// Time for which the reserve suffices at the present rate, in s.
const RESERVE_S: f64 = 10.0;
/// Time constant of the present rate, in s.
const RATE_S: f64 = 2.0;
/// A reserve that is too large by this factor is replaced, after the pause.
const MAX_SURPLUS: u64 = 4;
/// Shortest time between two states of which the second only has a smaller reserve.
const SHRINK_PAUSE: Duration = Duration::from_secs(10);

/// The counter of an interface: bytes sent and received since it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    pub if_index: u32,
    pub bytes: u64,
}

/// An interface that is still to be created.
const NO_INTERFACE: Reading = Reading { if_index: 0, bytes: 0 };

/// What is kept of a path on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    pub day: Periods,
    pub month: Periods,
    /// Day on which the month begins.
    pub reset_day: u8,
    /// The counter up to which bytes are counted; `None`: from the present one on.
    pub counter: Option<Reading>,
    /// Reserve, in bytes.
    pub ahead: u64,
}

impl Kept {
    /// After a restart of the machine all counters begin at zero, and the reserve may have been used.
    pub fn after_boot(&mut self) {
        self.add_reserve();
        self.counter = Some(NO_INTERFACE);
    }

    fn add_reserve(&mut self) {
        let ahead = std::mem::take(&mut self.ahead);
        self.day.count_last(ahead);
        self.month.count_last(ahead);
    }

    /// Bytes of the present day and month, after these.
    fn count(&mut self, date: NaiveDate, bytes: u64) -> [u64; 2] {
        let month = calendar::month(date, self.reset_day);
        [self.day.count(calendar::day(date), bytes), self.month.count(month, bytes)]
    }
}

/// The limits of a path.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub day: Option<Limit>,
    pub month: Option<Limit>,
    /// Day on which the month begins.
    pub reset_day: u8,
}

/// Bytes of a period, and its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Use {
    /// `day` or `month`.
    pub period: &'static str,
    pub bytes: u64,
    pub limit: Limit,
    /// When the next period begins.
    pub resets: NaiveDate,
}

impl Use {
    pub fn volume(&self) -> Volume {
        self.limit.judge(self.bytes)
    }
}

/// The limited periods of a path; the one of which least is left comes first.
pub fn uses(kept: &Kept, limits: Limits, date: NaiveDate) -> Vec<Use> {
    let [day, month] = kept.clone().count(date, 0);
    let day = limits.day.map(|limit| Use { period: "day", bytes: day, limit, resets: calendar::end_of_day(date) });
    let resets = calendar::end_of_month(date, limits.reset_day);
    let month = limits.month.map(|limit| Use { period: "month", bytes: month, limit, resets });
    let mut uses: Vec<Use> = day.into_iter().chain(month).collect();
    let left = |of: &Use| of.limit.hard.saturating_sub(of.bytes);
    uses.sort_by_key(|of| (Reverse(of.volume()), left(of), Reverse(of.resets)));
    uses
}

/// What is left of the path's volume.
pub fn level(uses: &[Use]) -> Volume {
    uses.iter().map(Use::volume).max().unwrap_or_default()
}

/// Counts the bytes of a path.
#[derive(Debug)]
pub struct Meter {
    limits: Limits,
    kept: Kept,
    /// The reserve of a former agent that is added unless its counter is continued.
    owed: u64,
    /// Bytes counted since the state was written.
    unsaved: u64,
    /// Bytes a second.
    rate: f64,
    checked: Option<Instant>,
    saved: Option<Instant>,
    /// Whether a period or the level has changed since the state was written.
    is_due: bool,
    date: NaiveDate,
    level: Volume,
}

impl Meter {
    /// Continues from what was kept; without it the first counter that is read is the beginning.
    pub fn new(limits: Limits, kept: Option<Kept>, date: NaiveDate) -> Meter {
        let mut kept = kept.unwrap_or(Kept { reset_day: limits.reset_day, ..Kept::default() });
        if kept.reset_day != limits.reset_day {
            // Not less than what was carried since the month began.
            let mut month = Periods::default();
            month.count(calendar::month(date, limits.reset_day), kept.month.bytes());
            (kept.month, kept.reset_day) = (month, limits.reset_day);
        }
        Meter {
            limits,
            owed: kept.ahead,
            kept,
            unsaved: 0,
            rate: 0.0,
            checked: None,
            saved: None,
            is_due: true,
            date,
            level: Volume::Available,
        }
    }

    /// Continues from what was kept instead, with the interface's counter: it has what was counted meanwhile too.
    pub fn continue_from(&mut self, kept: Kept) {
        // The next check compares with the level that is known.
        let level = self.level;
        *self = Meter { level, ..Meter::new(self.limits, Some(kept), self.date) };
    }

    /// Counts up to the present counter, `None`: there is no interface. Returns the level if it has changed.
    pub fn check(&mut self, now: Instant, date: NaiveDate, present: Option<Reading>) -> Option<Volume> {
        let bytes = self.advance(present);
        if let Some(checked) = self.checked.replace(now) {
            let elapsed_s = now.since(checked).as_secs_f64().max(1e-3);
            self.rate += (bytes as f64 / elapsed_s - self.rate) * elapsed_s / (elapsed_s + RATE_S);
        }
        self.unsaved = self.unsaved.saturating_add(bytes);
        self.kept.count(date, bytes);
        self.is_due |= std::mem::replace(&mut self.date, date) != date;
        let level = level(&self.uses());
        let was = std::mem::replace(&mut self.level, level);
        self.is_due |= was != level;
        (was != level).then_some(level)
    }

    /// Bytes since the last check. An interface with another index, or with a counter that has become smaller,
    /// was created again: its counter began at zero.
    fn advance(&mut self, present: Option<Reading>) -> u64 {
        let Some(present) = present else {
            self.kept.counter.get_or_insert(NO_INTERFACE);
            return 0;
        };
        let last = self.kept.counter.replace(present);
        let owed = std::mem::take(&mut self.owed);
        match last {
            None => 0,
            Some(last) if last.if_index == present.if_index && last.bytes <= present.bytes => {
                present.bytes - last.bytes
            }
            Some(_) => present.bytes.saturating_add(owed),
        }
    }

    /// Whether the state is to be written.
    pub fn is_due(&self, now: Instant) -> bool {
        let is_surplus = self.kept.ahead > MAX_SURPLUS * self.reserve()
            && self.saved.is_none_or(|saved| now.since(saved) >= SHRINK_PAUSE);
        self.is_due || self.unsaved > self.kept.ahead / 2 || is_surplus
    }

    /// What is to be written, with a reserve.
    pub fn save(&mut self, now: Instant) -> Kept {
        self.kept.ahead = self.reserve().max(self.owed);
        (self.unsaved, self.saved, self.is_due) = (0, Some(now), false);
        self.kept.clone()
    }

    /// What is to be written at the end of the program, without a reserve.
    pub fn finish(&mut self) -> Kept {
        self.kept.ahead = self.owed;
        self.kept.clone()
    }

    fn reserve(&self) -> u64 {
        MIN_RESERVE.max((self.rate * RESERVE_S) as u64)
    }

    /// The limited periods.
    pub fn uses(&self) -> Vec<Use> {
        uses(&self.kept, self.limits, self.date)
    }

    pub fn level(&self) -> Volume {
        self.level
    }
}

#[cfg(test)]
mod tests;
