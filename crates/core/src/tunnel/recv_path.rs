//! The receiving side of one path: path sequence numbers received, and the report about them.
//!
//! A path may reorder. A report covers the packets before the first gap that a late packet may still fill, so
//! that jitter is not reported as loss: a gap is a loss once it is older than the recent lateness of late
//! packets on this path (as the reordering window of RACK, RFC 8985, section 6.2). Time and counts in a report
//! are those of the arrival of the newest packet that it covers.
//!
//! A report waits for a packet of this endpoint that can carry it in its short form ([`RecvPath::may_ride`]), and is
//! due as a message if there is none.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::wire::control_message::{MAX_MISSING_RANGES, PathReport};
use super::wire::gre_key::{NUMBER_BITS, unwrap};
use super::wire::path_feedback::PathFeedback;
use crate::path::{PathId, PathState};
use crate::recent::{RecentMax, push_recent};
use crate::time::{Duration, Instant};

/// Minimum time between two reports that are due only to arrived packets.
const MIN_REPORT_INTERVAL: Duration = Duration::from_millis(2);
/// Number of packets that make a report due after [`MIN_REPORT_INTERVAL`].
const REPORT_PACKETS: u32 = 4;
/// Maximum time from the arrival of a packet to its report.
pub(super) const MAX_REPORT_DELAY: Duration = Duration::from_millis(8);
/// Minimum time from a report to one that a packet carries: at high rates messages report sooner, and on all
/// paths.
const MIN_RIDE_INTERVAL: Duration = MAX_REPORT_DELAY;
/// Time for which a report that is due waits for a packet that can carry it.
const RIDE_GRACE: Duration = Duration::from_millis(1);
/// The longest packet whose report may be late, in bytes without the tunnel's headers: TCP's acknowledgements are
/// not longer.
pub(super) const LATE_REPORT_BYTES: u32 = 80;
/// Such a packet is reported by the first packet of this endpoint after this time, and at the latest after
/// [`LATE_REPORT_DELAY`].
const LATE_RIDE_AFTER: Duration = Duration::from_millis(70);
const LATE_REPORT_DELAY: Duration = Duration::from_millis(100);
/// As [`REPORT_PACKETS`], if the report on each of them may be late.
const LATE_REPORT_PACKETS: u32 = 16;
/// What that adds to the usual delay of a report.
pub(super) const LENIENCY: Duration = LATE_REPORT_DELAY.saturating_sub(MAX_REPORT_DELAY);
/// Number of reports that repeat a range of missing packets, since reports may be lost.
const MAX_RANGE_REPORTS: u8 = 4;
/// After a restart of the sender, packets of its previous instance may arrive for this time.
pub(super) const RESTART_GRACE: Duration = Duration::from_secs(2);
/// This number of consecutive packets older than the newest come from the restarted sender.
pub(super) const OLDER_IN_A_ROW: u8 = 8;
/// Maximum lateness of a packet that is not a loss.
const MAX_REORDERING: Duration = Duration::from_millis(100);
/// Maximum number of gaps that late packets may still fill: 100 ms of jitter at 100 Mbit/s.
const MAX_GAPS: usize = 1024;
/// A jump ahead by more than this is a restart of numbering, not a loss.
const FAR_AHEAD: u64 = 1 << 16;

/// What had arrived at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Arrived {
    at: Instant,
    packets: u32,
    bytes: u32,
}

/// Packets that have not arrived although a later one has.
#[derive(Clone, Copy, Debug)]
struct Gap {
    first: u64,
    length: u16,
    /// Arrival of the packet after it.
    since: Instant,
    /// When the packet before it arrived.
    before: Arrived,
}

impl Gap {
    /// What is left of it before and after a packet that fills it; `None` if the packet does not.
    fn without(self, number: u64, arrived: Arrived) -> Option<[Option<Gap>; 2]> {
        let before = u16::try_from(number.checked_sub(self.first)?).ok().filter(|before| *before < self.length)?;
        let after = self.length - before - 1;
        Some([
            (before > 0).then_some(Gap { length: before, ..self }),
            (after > 0).then_some(Gap { first: number + 1, length: after, before: arrived, ..self }),
        ])
    }
}

/// How soon a packet is reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Urgency {
    /// Whether a packet of this endpoint may soon carry the report.
    pub may_ride: bool,
    /// Whether the report may be late, since the peer allows for that.
    pub may_be_late: bool,
}

/// Lost packets, and the number of reports about them.
#[derive(Clone, Copy, Debug)]
struct MissingRange {
    gap: Gap,
    reports: u8,
}

