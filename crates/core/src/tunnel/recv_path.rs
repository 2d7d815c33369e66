//! The receiving side of one path: path sequence numbers received, and the report about them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::wire::control_message::{MAX_MISSING_RANGES, PathReport};
use super::wire::gre_key::unwrap;
use crate::path::{PathId, PathState};
use crate::time::{Duration, Instant};

/// Minimum time between two reports that are due only to arrived packets.
const MIN_REPORT_INTERVAL: Duration = Duration::from_millis(2);
/// Number of packets that make a report due after [`MIN_REPORT_INTERVAL`].
const REPORT_PACKETS: u32 = 4;
/// Maximum time from the arrival of a packet to its report.
const MAX_REPORT_DELAY: Duration = Duration::from_millis(8);
/// Number of reports that repeat a range of missing packets, since reports may be lost.
const MAX_RANGE_REPORTS: u8 = 4;
/// After a restart of the sender, packets of its previous instance may arrive for this time.
pub(super) const RESTART_GRACE: Duration = Duration::from_secs(2);
/// This number of consecutive packets older than the newest come from the restarted sender.
pub(super) const OLDER_IN_A_ROW: u8 = 8;
/// A jump ahead by more than this is a restart of numbering, not a loss.
const FAR_AHEAD: u64 = 1 << 16;

/// The receiving side of a path.
#[derive(Debug, Default)]
pub(super) struct RecvPath {
    highest: Option<u64>,
    arrived: Instant,
    packets: u32,
    bytes: u32,
    missing: VecDeque<MissingRange>,
    unreported: u32,
    pending_since: Option<Instant>,
    request_immediate_feedback: bool,
    reported: Option<Instant>,
    /// Until when old sequence numbers may come from a previous instance of the sender, and the number of
    /// consecutive older packets.
    restart_grace_until: Instant,
    older_in_a_row: u8,
}

#[derive(Clone, Copy, Debug)]
struct MissingRange {
    first: u64,
    length: u16,
    reports: u8,
}

impl RecvPath {
    /// State after a restart of the sender; packets of its previous instance may still arrive.
    pub(super) fn after_sender_restart(now: Instant) -> RecvPath {
        RecvPath { restart_grace_until: now + RESTART_GRACE, ..RecvPath::default() }
    }

