//! The paths on which feedback is sent.

use alloc::vec::Vec;

use super::Mode;
use super::paths::{Path, Paths};
use super::send_path::Liveness;
use crate::path::{PathId, PathState};
use crate::time::{Duration, Instant};

/// Minimum time between two reports that are sent on two paths.
const MIN_SECOND_INTERVAL: Duration = Duration::from_millis(10);
/// Number of reports after which another path is the second.
const REPORTS_PER_TURN: u8 = 8;
/// Maximum and, after a change, minimum time between two reports that are messages, which say what packets do not.
const MAX_MESSAGE_INTERVAL: Duration = Duration::from_secs(5);
const MIN_MESSAGE_INTERVAL: Duration = Duration::from_millis(25);

/// Chooses the paths of reports.
#[derive(Debug, Default)]
pub(super) struct ReportPaths {
    reports: u8,
    last_second: Instant,
    /// When the next report must be a message, and the time from that one to the next.
    message_due: Instant,
    message_interval: Duration,
}

impl ReportPaths {
    /// The paths of the next report. The first is, of the active paths that are up, the most preferred one if
    /// the mode follows their order, else the one with the lowest RTT of those in use. At intervals there is a
    /// second one, in rotation, of those in use or that the report has news of, so that feedback never depends
    /// on one path for long, and a path that carries nothing carries the reports on its own probes only.
    pub(super) fn choose<P>(
        &mut self,
        now: Instant,
        mode: Mode,
        paths: &Paths<P>,
    ) -> impl Iterator<Item = PathId> + use<P> {
        self.reports = self.reports.wrapping_add(1);
        if now >= self.message_due {
            self.message_due = now + self.message_interval;
            let next = (self.message_interval * 2).clamp(MIN_MESSAGE_INTERVAL, MAX_MESSAGE_INTERVAL);
            self.message_interval = next;
        }
        let (first, others) = ranked(mode, paths);
        let second = others.get(usize::from(self.reports / REPORTS_PER_TURN) % others.len().max(1)).copied();
        let second = second.filter(|_| now.since(self.last_second) >= MIN_SECOND_INTERVAL);
        if second.is_some() {
            self.last_second = now;
        }
        first.into_iter().chain(second)
    }

    /// What messages say has changed: the next reports are messages, at growing intervals, since some may be
    /// lost.
    pub(super) fn note_change(&mut self, now: Instant) {
        (self.message_due, self.message_interval) = (now, MIN_MESSAGE_INTERVAL);
    }

    /// Whether a packet sent on this path may carry the report: it would go over this path, and over no second
    /// one now.
    pub(super) fn may_ride<P>(&self, now: Instant, mode: Mode, paths: &Paths<P>, over: PathId) -> bool {
        if now >= self.message_due {
            return false;
        }
        let (first, others) = ranked(mode, paths);
        first == Some(over) && (others.is_empty() || now.since(self.last_second) < MIN_SECOND_INTERVAL)
    }
}