/// The receiving side of a path.
#[derive(Debug, Default)]
pub(super) struct RecvPath {
    highest: Option<u64>,
    /// When the highest arrived.
    arrived_at: Instant,
    /// What the last report said.
    reported: Option<Instant>,
    covered: Arrived,
    packets: u32,
    bytes: u32,
    /// Gaps that late packets may still fill, the oldest first.
    gaps: VecDeque<Gap>,
    missing: VecDeque<MissingRange>,
    lateness: RecentMax<Duration, 4>,
    unreported: u32,
    pending_since: Option<Instant>,
    /// The same of packets whose report may not be late.
    prompt_since: Option<Instant>,
    /// Whether the report waits a moment for a packet that can carry it.
    waits_for_ride: bool,
    /// When a packet arrived whose report may not be late.
    pub last_prompt: Option<Instant>,
    request_immediate_feedback: bool,
    /// Until when old sequence numbers may come from a previous instance of the sender, and the number of
    /// consecutive older packets.
    restart_grace_until: Instant,
    older_in_a_row: u8,
}

impl RecvPath {
    /// State after a restart of the sender; packets of its previous instance may still arrive.
    pub(super) fn after_sender_restart(now: Instant) -> RecvPath {
        RecvPath { restart_grace_until: now + RESTART_GRACE, ..RecvPath::default() }
    }

