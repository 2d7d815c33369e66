//! The paths on which feedback is sent.

use alloc::vec::Vec;

use super::paths::Paths;
use super::send_path::Liveness;
use crate::path::{PathId, PathState};
use crate::time::{Duration, Instant};

/// Minimum time between two reports that are sent on two paths.
const MIN_SECOND_INTERVAL: Duration = Duration::from_millis(10);
/// Number of reports after which another path is the second.
const REPORTS_PER_TURN: u8 = 8;

/// Chooses the paths of reports.
#[derive(Debug, Default)]
pub(super) struct ReportPaths {
    reports: u8,
    last_second: Instant,
}

impl ReportPaths {
    /// The paths of the next report: the active path with the lowest RTT that is up, and at intervals a
    /// second path in rotation, so that feedback never depends on one path for long.
    pub(super) fn choose<P>(&mut self, now: Instant, paths: &Paths<P>) -> impl Iterator<Item = PathId> + use<P> {
        self.reports = self.reports.wrapping_add(1);
        let open = paths.iter().map(|(id, path)| (id, &path.sender)).filter(|(_, sender)| sender.is_open());
        let mut ranked: Vec<_> = open.collect();
        ranked.sort_unstable_by_key(|(id, sender)| {
            let (liveness, is_active) = (sender.liveness(), sender.wanted_state == PathState::Active);
            (liveness != Liveness::Up, !is_active, liveness, sender.rtt.smoothed(), *id)
        });
        let others = ranked.len().max(2) - 1;
        let second = ranked.get(usize::from(self.reports / REPORTS_PER_TURN) % others + 1);
        let second = second.filter(|_| now.since(self.last_second) >= MIN_SECOND_INTERVAL).map(|(id, _)| *id);
        if second.is_some() {
            self.last_second = now;
        }
        ranked.first().map(|(id, _)| *id).into_iter().chain(second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::path_order::PathOrder;

    #[test]
    fn a_report_goes_over_the_first_path_and_at_intervals_over_each_other_one() {
        let mut paths: Paths<u8> = Paths::new(PathOrder::new(&[]));
        (0..4).for_each(|path| paths.add(Instant::ZERO, PathId(path)));
        paths.set_wanted(Instant::ZERO, [PathState::Backup, PathState::Active, PathState::Active, PathState::Closed]);
        let mut choice = ReportPaths::default();
        let mut seconds = Vec::new();
        for ms in 0..200 {
            let chosen: Vec<u8> = choice.choose(Instant::from_millis(100 + ms), &paths).map(|path| path.0).collect();
            assert_eq!(chosen[0], 1, "the first active path");
            seconds.extend(chosen.get(1).copied());
        }
        assert_eq!(seconds.len(), 20);
        let uses = |path| seconds.iter().filter(|second| **second == path).count();
        assert_eq!([uses(0) > 5, uses(2) > 5, uses(3) > 0], [true, true, false], "{seconds:?}");
    }
}
