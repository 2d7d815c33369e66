//! Liao et al. 2020, *Cross-layer Path Selection in Multi-path Transport Protocol for Mobile Devices* (SmartPS): a
//! learned tree says whether Wi-Fi or the cellular network is first.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::learned::{self, Settings, files};
use super::{Entry, Strategy, threshold};
use crate::allocate::learned::Pairs;
use crate::allocate::learned::tree::Tree;
use crate::allocate::{Allocator, Mode};
use crate::assess::Assessor;
use crate::path::PathSpec;

/// Its entry in the catalogue.
pub const ENTRY: Entry =
    Entry::new::<Params>("smartps", "Wi-Fi or cellular first, by a learned tree (Liao et al. 2020)");

crate::parameters! {
    /// Parameters that the paper leaves open.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Params {
        /// Name of the tree's file (`docs/reference/tree.md`), relative to the file that names it; unset: as
        /// `threshold`.
        tree: Option<String> = None;
        /// Name of a file (`docs/reference/records.md`), relative to the agent's configuration, to which it appends what
        /// the trials show, for `crosslane refit`; then paths are also swapped in trials where the tree agrees with the
        /// user.
        store: Option<String> = None;
        /// How long an order stands at least; 0: until the next window of 250 ms.
        hold_ms: u32 = 0, "ms", 0.0 to 3600e3;
        /// Greatest share of the windows in which the order that is not in force applies, to compare what both bring; 0:
        /// never, and a tree that does harm is not withdrawn.
        trials: f64 = 0.02, "", 0.0 to 0.1;
    }
}

impl Params {
    fn settings(&self) -> Settings {
        let Params { hold_ms, trials, .. } = *self;
        let files = files(self.tree.as_ref(), self.store.as_ref());
        Settings { name: ENTRY.name, pairs: Pairs::WifiAndCellular, hold_ms, confidence: 0.5, trials, files }
    }
}

impl Strategy for Params {
    fn assessors(&self, path: &PathSpec) -> Vec<Box<dyn Assessor + Send>> {
        threshold::Params::default().assessors(path)
    }

    fn lacks(&self, mode: Mode) -> Option<&'static str> {
        learned::lacks(mode)
    }

    fn allocator(&self, mode: Mode) -> Box<dyn Allocator + Send> {
        self.settings().allocator(mode, None)
    }

    fn tree_file(&self) -> Option<&str> {
        self.tree.as_deref()
    }

    fn with_tree(&self, tree: Tree) -> Result<Arc<dyn Strategy>, String> {
        self.settings().with(tree)
    }
}