    /// Records an arrived packet; false for a duplicate.
    pub(super) fn take(&mut self, now: Instant, number: u32, bytes: u32) -> bool {
        let (number, next) = match self.highest {
            Some(highest) => (unwrap(highest, number, 32), highest.saturating_add(1)),
            None => (u64::from(number), u64::from(number)),
        };
        if number >= next {
            self.note_gap(next, number - next);
            self.highest = Some(number);
            self.arrived = now;
            self.older_in_a_row = 0;
        } else if now < self.restart_grace_until && self.older_in_a_row >= OLDER_IN_A_ROW {
            self.missing.clear();
            (self.highest, self.arrived, self.older_in_a_row) = (Some(number), now, 0);
        } else if !self.fill(number) {
            self.older_in_a_row = self.older_in_a_row.saturating_add(1);
            return false;
        }
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes);
        self.unreported = self.unreported.saturating_add(1);
        self.pending_since.get_or_insert(now);
        true
    }

    /// Makes the next report due at once.
    pub(super) fn request_immediate_feedback(&mut self, now: Instant) {
        self.request_immediate_feedback = true;
        self.pending_since.get_or_insert(now);
    }

    fn note_gap(&mut self, first: u64, length: u64) {
        if length == 0 || length > FAR_AHEAD {
            return;
        }
        if self.missing.len() == MAX_MISSING_RANGES {
            self.missing.pop_front();
        }
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        self.missing.push_back(MissingRange { first, length, reports: 0 });
        self.request_immediate_feedback = true;
    }

    /// Removes a late packet from the missing ranges; false if it was not missing.
    fn fill(&mut self, number: u64) -> bool {
        let contains =
            |range: &MissingRange| number.checked_sub(range.first).is_some_and(|index| index < u64::from(range.length));
        let Some(index) = self.missing.iter().position(contains) else { return false };
        let range = self.missing[index];
        let before = (number - range.first) as u16;
        let after = range.length - before - 1;
        self.missing.remove(index);
        if after > 0 {
            self.missing.insert(index, MissingRange { first: number + 1, length: after, ..range });
        }
        if before > 0 {
            self.missing.insert(index, MissingRange { length: before, ..range });
        }
        self.missing.truncate(MAX_MISSING_RANGES);
        true
    }

    /// When the next report is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let since = self.pending_since?;
        if self.request_immediate_feedback {
            return Some(since);
        }
        let soon = self.reported.map_or(since, |last| (last + MIN_REPORT_INTERVAL).max(since));
        Some(if self.unreported >= REPORT_PACKETS { soon } else { since + MAX_REPORT_DELAY })
    }

    /// The report to send now; `None` before the first packet.
    pub(super) fn report(
        &mut self,
        now: Instant,
        path: PathId,
        wanted_state: PathState,
        rank: u8,
    ) -> Option<PathReport> {
        (self.unreported, self.pending_since, self.request_immediate_feedback) = (0, None, false);
        let highest = self.highest?;
        let missing: Vec<(u32, u16)> = self.missing.iter().map(|range| (range.first as u32, range.length)).collect();
        self.missing.iter_mut().for_each(|range| range.reports += 1);
        self.missing.retain(|range| range.reports < MAX_RANGE_REPORTS);
        self.reported = Some(now);
        Some(PathReport {
            path,
            wanted_state,
            rank,
            highest: highest as u32,
            arrival_us: (self.arrived.as_nanos() / 1000) as u32,
            held_us: u32::try_from(now.since(self.arrived).as_micros()).unwrap_or(u32::MAX),
            packets: self.packets,
            bytes: self.bytes,
            missing,
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn a_loss_is_reported_at_once_and_no_longer_after_late_arrival() {
        let mut receiver = RecvPath::default();
        for number in [5, 6, 9] {
            assert!(receiver.take(at(1), number, 1000));
        }
        assert_eq!(receiver.due(), Some(at(1)));
        let report =
            |receiver: &mut RecvPath| receiver.report(at(2), PathId(0), PathState::Active, 0).expect("packets arrived");
        assert_eq!(report(&mut receiver).missing, [(7, 2)]);
        assert!(receiver.take(at(3), 7, 1000) && !receiver.take(at(3), 7, 1000) && !receiver.take(at(3), 9, 1000));
        let after_fill = report(&mut receiver);
        assert_eq!(
            (after_fill.missing, after_fill.packets, after_fill.bytes, after_fill.highest),
            (vec![(8, 1)], 4, 4000, 9)
        );
        assert_eq!(receiver.due(), None);
        for _ in 0..2 {
            assert_eq!(report(&mut receiver).missing, [(8, 1)]);
        }
        assert!(report(&mut receiver).missing.is_empty());
    }

    #[test]
    fn a_requested_report_before_any_packet_is_due_once() {
        let mut receiver = RecvPath::default();
        receiver.request_immediate_feedback(at(1));
        assert_eq!(receiver.due(), Some(at(1)));
        assert_eq!(receiver.report(at(1), PathId(0), PathState::Active, 0), None);
        assert_eq!(receiver.due(), None);
    }

    #[test]
    fn a_report_waits_for_a_few_packets_or_a_few_milliseconds() {
        let mut receiver = RecvPath::default();
        assert_eq!(receiver.due(), None);
        receiver.take(at(10), 0, 100);
        assert_eq!(receiver.due(), Some(at(18)));
        (1..4).for_each(|number| assert!(receiver.take(at(11), number, 100)));
        assert_eq!(receiver.due(), Some(at(10)));
        assert!(receiver.report(at(11), PathId(0), PathState::Active, 0).is_some());
        (4..8).for_each(|number| assert!(receiver.take(at(11), number, 100)));
        assert_eq!(receiver.due(), Some(at(13)));
    }

    #[test]
    fn numbers_go_on_beyond_32_bits() {
        let mut receiver = RecvPath::default();
        assert!(receiver.take(at(1), u32::MAX, 100) && receiver.take(at(1), 1, 100));
        let report = receiver.report(at(1), PathId(0), PathState::Active, 0).expect("packets arrived");
        assert_eq!((report.highest, report.missing), (1, vec![(0, 1)]));
    }
}
