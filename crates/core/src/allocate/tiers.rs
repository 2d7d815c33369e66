//! Which of the good paths carry, in the user's order.
//!
//! Paths of the same rank are one tier. In the mode [`CostFirst`](Mode::CostFirst) the first
//! good tier carries alone until it is full; then the next one carries too. Upstream MPTCP cannot
//! send only the excess there: with both active, the kernel's scheduler decides. The last tier
//! is in reserve again when the one before it has not been full for the hold time. Then the load
//! is less, or the scheduler has moved it to the last tier. In the second case the other tiers
//! are soon full again: if that is within the hold time, the next one is twice as long.

use alloc::format;
use alloc::vec::Vec;

use super::fullness::{FULL, Fullness};
use super::least_delay::LeastDelay;
use super::{Mode, PathInput, PathSupply};
use crate::assess::Belief;
use crate::path::PathState;
use crate::reason::Reason;
use crate::time::{Duration, Instant};

/// First hold time: a sender that pauses for less has not less data.
const HOLD: Duration = Duration::from_secs(2);
/// Longest hold time: for as long the last tier may carry what the others could.
const MAX_HOLD: Duration = Duration::from_secs(60);

/// The tiers of one allocator.
#[derive(Clone, Debug)]
pub(super) struct Tiers {
    mode: Mode,
    /// Rank of the last tier that was opened; `None`: only the first good one carries.
    last: Option<u8>,
    /// When that changed.
    changed: Instant,
    hold: Duration,
    /// When a tier was put in reserve, unless one has been opened since.
    returned: Option<Instant>,
    /// Of each path.
    full: Vec<Fullness>,
    /// When the last tier is put in reserve if the one before it is not full until then.
    return_at: Option<Instant>,
    least_delay: LeastDelay,
}

impl Tiers {
    pub(super) fn new(mode: Mode) -> Tiers {
        let (last, changed, returned, return_at) = (None, Instant::ZERO, None, None);
        let (full, least_delay) = (Vec::new(), LeastDelay::default());
        Tiers { mode, last, changed, hold: HOLD, returned, full, return_at, least_delay }
    }

    /// How the paths are used together from now on.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Whether a path carries while it is good. If none of these is good, the first one that is
    /// good carries.
    pub(super) fn is_on(&self, place: usize, path: &PathInput) -> bool {
        match self.mode {
            Mode::Aggregate => true,
            Mode::Interactive => self.least_delay.chosen() == Some(place),
            Mode::Backup | Mode::CostFirst => self.last.is_some_and(|last| path.rank <= last),
        }
    }

    /// Whether the load decides which paths carry.
    pub(super) fn needs_review(&self) -> bool {
        matches!(self.mode, Mode::CostFirst | Mode::Interactive)
    }

    /// Reviews the load of the paths that carry; returns a reason if more or fewer are to carry.
    /// `inputs` has the beliefs and ranks that apply, `paths` the measurements.
    pub(super) fn review(&mut self, now: Instant, inputs: &[PathInput], paths: &[PathSupply]) -> Option<Reason> {
        match self.mode {
            Mode::CostFirst => {}
            Mode::Interactive => return self.least_delay.review(now, inputs, paths),
            Mode::Aggregate | Mode::Backup => return None,
        }
        self.full.resize_with(paths.len(), Fullness::default);
        let active = || (0..inputs.len()).filter(|place| inputs[*place].was == PathState::Active);
        active().for_each(|place| self.full[place].observe(now, paths[place].latest));
        let of_tier = |rank: u8| active().filter(move |place| inputs[*place].rank == rank);
        let mut carrying: Vec<u8> = active().map(|place| inputs[place].rank).collect();
        carrying.sort_unstable();
        carrying.dedup();
        let &end = carrying.last()?;
        let good = inputs.iter().filter(|path| path.belief == Belief::Good).map(|path| path.rank);
        if let Some(next) = good.filter(|rank| *rank > end && self.last.is_none_or(|last| last <= end)).min()
            && of_tier(end).any(|place| self.full[place].lasts(now))
        {
            return Some(self.spill(now, next));
        }
        let last = self.last?;
        carrying.retain(|rank| *rank < last);
        let kept = carrying.last().copied().unwrap_or(end);
        let full = of_tier(kept).filter_map(|place| self.full[place].last()).max();
        let return_at = full.map_or(self.changed, |full| full.max(self.changed)) + self.hold;
        self.return_at = Some(return_at);
        (now >= return_at).then(|| self.put_back(now, carrying.get(1..).and_then(<[u8]>::last).copied()))
    }

    /// When to [review](Self::review) if no sample arrives.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.return_at.or_else(|| self.least_delay.next_wakeup())
    }

    /// Opens the tier of a rank.
    fn spill(&mut self, now: Instant, rank: u8) -> Reason {
        if let Some(returned) = self.returned.take() {
            let is_soon = now < returned + self.hold;
            self.hold = if is_soon { self.hold.saturating_mul(2).min(MAX_HOLD) } else { HOLD };
        }
        (self.last, self.changed) = (Some(rank), now);
        let text = format!("the sender has had more data than the paths in use take for {} ms", FULL.as_millis());
        Reason::plain("cost-first.spill", text)
    }

    /// Puts the last tier in reserve, so that the one of this rank is the last.
    fn put_back(&mut self, now: Instant, rank: Option<u8>) -> Reason {
        (self.last, self.changed, self.returned, self.return_at) = (rank, now, Some(now), None);
        let text = format!("the preferred paths have had room for {} s", self.hold.as_secs());
        Reason::plain("cost-first.return", text).with([("hold_s", self.hold.as_secs_f64())])
    }
}

#[cfg(test)]
mod tests;
