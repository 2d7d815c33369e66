//! One path carries data, the others are in reserve.

use super::{Allocator, PathInput, fallback_state, last_resort};
use crate::assess::Belief;
use crate::path::{OnFade, PathState};
use crate::wanted::Wanted;

/// The most preferred good path active, other good ones backup, fading ones
/// demoted or removed, lost ones closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backup {
    /// What happens to a fading path.
    pub on_fade: OnFade,
}

impl Allocator for Backup {
    fn allocate(&mut self, paths: &[PathInput]) -> Wanted {
        let good = paths.iter().filter(|path| path.belief == Belief::Good);
        let Some(first) = good.map(|path| path.rank).min() else {
            return last_resort(paths).into();
        };
        paths
            .iter()
            .map(|path| match path.belief {
                Belief::Good if path.rank == first => PathState::Active,
                Belief::Good => PathState::Backup,
                Belief::Fading if self.on_fade == OnFade::Close => PathState::Closed,
                _ => fallback_state(path),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Belief::{Fading, Good, Lost};
    use PathState::{Active, Backup, Closed};
    use alloc::vec::Vec;

    fn allocate(paths: &[(Belief, PathState, u8)]) -> Vec<PathState> {
        let inputs: Vec<_> = paths.iter().map(|&(belief, was, rank)| PathInput { belief, was, rank }).collect();
        super::Backup::default().allocate(&inputs).states().to_vec()
    }

    #[test]
    fn the_preferred_good_path_carries_and_the_other_is_in_reserve() {
        assert_eq!(allocate(&[(Good, Closed, 1), (Good, Closed, 0)]), [Backup, Active]);
    }

    #[test]
    fn when_the_preferred_path_fades_they_swap_roles() {
        assert_eq!(allocate(&[(Fading, Active, 0), (Good, Backup, 1)]), [Backup, Active]);
    }

    #[test]
    fn a_lost_path_is_closed_and_a_single_one_carries_even_fading() {
        assert_eq!(allocate(&[(Lost, Active, 0), (Good, Backup, 1)]), [Closed, Active]);
        assert_eq!(allocate(&[(Fading, Active, 0), (Lost, Backup, 1)]), [Active, Backup]);
    }
}
