//! Every good path carries data, or the most preferred one with the others in reserve.

use alloc::vec;

use super::{Allocator, Mode, PathInput, select_active};
use crate::path::OnFade;
use crate::wanted::Wanted;

/// Good paths active or, in the mode [`Backup`](Mode::Backup), only the most preferred one
/// active and the others backup; fading ones demoted or removed, lost ones closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByBelief {
    /// How the paths are used together.
    pub mode: Mode,
    /// What happens to a fading path.
    pub on_fade: OnFade,
}

impl Allocator for ByBelief {
    fn allocate(&mut self, paths: &[PathInput]) -> Wanted {
        let on = vec![self.mode == Mode::Aggregate; paths.len()];
        select_active(paths, &on, self.on_fade).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assess::Belief::{self, Fading, Good, Lost, Stalled, Unknown};
    use crate::path::PathState::{self, Active, Backup, Closed};
    use alloc::vec::Vec;

    fn allocate(on_fade: OnFade, paths: &[(Belief, PathState)]) -> Vec<PathState> {
        let inputs: Vec<_> = paths
            .iter()
            .enumerate()
            .map(|(i, &(belief, was))| PathInput { belief, was, rank: i as u8, radio: None })
            .collect();
        ByBelief { mode: Mode::Aggregate, on_fade }.allocate(&inputs).states().to_vec()
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
        ByBelief { mode: Mode::Backup, on_fade: OnFade::Backup }.allocate(&inputs).states().to_vec()
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
