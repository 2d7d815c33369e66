//! Every good path carries data.

use super::{Allocator, PathInput, fallback_state, last_resort};
use crate::assess::Belief;
use crate::path::{OnFade, PathState};
use crate::wanted::Wanted;

/// Good paths active, fading ones demoted or removed, lost ones closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aggregate {
    /// What happens to a fading path.
    pub on_fade: OnFade,
}

impl Allocator for Aggregate {
    fn allocate(&mut self, paths: &[PathInput]) -> Wanted {
        if !paths.iter().any(|path| path.belief == Belief::Good) {
            return last_resort(paths).into();
        }
        paths
            .iter()
            .map(|path| match path.belief {
                Belief::Good => PathState::Active,
                Belief::Fading if self.on_fade == OnFade::Close => PathState::Closed,
                _ => fallback_state(path),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Belief::{Fading, Good, Lost, Stalled, Unknown};
    use PathState::{Active, Backup, Closed};
    use alloc::vec::Vec;

    fn allocate(on_fade: OnFade, paths: &[(Belief, PathState)]) -> Vec<PathState> {
        let inputs: Vec<_> =
            paths.iter().enumerate().map(|(i, &(belief, was))| PathInput { belief, was, rank: i as u8 }).collect();
        Aggregate { on_fade }.allocate(&inputs).states().to_vec()
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
}
