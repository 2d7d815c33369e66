//! The order of the paths, most preferred first.

use super::Mode;
use super::wire::control_message::MAX_PATHS;
use crate::path::PathId;
use crate::wanted::Order;

/// The order, as a rank of each path: the lowest is preferred.
#[derive(Debug)]
pub(super) struct PathOrder {
    ranks: [u8; MAX_PATHS],
    /// The ranks by the user's preference.
    preference: [u8; MAX_PATHS],
    /// The scheduler selects a path for each packet.
    is_free: bool,
}

impl PathOrder {
    /// The order by the user's preference; a path without a rank has its index.
    pub(super) fn new(ranks: &[u8]) -> PathOrder {
        let preference = core::array::from_fn(|index| ranks.get(index).copied().unwrap_or(index as u8));
        PathOrder { ranks: preference, preference, is_free: false }
    }

    /// The rank of a path.
    pub(super) fn rank(&self, path: PathId) -> u8 {
        self.ranks.get(usize::from(path.0)).copied().unwrap_or(u8::MAX)
    }

    /// Puts the paths of an order first; the others follow by the user's preference. An order that has a path twice, or
    /// one that cannot exist, is ignored. Whether anything changed.
    pub(super) fn set(&mut self, order: &Order) -> bool {
        let (is_free, order) = (*order == Order::Free, order.paths());
        let is_valid =
            |(place, path): (usize, &PathId)| usize::from(path.0) < MAX_PATHS && !order[..place].contains(path);
        if !order.iter().enumerate().all(is_valid) {
            return false;
        }
        let mut ranks = self.preference;
        if !order.is_empty() {
            let mut paths: [PathId; MAX_PATHS] = core::array::from_fn(|index| PathId(index as u8));
            let place = |path: &PathId| order.iter().position(|first| first == path).unwrap_or(MAX_PATHS);
            paths.sort_by_key(|path| (place(path), self.preference[usize::from(path.0)]));
            paths.iter().zip(0..).for_each(|(path, rank)| ranks[usize::from(path.0)] = rank);
        }
        let before = (core::mem::replace(&mut self.ranks, ranks), core::mem::replace(&mut self.is_free, is_free));
        before != (ranks, is_free)
    }

    /// The mode in which the paths are used that are to be used in this one.
    pub(super) fn mode(&self, mode: Mode) -> Mode {
        if self.is_free && mode == Mode::CheapestFirst { Mode::Aggregate } else { mode }
    }

    /// Takes the rank of a path from the peer.
    pub(super) fn set_rank(&mut self, path: PathId, rank: u8) {
        self.ranks.get_mut(usize::from(path.0)).into_iter().for_each(|known| *known = rank);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// All paths, most preferred first.
    fn sorted(order: &PathOrder) -> Vec<PathId> {
        let mut paths: Vec<PathId> = (0..MAX_PATHS as u8).map(PathId).collect();
        paths.sort_by_key(|path| order.rank(*path));
        paths
    }

    #[test]
    fn the_paths_of_an_order_come_first_and_the_others_follow_by_preference() {
        let mut order = PathOrder::new(&[3, 2, 1, 0]);
        assert_eq!(sorted(&order)[..5], [3, 2, 1, 0, 4].map(PathId));
        let named = |paths: &[u8]| Order::Paths(paths.iter().copied().map(PathId).collect());
        assert!(order.set(&named(&[0, 3])));
        assert_eq!(sorted(&order)[..5], [0, 3, 2, 1, 4].map(PathId));
        assert!(!order.set(&named(&[0, 3])), "nothing changed");
        assert!(order.set(&named(&[1])));
        assert_eq!(sorted(&order)[..5], [1, 3, 2, 0, 4].map(PathId));
        assert!(order.set(&Order::Preference));
        assert_eq!(order.ranks, order.preference);
    }

    #[test]
    fn without_an_order_cheapest_first_is_aggregate_until_there_is_one() {
        let mut order = PathOrder::new(&[]);
        let modes = |order: &PathOrder| Mode::ALL.map(|mode| order.mode(mode));
        assert_eq!(modes(&order), Mode::ALL);
        assert!(order.set(&Order::Free));
        assert!(!order.set(&Order::Free), "nothing changed");
        assert_eq!(order.mode(Mode::CheapestFirst), Mode::Aggregate);
        assert_eq!(modes(&order).iter().zip(Mode::ALL).filter(|(used, mode)| *used != mode).count(), 1);
        assert!(order.set(&Order::Preference));
        assert_eq!(modes(&order), Mode::ALL);
    }

    proptest! {
        #[test]
        fn an_order_is_taken_whole_or_not_at_all(
            ranks: [u8; MAX_PATHS], order in prop::collection::vec(0..20u8, 0..20),
        ) {
            let mut known = PathOrder::new(&ranks);
            let paths: Vec<PathId> = order.iter().copied().map(PathId).collect();
            known.set(&Order::Paths(paths.clone()));
            let is_known = |path: &u8| usize::from(*path) < MAX_PATHS;
            let is_once = |path: &u8| order.iter().filter(|other| *other == path).count() == 1;
            if order.iter().all(|path| is_known(path) && is_once(path)) {
                prop_assert_eq!(&sorted(&known)[..paths.len()], &paths);
            } else {
                prop_assert_eq!(known.ranks, ranks);
            }
        }
    }
}
