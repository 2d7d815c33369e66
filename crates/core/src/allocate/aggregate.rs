//! Every good path carries data.

use alloc::vec::Vec;

use super::{Allocator, View, keep_open, last_resort};
use crate::assess::Belief;
use crate::path::{PathState, Weak};

/// Good paths active, fading ones demoted or removed, lost ones closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct EveryGood {
    /// What becomes of a fading path.
    pub weak: Weak,
}

impl Allocator for EveryGood {
    fn allocate(&mut self, paths: &[View]) -> Vec<PathState> {
        if !paths.iter().any(|path| path.belief == Belief::Good) {
            return last_resort(paths);
        }
        paths
            .iter()
            .map(|path| match path.belief {
                Belief::Good => PathState::Active,
                Belief::Fading if self.weak == Weak::Remove => PathState::Closed,
                _ => keep_open(path),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Belief::{Fading, Good, Lost, Stuck, Unknown};
    use PathState::{Active, Backup, Closed};

    fn allocate(weak: Weak, paths: &[(Belief, PathState)]) -> Vec<PathState> {
        let views: Vec<_> =
            paths.iter().enumerate().map(|(i, &(belief, was))| View { belief, was, rank: i as u8 }).collect();
        EveryGood { weak }.allocate(&views)
    }

    #[test]
    fn every_good_path_is_active() {
        assert_eq!(allocate(Weak::Demote, &[(Good, Closed), (Good, Backup)]), [Active, Active]);
    }

    #[test]
    fn a_fading_path_is_demoted_or_removed_as_set_but_never_opened() {
        assert_eq!(allocate(Weak::Demote, &[(Fading, Active), (Good, Active)]), [Backup, Active]);
        assert_eq!(allocate(Weak::Remove, &[(Fading, Active), (Good, Active)]), [Closed, Active]);
        assert_eq!(allocate(Weak::Demote, &[(Fading, Closed), (Good, Active)]), [Closed, Active]);
    }

    #[test]
    fn a_path_lost_with_data_on_it_is_closed_an_idle_one_is_left() {
        assert_eq!(allocate(Weak::Demote, &[(Lost, Active), (Good, Active)]), [Closed, Active]);
        assert_eq!(allocate(Weak::Demote, &[(Lost, Backup), (Good, Active)]), [Backup, Active]);
        assert_eq!(allocate(Weak::Demote, &[(Stuck, Backup), (Good, Active)]), [Closed, Active]);
    }

    #[test]
    fn without_a_good_path_the_fading_one_carries() {
        assert_eq!(allocate(Weak::Remove, &[(Fading, Active), (Lost, Active)]), [Active, Closed]);
        assert_eq!(allocate(Weak::Demote, &[(Unknown, Closed), (Lost, Active)]), [Active, Closed]);
        assert_eq!(allocate(Weak::Demote, &[(Lost, Active), (Lost, Closed)]), [Active, Active]);
    }
}
