//! The last changes of each path, for those who ask why it is as it is.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::assess::Belief;
use crate::path::{MAX_PATHS, PathId, PathState};
use crate::reason::Reason;
use crate::recent::push_recent;
use crate::time::Instant;

/// Changes kept of each path.
const MAX_CHANGES: usize = 8;

/// A change of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Counts the changes of all paths since the start, from 1.
    pub number: u64,
    /// When it happened.
    pub at: Instant,
    /// The path.
    pub path: PathId,
    /// What changed.
    pub to: Changed,
    /// The reason.
    pub reason: Reason,
}

/// The new value of what changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The belief.
    Belief(Belief),
    /// The wanted state.
    State(PathState),
}

/// The last changes of each path, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Changes {
    recent: [VecDeque<Change>; MAX_PATHS],
    last: u64,
}

impl Changes {
    pub(super) fn push(&mut self, at: Instant, path: PathId, to: Changed, reason: &Reason) {
        self.last += 1;
        let recent = &mut self.recent[usize::from(path.0)];
        push_recent(recent, MAX_CHANGES, Change { number: self.last, at, path, to, reason: reason.clone() });
    }

    /// Another path takes this id.
    pub(super) fn forget(&mut self, path: PathId) {
        self.recent[usize::from(path.0)].clear();
    }

    /// Those of all paths, the oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Change> {
        let mut changes: Vec<&Change> = self.recent.iter().flatten().collect();
        changes.sort_unstable_by_key(|change| change.number);
        changes.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_changes_often_keeps_its_last_changes_and_displaces_no_other() {
        let mut changes = Changes::default();
        let mut push = |path| {
            changes.push(Instant::ZERO, PathId(path), Changed::State(PathState::Active), &Reason::default());
        };
        push(0);
        (0..100).for_each(|_| push(1));
        let numbers: Vec<u64> = changes.iter().map(|change| change.number).collect();
        assert_eq!(numbers, [1, 94, 95, 96, 97, 98, 99, 100, 101]);
        changes.forget(PathId(1));
        assert_eq!(changes.iter().count(), 1);
    }
}
