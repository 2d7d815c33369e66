//! What arrives over one path: which numbers, and what to report of them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::wire::control_message::{MAX_RUNS, PathReport};
use super::wire::gre_key::unwrap;
use crate::path::{PathId, PathState};
use crate::time::{Duration, Instant};

/// Least time between two reports that are due only because packets came.
const REPORT_EACH: Duration = Duration::from_millis(2);
/// Packets that make a report due after [`REPORT_EACH`].
const REPORT_PACKETS: u32 = 4;
/// Longest time a packet waits to be reported.
const REPORT_WITHIN: Duration = Duration::from_millis(8);
/// In how many reports a run of missing numbers is told: reports get lost too.
const TELLINGS: u8 = 4;
/// For so long after a sender began anew packets of the one before it may come.
pub(super) const YOUNG: Duration = Duration::from_secs(2);
/// So many in a row that are older than the newest are of the sender that is there.
pub(super) const OLDER_IN_A_ROW: u8 = 8;
/// A number so far ahead of the last is a beginning, not a gap.
const FAR_AHEAD: u64 = 1 << 16;

/// The receiving side of a path.
#[derive(Debug, Default)]
pub(super) struct RecvPath {
    highest: Option<u64>,
    arrived: Instant,
    packets: u32,
    bytes: u32,
    missing: VecDeque<Run>,
    unreported: u32,
    waits_since: Option<Instant>,
    request_immediate_feedback: bool,
    reported: Option<Instant>,
    /// Until when old numbers may be of a sender that is gone, and how many
    /// have come in a row that are older still.
    young_until: Instant,
    older: u8,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    length: u16,
    told: u8,
}

impl RecvPath {
    /// The sender began anew; what the one before it sent may still come.
    pub(super) fn of_another_sender(now: Instant) -> RecvPath {
        RecvPath { young_until: now + YOUNG, ..RecvPath::default() }
    }

    /// A packet with this number came; false if it came before.
    pub(super) fn take(&mut self, now: Instant, number: u32, bytes: u32) -> bool {
        let (number, next) = match self.highest {
            Some(highest) => (unwrap(highest, number, 32), highest.saturating_add(1)),
            None => (u64::from(number), u64::from(number)),
        };
        if number >= next {
            self.note_gap(next, number - next);
            self.highest = Some(number);
            self.arrived = now;
            self.older = 0;
        } else if now < self.young_until && self.older >= OLDER_IN_A_ROW {
            self.missing.clear();
            (self.highest, self.arrived, self.older) = (Some(number), now, 0);
        } else if !self.fill(number) {
            self.older = self.older.saturating_add(1);
            return false;
        }
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes);
        self.unreported = self.unreported.saturating_add(1);
        self.waits_since.get_or_insert(now);
        true
    }

    /// The next report is due at once.
    pub(super) fn request_immediate_feedback(&mut self, now: Instant) {
        self.request_immediate_feedback = true;
        self.waits_since.get_or_insert(now);
    }

    fn note_gap(&mut self, first: u64, length: u64) {
        if length == 0 || length > FAR_AHEAD {
            return;
        }
        if self.missing.len() == MAX_RUNS {
            self.missing.pop_front();
        }
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        self.missing.push_back(Run { first, length, told: 0 });
        self.request_immediate_feedback = true;
    }

    /// A number that was missing came late; false if it was not missing.
    fn fill(&mut self, number: u64) -> bool {
        let holds = |run: &Run| number.checked_sub(run.first).is_some_and(|place| place < u64::from(run.length));
        let Some(place) = self.missing.iter().position(holds) else { return false };
        let run = self.missing[place];
        let before = (number - run.first) as u16;
        let after = run.length - before - 1;
        self.missing.remove(place);
        if after > 0 {
            self.missing.insert(place, Run { first: number + 1, length: after, ..run });
        }
        if before > 0 {
            self.missing.insert(place, Run { length: before, ..run });
        }
        self.missing.truncate(MAX_RUNS);
        true
    }

    /// When a report should leave.
    pub(super) fn due(&self) -> Option<Instant> {
        let since = self.waits_since?;
        if self.request_immediate_feedback {
            return Some(since);
        }
        let soon = self.reported.map_or(since, |last| (last + REPORT_EACH).max(since));
        Some(if self.unreported >= REPORT_PACKETS { soon } else { since + REPORT_WITHIN })
    }

    /// What to report now; `None` if nothing ever came.
    pub(super) fn report(&mut self, now: Instant, path: PathId, wanted_state: PathState) -> Option<PathReport> {
        (self.unreported, self.waits_since, self.request_immediate_feedback) = (0, None, false);
        let highest = self.highest?;
        let missing: Vec<(u32, u16)> = self.missing.iter().map(|run| (run.first as u32, run.length)).collect();
        self.missing.iter_mut().for_each(|run| run.told += 1);
        self.missing.retain(|run| run.told < TELLINGS);
        self.reported = Some(now);
        Some(PathReport {
            path,
            wanted_state,
            rank: path.0,
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
    fn a_gap_is_reported_at_once_and_no_longer_when_it_is_filled() {
        let mut incoming = RecvPath::default();
        for number in [5, 6, 9] {
            assert!(incoming.take(at(1), number, 1000));
        }
        assert_eq!(incoming.due(), Some(at(1)));
        let report = |incoming: &mut RecvPath| incoming.report(at(2), PathId(0), PathState::Active).expect("came");
        assert_eq!(report(&mut incoming).missing, [(7, 2)]);
        assert!(incoming.take(at(3), 7, 1000) && !incoming.take(at(3), 7, 1000) && !incoming.take(at(3), 9, 1000));
        let told = report(&mut incoming);
        assert_eq!((told.missing, told.packets, told.bytes, told.highest), (vec![(8, 1)], 4, 4000, 9));
        assert_eq!(incoming.due(), None);
        for _ in 0..2 {
            assert_eq!(report(&mut incoming).missing, [(8, 1)]);
        }
        assert!(report(&mut incoming).missing.is_empty());
    }

    #[test]
    fn a_report_of_nothing_is_due_once() {
        let mut incoming = RecvPath::default();
        incoming.request_immediate_feedback(at(1));
        assert_eq!(incoming.due(), Some(at(1)));
        assert_eq!(incoming.report(at(1), PathId(0), PathState::Active), None);
        assert_eq!(incoming.due(), None);
    }

    #[test]
    fn a_report_waits_for_a_few_packets_or_a_few_milliseconds() {
        let mut incoming = RecvPath::default();
        assert_eq!(incoming.due(), None);
        incoming.take(at(10), 0, 100);
        assert_eq!(incoming.due(), Some(at(18)));
        (1..4).for_each(|number| assert!(incoming.take(at(11), number, 100)));
        assert_eq!(incoming.due(), Some(at(10)));
        assert!(incoming.report(at(11), PathId(0), PathState::Active).is_some());
        (4..8).for_each(|number| assert!(incoming.take(at(11), number, 100)));
        assert_eq!(incoming.due(), Some(at(13)));
    }

    #[test]
    fn numbers_go_on_beyond_32_bits() {
        let mut incoming = RecvPath::default();
        assert!(incoming.take(at(1), u32::MAX, 100) && incoming.take(at(1), 1, 100));
        let report = incoming.report(at(1), PathId(0), PathState::Active).expect("came");
        assert_eq!((report.highest, report.missing), (1, vec![(0, 1)]));
    }
}
