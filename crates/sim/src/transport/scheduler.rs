//! Packet schedulers: they select the subflow for the next data.

use crosslane_core::time::Duration;
use serde::{Deserialize, Serialize};

/// Bytes that one subflow receives before the next scheduling decision (Linux
/// `MPTCP_SEND_BURST_SIZE`).
pub const BURST_BYTES: u64 = 65_388;

/// A scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// Linux's default: the subflow that will drain its queue first. None if its
    /// buffer is full: a slower subflow would cause head-of-line blocking (BLEST).
    #[default]
    Default,
    /// The subflow with the lowest RTT and space in its window
    /// (multipath-tcp.org's default until 2019).
    MinRtt,
    /// Subflows in turn, each with space in its window.
    RoundRobin,
    /// The subflow of the preferred path while its window has space, then the
    /// next: the preferred path is filled, the others carry the overflow (Liao
    /// et al. 2020, §IV).
    Priority,
}

/// Scheduler input for an active subflow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Index in the connection's list.
    pub(super) place: usize,
    pub(super) backup: bool,
    /// Rank in the user's preference, 0 first.
    pub(super) rank: u8,
    /// Time to drain its queue, in s.
    pub(super) drain_s: f64,
    /// Its send buffer has space.
    pub(super) has_room: bool,
    /// Its congestion window has space beyond the queued data.
    pub(super) has_window: bool,
    pub(super) rtt: Duration,
}

impl Scheduler {
    /// True if the upstream kernel has it.
    pub fn is_upstream(self) -> bool {
        self == Scheduler::Default
    }

    /// Index of the selected subflow, if any. Backup subflows are eligible only
    /// if there is no other (RFC 8684 §3.3.8); `last` is the previous choice.
    pub(super) fn choose(self, candidates: &[Candidate], last: usize) -> Option<usize> {
        let backups = candidates.iter().all(|candidate| candidate.backup);
        let mut eligible = candidates.iter().filter(|candidate| candidate.backup == backups);
        if self == Scheduler::Default {
            let first = eligible.next()?;
            let best = eligible.fold(first, |best, next| if next.drain_s < best.drain_s { next } else { best });
            return best.has_room.then_some(best.place);
        }
        let eligible = eligible.filter(|candidate| candidate.has_window && candidate.has_room);
        let chosen = match self {
            Scheduler::RoundRobin => eligible.min_by_key(|candidate| (candidate.place <= last, candidate.place)),
            Scheduler::Priority => eligible.min_by_key(|candidate| (candidate.rank, candidate.place)),
            Scheduler::MinRtt | Scheduler::Default => eligible.min_by_key(|candidate| (candidate.rtt, candidate.place)),
        };
        chosen.map(|candidate| candidate.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(place: usize) -> Candidate {
        Candidate {
            place,
            backup: false,
            rank: place as u8,
            drain_s: 0.0,
            has_room: true,
            has_window: true,
            rtt: Duration::from_millis(10 + place as u64),
        }
    }

    #[test]
    fn the_default_uses_the_first_subflow_while_it_is_idle() {
        assert_eq!(Scheduler::Default.choose(&[candidate(0), candidate(1)], 1), Some(0));
    }

    #[test]
    fn the_default_waits_for_the_faster_subflow_although_a_slower_one_has_room() {
        let faster = Candidate { drain_s: 0.1, has_room: false, ..candidate(0) };
        let slower = Candidate { drain_s: 0.2, ..candidate(1) };
        assert_eq!(Scheduler::Default.choose(&[faster, slower], 0), None);
    }

    #[test]
    fn a_backup_is_chosen_only_if_there_is_no_other_subflow() {
        let (full, backup) =
            (Candidate { has_room: false, ..candidate(0) }, Candidate { backup: true, ..candidate(1) });
        for scheduler in [Scheduler::Default, Scheduler::MinRtt, Scheduler::RoundRobin, Scheduler::Priority] {
            assert_eq!(scheduler.choose(&[full, backup], 0), None, "{scheduler:?}");
            assert_eq!(scheduler.choose(&[backup], 0), Some(1), "{scheduler:?}");
        }
    }

    #[test]
    fn priority_overflows_and_round_robin_takes_turns() {
        let (first, second) = (candidate(0), candidate(1));
        let full = Candidate { has_window: false, ..first };
        assert_eq!(Scheduler::Priority.choose(&[first, second], 0), Some(0));
        assert_eq!(Scheduler::Priority.choose(&[full, second], 0), Some(1));
        assert_eq!(Scheduler::RoundRobin.choose(&[first, second], 0), Some(1));
        assert_eq!(Scheduler::RoundRobin.choose(&[first, second], 1), Some(0));
        assert_eq!(Scheduler::MinRtt.choose(&[second, first], 0), Some(0));
    }
}