/// The first path of the next report, and those that may be the second.
fn ranked<P>(mode: Mode, paths: &Paths<P>) -> (Option<PathId>, Vec<PathId>) {
    let mut ranked: Vec<_> = paths.iter().filter(|(_, path)| path.sender.is_open()).collect();
    ranked.sort_unstable_by_key(|(id, path)| {
        let (liveness, is_active) = (path.sender.liveness(), path.sender.wanted_state == PathState::Active);
        let rank = if mode.follows_order() { paths.order.rank(*id) } else { u8::from(!path.sender.is_in_use()) };
        (liveness != Liveness::Up, !is_active, rank, liveness, path.sender.rtt.smoothed(), *id)
    });
    let counts = |path: &Path<P>| path.sender.is_carrying() || path.receiver.has_news();
    let others = ranked.iter().skip(1).filter(|(_, path)| counts(path)).map(|(id, _)| *id);
    (ranked.first().map(|(id, _)| *id), others.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::path_order::PathOrder;
    use crate::wanted::Order;

    const NOW: Instant = Instant::ZERO;

    fn four_paths() -> Paths<u8> {
        let mut paths: Paths<u8> = Paths::new(PathOrder::new(&[]));
        (0..4).for_each(|path| paths.add(NOW, PathId(path)));
        paths
    }

    #[test]
    fn a_report_goes_over_the_first_path_and_at_intervals_over_each_other_one() {
        let mut paths = four_paths();
        paths.set_wanted(NOW, [PathState::Backup, PathState::Active, PathState::Active, PathState::Closed]);
        paths.request_feedback_on_all(NOW);
        let mut choice = ReportPaths::default();
        let mut seconds = Vec::new();
        for ms in 0..200 {
            let at = Instant::from_millis(100 + ms);
            let chosen: Vec<u8> = choice.choose(at, Mode::Aggregate, &paths).map(|path| path.0).collect();
            assert_eq!(chosen[0], 1, "the first active path");
            seconds.extend(chosen.get(1).copied());
        }
        assert_eq!(seconds.len(), 20);
        let uses = |path| seconds.iter().filter(|second| **second == path).count();
        assert_eq!([uses(0) > 5, uses(2) > 5, uses(3) > 0], [true, true, false], "{seconds:?}");
    }

    #[test]
    fn a_report_without_news_of_an_unused_path_does_not_go_over_it() {
        let mut paths = four_paths();
        // Their last packets are probes.
        for (_, path) in paths.iter_mut() {
            path.sender.send(Instant::from_millis(6000), 92, None);
        }
        let mut choice = ReportPaths::default();
        let mut chosen = |ms, paths: &Paths<u8>| -> Vec<u8> {
            choice.choose(Instant::from_millis(ms), Mode::Aggregate, paths).map(|path| path.0).collect()
        };
        paths.request_feedback(NOW, PathId(0));
        assert_eq!(chosen(100, &paths), [0]);
        paths.request_feedback(NOW, PathId(3));
        assert_eq!(chosen(200, &paths), [0, 3]);
        assert!(paths.report(Instant::from_millis(200)).is_empty(), "no packet has arrived");
        assert_eq!(chosen(300, &paths), [0], "the news was sent");
    }

    #[test]
    fn a_packet_carries_the_report_where_it_would_go_unless_a_message_is_due() {
        let mut paths = four_paths();
        for (_, path) in paths.iter_mut() {
            path.sender.send(Instant::from_millis(6000), 92, None);
        }
        let mut choice = ReportPaths::default();
        let at = Instant::from_millis;
        let may = |choice: &ReportPaths, ms, path| choice.may_ride(at(ms), Mode::Aggregate, &paths, PathId(path));
        assert!(!may(&choice, 100, 0), "no message was sent yet");
        drop(choice.choose(at(100), Mode::Aggregate, &paths));
        drop(choice.choose(at(101), Mode::Aggregate, &paths));
        assert_eq!([0, 1].map(|path| may(&choice, 125, path)), [true, false]);
        assert!(!may(&choice, 126, 0), "25 ms after the last message that was due");
        (0..9).for_each(|message| drop(choice.choose(at(200 + message * 10_000), Mode::Aggregate, &paths)));
        assert_eq!([85_199, 85_200].map(|ms| may(&choice, ms, 0)), [true, false], "5 s at most");
        choice.note_change(at(83_000));
        assert!(!may(&choice, 83_000, 0));
        drop(choice.choose(at(83_000), Mode::Aggregate, &paths));
        assert_eq!([83_024, 83_025].map(|ms| may(&choice, ms, 0)), [true, false]);
        paths.request_feedback(NOW, PathId(1));
        let may = |ms| choice.may_ride(at(ms), Mode::Aggregate, &paths, PathId(0));
        assert!(!may(83_010), "the second path carries the report too");
    }

    #[test]
    fn the_first_path_is_the_preferred_one_if_the_mode_follows_the_order() {
        for (mode, first) in [(Mode::Standby, 2), (Mode::CheapestFirst, 2), (Mode::Aggregate, 0), (Mode::PerFlow, 0)] {
            let mut paths = four_paths();
            paths.set_order(NOW, &Order::Paths([PathId(2)].into()));
            let path = ReportPaths::default().choose(NOW, mode, &paths).next();
            assert_eq!(path, Some(PathId(first)), "{mode:?}");
        }
    }
}