    /// Records an arrived packet; false for a duplicate.
    pub(super) fn take(&mut self, now: Instant, number: u32, bytes: u32, urgency: Urgency) -> bool {
        let (number, next) = match self.highest {
            Some(highest) => (unwrap(highest, number, NUMBER_BITS), highest.saturating_add(1)),
            None => (u64::from(number), u64::from(number)),
        };
        if number >= next {
            self.note_gap(now, next, number - next);
            (self.highest, self.arrived_at, self.older_in_a_row) = (Some(number), now, 0);
        } else if now < self.restart_grace_until && self.older_in_a_row >= OLDER_IN_A_ROW {
            self.missing.clear();
            self.gaps.clear();
            (self.highest, self.arrived_at, self.older_in_a_row) = (Some(number), now, 0);
        } else if !self.fill(now, number) {
            self.older_in_a_row = self.older_in_a_row.saturating_add(1);
            return false;
        }
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes);
        self.unreported = self.unreported.saturating_add(1);
        self.pending_since.get_or_insert(now);
        self.waits_for_ride = urgency.may_ride;
        if !urgency.may_be_late {
            self.prompt_since.get_or_insert(now);
        }
        self.take_losses(now);
        true
    }

    /// Makes the next report due at once.
    pub(super) fn request_immediate_feedback(&mut self, now: Instant) {
        self.request_immediate_feedback = true;
        self.pending_since.get_or_insert(now);
    }

    /// Whether the next report has anything new to say, or will have after a gap.
    pub(super) fn has_news(&self) -> bool {
        self.pending_since.is_some() || !self.gaps.is_empty()
    }

    /// Since when the report waits.
    pub(super) fn pending_since(&self) -> Option<Instant> {
        self.pending_since
    }

    /// What had arrived with the highest, and after it up to now.
    fn arrived(&self) -> Arrived {
        Arrived { at: self.arrived_at, packets: self.packets, bytes: self.bytes }
    }

    fn note_gap(&mut self, now: Instant, first: u64, length: u64) {
        if length == 0 || length > FAR_AHEAD {
            return;
        }
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        let gap = Gap { first, length, since: now, before: self.arrived() };
        push_recent(&mut self.gaps, MAX_GAPS, gap);
    }

    /// How long a gap may still be filled.
    fn reordering_window(&self, now: Instant) -> Duration {
        self.lateness.recent(now).map_or(Duration::ZERO, |late| (late * 5 / 4).min(MAX_REORDERING))
    }

    /// Takes the gaps that are too old to be filled for losses.
    fn take_losses(&mut self, now: Instant) {
        let window = self.reordering_window(now);
        while let Some(gap) = self.gaps.front().filter(|gap| now >= gap.since + window) {
            if self.missing.len() == MAX_MISSING_RANGES {
                if self.missing.front().is_some_and(|oldest| oldest.reports == 0) {
                    break;
                }
                self.missing.pop_front();
            }
            self.missing.push_back(MissingRange { gap: *gap, reports: 0 });
            self.gaps.pop_front();
            self.request_immediate_feedback(now);
        }
    }

    /// Removes a late packet from the gaps or the losses; false if it was in neither.
    fn fill(&mut self, now: Instant, number: u64) -> bool {
        let arrived = Arrived { at: now, ..self.arrived() };
        let gaps = self.gaps.iter().copied().enumerate();
        let mut found = gaps.map(|(index, gap)| (index, gap, gap.without(number, arrived)));
        let since = if let Some((index, gap, Some(rest))) = found.find(|(.., rest)| rest.is_some()) {
            self.gaps.remove(index);
            rest.into_iter().rev().flatten().for_each(|gap| self.gaps.insert(index, gap));
            gap.since
        } else {
            let ranges = self.missing.iter().copied().enumerate();
            let mut found = ranges.map(|(index, range)| (index, range, range.gap.without(number, arrived)));
            let Some((index, range, Some(rest))) = found.find(|(.., rest)| rest.is_some()) else { return false };
            self.missing.remove(index);
            let rest = rest.into_iter().rev().flatten();
            rest.for_each(|gap| self.missing.insert(index, MissingRange { gap, ..range }));
            self.missing.truncate(MAX_MISSING_RANGES);
            range.gap.since
        };
        self.lateness.note(now, now.since(since));
        true
    }

    /// When the next report is due.
    pub(super) fn due(&self) -> Option<Instant> {
        // The window at that time is no longer than at the time of the gap.
        let loss = self.gaps.front().map(|gap| gap.since + self.reordering_window(gap.since));
        self.feedback_due().into_iter().chain(loss).min()
    }

    fn feedback_due(&self) -> Option<Instant> {
        let since = self.pending_since?;
        if self.request_immediate_feedback {
            return Some(since);
        }
        let grace = if self.waits_for_ride { RIDE_GRACE } else { Duration::ZERO };
        let soon = self.reported.map_or(since, |last| (last + MIN_REPORT_INTERVAL).max(since)) + grace;
        if self.are_many() {
            return Some(soon);
        }
        let prompt = self.prompt_since.map(|since| since + MAX_REPORT_DELAY);
        prompt.into_iter().chain([since + LATE_REPORT_DELAY]).min()
    }

    /// Whether so many packets arrived that they are reported soon.
    fn are_many(&self) -> bool {
        self.unreported >= if self.prompt_since.is_some() { REPORT_PACKETS } else { LATE_REPORT_PACKETS }
    }

    /// Whether a packet sent now may carry the report: no loss is to be reported, and the last report is not
    /// too recent.
    pub(super) fn may_ride(&self, now: Instant) -> bool {
        let Some(since) = self.pending_since else { return false };
        let is_soon = self.prompt_since.is_some() || self.are_many();
        let waits = self.reported.map_or(since, |last| last + MIN_RIDE_INTERVAL);
        let at = if is_soon { waits } else { since + LATE_RIDE_AFTER };
        now >= at && !self.request_immediate_feedback && self.missing.is_empty()
    }

    /// The report in its short form, for a packet sent now.
    pub(super) fn ride(&mut self, now: Instant, path: PathId, check: u8) -> Option<PathFeedback> {
        self.take_losses(now);
        if !self.missing.is_empty() {
            return None;
        }
        PathFeedback::of(&self.report(now, path, PathState::Active, 0)?, check)
    }

    /// The report to send now; `None` before the first packet. It covers the packets before the first gap.
    pub(super) fn report(
        &mut self,
        now: Instant,
        path: PathId,
        wanted_state: PathState,
        rank: u8,
    ) -> Option<PathReport> {
        self.take_losses(now);
        (self.unreported, self.request_immediate_feedback) = (0, false);
        (self.pending_since, self.prompt_since) = (None, None);
        let (highest, arrived) = match self.gaps.front() {
            Some(gap) => (gap.first - 1, gap.before),
            None => (self.highest?, self.arrived()),
        };
        if arrived.at >= self.covered.at {
            self.covered = arrived;
        }
        let missing: Vec<(u32, u16)> =
            self.missing.iter().map(|MissingRange { gap, .. }| (gap.first as u32, gap.length)).collect();
        self.missing.iter_mut().for_each(|range| range.reports += 1);
        self.missing.retain(|range| range.reports < MAX_RANGE_REPORTS);
        self.reported = Some(now);
        Some(PathReport {
            path,
            wanted_state,
            rank,
            is_overdue: false,
            highest: highest as u32,
            arrival_us: (self.covered.at.as_nanos() / 1000) as u32,
            held_us: u32::try_from(now.since(self.covered.at).as_micros()).unwrap_or(u32::MAX),
            packets: self.covered.packets,
            bytes: self.covered.bytes,
            missing,
        })
    }
}

#[cfg(test)]
mod tests;
