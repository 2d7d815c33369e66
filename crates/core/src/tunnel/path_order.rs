//! The order of the paths, most preferred first.

use super::wire::control_message::MAX_PATHS;
use crate::path::PathId;

/// The order, as a rank of each path: the lowest is preferred.
#[derive(Debug)]
pub(super) struct PathOrder {
    ranks: [u8; MAX_PATHS],
}

impl PathOrder {
    /// The order by these ranks; a path without one has its index.
    pub(super) fn of_ranks(ranks: &[u8]) -> PathOrder {
        PathOrder { ranks: core::array::from_fn(|index| ranks.get(index).copied().unwrap_or(index as u8)) }
    }

    /// The rank of a path.
    pub(super) fn rank(&self, path: PathId) -> u8 {
        self.ranks.get(usize::from(path.0)).copied().unwrap_or(u8::MAX)
    }

    /// Takes the rank of a path from the peer.
    pub(super) fn set_rank(&mut self, path: PathId, rank: u8) {
        self.ranks.get_mut(usize::from(path.0)).into_iter().for_each(|known| *known = rank);
    }
}
