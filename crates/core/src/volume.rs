//! The data volume of a path: how much it may carry in a day and in a month.
//!
//! The agent counts the bytes of a path's interface by period. A path of which little is left
//! is spared: it carries only while no other path is good. One whose volume is used up carries
//! nothing until the next period.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Periods that are kept.
const KEPT: usize = 3;

/// What is left of a path's volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Volume {
    /// Enough, or it has no limit.
    #[default]
    Available,
    /// Little: it carries only while no other path is good.
    Scarce,
    /// Nothing: it carries nothing.
    Exhausted,
}

impl Volume {
    /// The name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Volume::Available => "available",
            Volume::Scarce => "scarce",
            Volume::Exhausted => "exhausted",
        }
    }
}

/// The limit of a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Bytes from which on the path is spared.
    pub soft: u64,
    /// Bytes from which on it carries nothing.
    pub hard: u64,
}

impl Limit {
    /// What is left after this number of bytes.
    pub fn judge(self, bytes: u64) -> Volume {
        match bytes {
            bytes if bytes >= self.hard => Volume::Exhausted,
            bytes if bytes >= self.soft => Volume::Scarce,
            _ => Volume::Available,
        }
    }
}

/// The bytes of the last periods, each with its number.
///
/// A clock may be wrong. A vehicle without a battery for its clock starts with a date of the past, which may be
/// the one of the period before the last: the bytes count for the last period, as do those of a date before all
/// known periods. A date two or more periods before the last one, but not before all, shows that the clock was
/// ahead: the present period goes on where it was, with the bytes that were counted for later ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Periods(Vec<(i32, u64)>);

impl Periods {
    /// Counts bytes in a period; returns the number of bytes in it.
    pub fn count(&mut self, period: i32, bytes: u64) -> u64 {
        let is_known = self.0.first().is_none_or(|(oldest, _)| period >= *oldest);
        let was_ahead = is_known && self.0.last().is_some_and(|(last, _)| period < last.saturating_sub(1));
        let mut later = 0_u64;
        if was_ahead {
            self.0.retain(|(known, counted)| {
                let is_later = *known > period;
                later = later.saturating_add(if is_later { *counted } else { 0 });
                !is_later
            });
        }
        if self.0.last().is_none_or(|(last, _)| *last < period) {
            self.0.push((period, 0));
            let surplus = self.0.len().saturating_sub(KEPT);
            self.0.drain(..surplus);
        }
        self.count_last(bytes.saturating_add(later));
        self.bytes()
    }

    /// Counts bytes for the last period; without one they are not counted.
    pub fn count_last(&mut self, bytes: u64) {
        if let Some((_, total)) = self.0.last_mut() {
            *total = total.saturating_add(bytes);
        }
    }

    /// The bytes of the last period.
    pub fn bytes(&self) -> u64 {
        self.0.last().map_or(0, |(_, bytes)| *bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_begins_at_zero_and_the_former_one_is_kept_for_a_while() {
        let mut periods = Periods::default();
        assert_eq!((periods.count(10, 5), periods.count(10, 6), periods.count(11, 1)), (5, 11, 1));
        assert_eq!((periods.count(12, 0), periods.count(13, 2), periods.bytes()), (0, 2, 2));
        assert_eq!(periods.0, [(11, 1), (12, 0), (13, 2)]);
        assert_eq!(periods.count(13, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_clock_that_is_not_set_counts_for_the_last_period() {
        let mut periods = Periods::default();
        periods.count(20_000, 100);
        assert_eq!((periods.count(0, 1), periods.count(20_000, 1), periods.count(20_001, 1)), (101, 102, 1));
    }

    #[test]
    fn a_clock_that_starts_a_period_late_loses_nothing() {
        let mut periods = Periods::default();
        periods.count(100, 7);
        assert_eq!((periods.count(101, 5), periods.count(100, 1), periods.count(101, 1)), (5, 6, 7));
        assert_eq!(periods.0, [(100, 7), (101, 7)]);
    }

    #[test]
    fn a_jump_into_the_future_and_back_loses_nothing() {
        let mut periods = Periods::default();
        periods.count(100, 7);
        assert_eq!((periods.count(5000, 1), periods.count(100, 1)), (1, 9));
        assert_eq!((periods.count(5000, 1), periods.count(101, 2), periods.count(102, 3)), (1, 3, 3));
        assert_eq!(periods.0, [(100, 9), (101, 3), (102, 3)]);
    }

    #[test]
    fn bytes_from_before_a_restart_count_for_the_last_period() {
        let mut periods = Periods::default();
        periods.count_last(9);
        assert_eq!(periods, Periods::default(), "there is none yet");
        periods.count(100, 7);
        periods.count_last(2);
        assert_eq!((periods.bytes(), periods.count(i32::MIN, 0), periods.count(i32::MAX, 1)), (9, 9, 1));
    }

    #[test]
    fn a_path_is_spared_before_its_volume_is_used_up() {
        let limit = Limit { soft: 80, hard: 100 };
        let judged = [0, 79, 80, 99, 100, u64::MAX].map(|bytes| limit.judge(bytes));
        let (all, little, nothing) = (Volume::Available, Volume::Scarce, Volume::Exhausted);
        assert_eq!(judged, [all, all, little, little, nothing, nothing]);
        assert!(all < little && little < nothing);
    }
}
