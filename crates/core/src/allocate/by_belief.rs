//! Every good path carries data, or the most preferred ones with the others in reserve.

use alloc::vec::Vec;

use super::tiers::Tiers;
use super::{Allocator, Mode, PathInput, PathSupply, select_active};
use crate::path::OnFade;
use crate::reason::Reason;
use crate::time::Instant;
use crate::wanted::Wanted;

/// Of the good paths as many active as the mode has, the others backup; fading ones demoted
/// or removed, lost ones closed.
#[derive(Clone, Debug)]
pub struct ByBelief {
    tiers: Tiers,
    on_fade: OnFade,
}

impl ByBelief {
    /// An allocator: how the paths are used together, and what happens to a fading path.
    pub fn new(mode: Mode, on_fade: OnFade) -> ByBelief {
        ByBelief { tiers: Tiers::new(mode), on_fade }
    }
}

impl Allocator for ByBelief {
    fn allocate(&mut self, paths: &[PathInput]) -> Wanted {
        select_active(paths, |place, path| self.tiers.is_on(place, path), self.on_fade).into()
    }

    fn review(&mut self, now: Instant, paths: &[PathSupply]) -> Option<Reason> {
        let inputs: Vec<PathInput> = paths.iter().map(|path| path.input).collect();
        self.tiers.review(now, &inputs, paths)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.tiers.next_wakeup()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assess::Belief::{self, Fading, Good, Lost, Stalled, Unknown};
    use crate::path::PathState::{self, Active, Backup, Closed};

    fn allocate(on_fade: OnFade, paths: &[(Belief, PathState)]) -> Vec<PathState> {
        let inputs: Vec<_> = paths
            .iter()
            .enumerate()
            .map(|(i, &(belief, was))| PathInput { belief, was, rank: i as u8, radio: None })
            .collect();
        ByBelief::new(Mode::Aggregate, on_fade).allocate(&inputs).states().to_vec()
    }

    #[test]
    fn every_good_path_is_active() {
        assert_eq!(allocate(OnFade::Backup, &[(Good, Closed), (Good, Backup)]), [Active, Active]);
    }

    #[test]
    fn a_fading_path_is_demoted_or_removed_as_configured_but_never_opened() {
        assert_eq!(allocate(OnFade::Backup, &[(Fading, Active), (Good, Active)]), [Backup, Active]);
        assert_eq!(allocate(OnFade::Close, &[(Fading, Active), (Good, Active)]), [Closed, Active]);
        assert_eq!(allocate(OnFade::Backup, &[(Fading, Closed), (Good, Active)]), [Closed, Active]);
    }

    #[test]
    fn a_lost_path_with_data_is_closed_an_idle_one_is_left_open() {
        assert_eq!(allocate(OnFade::Backup, &[(Lost, Active), (Good, Active)]), [Closed, Active]);
        assert_eq!(allocate(OnFade::Backup, &[(Lost, Backup), (Good, Active)]), [Backup, Active]);
        assert_eq!(allocate(OnFade::Backup, &[(Stalled, Backup), (Good, Active)]), [Closed, Active]);
    }

    #[test]
    fn without_a_good_path_the_fading_one_carries() {
        assert_eq!(allocate(OnFade::Close, &[(Fading, Active), (Lost, Active)]), [Active, Closed]);
        assert_eq!(allocate(OnFade::Backup, &[(Unknown, Closed), (Lost, Active)]), [Active, Closed]);
        assert_eq!(allocate(OnFade::Backup, &[(Lost, Active), (Lost, Closed)]), [Active, Active]);
    }

    fn allocate_backup(paths: &[(Belief, PathState, u8)]) -> Vec<PathState> {
        let inputs: Vec<_> =
            paths.iter().map(|&(belief, was, rank)| PathInput { belief, was, rank, radio: None }).collect();
        ByBelief::new(Mode::Backup, OnFade::Backup).allocate(&inputs).states().to_vec()
    }

    #[test]
    fn the_preferred_good_path_carries_and_the_other_is_in_reserve() {
        assert_eq!(allocate_backup(&[(Good, Closed, 1), (Good, Closed, 0)]), [Backup, Active]);
    }

    #[test]
    fn when_the_preferred_path_fades_they_swap_roles() {
        assert_eq!(allocate_backup(&[(Fading, Active, 0), (Good, Backup, 1)]), [Backup, Active]);
    }

    #[test]
    fn a_lost_path_is_closed_and_a_single_one_carries_even_fading() {
        assert_eq!(allocate_backup(&[(Lost, Active, 0), (Good, Backup, 1)]), [Closed, Active]);
        assert_eq!(allocate_backup(&[(Fading, Active, 0), (Lost, Backup, 1)]), [Active, Backup]);
    }
}
