//! `threshold`, with the paths in the order of a learned tree: which path of any two is to be first.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Entry, Refitting, Strategy, threshold};
use crate::allocate::learned::tree::Tree;
use crate::allocate::learned::{self, Learned, Pairs};
use crate::allocate::{Allocator, Mode};
use crate::assess::Assessor;
use crate::path::PathSpec;
use crate::time::Duration;

/// Its entry in the catalogue.
pub const ENTRY: Entry =
    Entry::new::<Params>("learned", "`threshold`, with the paths in the order of a learned tree, or one alone");

crate::parameters! {
    /// Parameters of the strategy `learned`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Params {
        /// Name of the tree's file (`docs/reference/tree.md`), relative to the file that names it; unset: as
        /// `threshold`.
        tree: Option<String> = None;
        /// Name of a file (`docs/reference/records.md`), relative to the agent's configuration, to which it appends what
        /// the trials show, for `crosslane refit`; then paths are also swapped in trials where the tree agrees with the
        /// user.
        store: Option<String> = None;
        /// How long an order stands at least.
        hold_ms: u32 = 1000, "ms", 0.0 to 3600e3;
        /// Least share of the training windows in a leaf that agree; below it the fallback of the tree applies.
        confidence: f64 = 0.6, "", 0.5 to 1.0;
        /// Greatest share of the windows in which the order that is not in force applies, to compare what both bring; 0:
        /// never, and a tree that does harm is not withdrawn.
        trials: f64 = 0.02, "", 0.0 to 0.1;
    }
}

impl Params {
    fn settings(&self) -> Settings {
        let Params { hold_ms, confidence, trials, .. } = *self;
        let files = files(self.tree.as_ref(), self.store.as_ref());
        Settings { name: ENTRY.name, pairs: Pairs::Any, hold_ms, confidence, trials, files }
    }
}

impl Strategy for Params {
    fn assessors(&self, path: &PathSpec) -> Vec<Box<dyn Assessor + Send>> {
        threshold::Params::default().assessors(path)
    }

    fn lacks(&self, mode: Mode) -> Option<&'static str> {
        lacks(mode)
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

/// Why a strategy with a tree does not have a mode.
pub(super) fn lacks(mode: Mode) -> Option<&'static str> {
    let is_other = matches!(mode, Mode::CostFirst | Mode::Interactive);
    is_other.then_some("its tree puts the paths in another order than that of their cost or delay")
}

/// What differs between the strategies with a tree.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) name: &'static str,
    pub(super) pairs: Pairs,
    pub(super) hold_ms: u32,
    pub(super) confidence: f64,
    pub(super) trials: f64,
    /// Those of the tree and of the store.
    pub(super) files: Option<[String; 2]>,
}

/// The files of a tree and of the store, if there are both.
pub(super) fn files(tree: Option<&String>, store: Option<&String>) -> Option<[String; 2]> {
    Some([tree?.clone(), store?.clone()])
}

impl Settings {
    pub(super) fn allocator(&self, mode: Mode, tree: Option<Arc<Tree>>) -> Box<dyn Allocator + Send> {
        let Settings { pairs, confidence, hold_ms, trials, ref files, .. } = *self;
        let rule = threshold::Params::default().one_of_radio(mode);
        let hold = Duration::from_millis(hold_ms.into());
        Box::new(Learned::new(learned::Params { pairs, hold, confidence, trials, swaps: files.is_some(), rule }, tree))
    }

    /// The strategy with its tree.
    ///
    /// # Errors
    /// The tree is for another strategy.
    pub(super) fn with(self, tree: Tree) -> Result<Arc<dyn Strategy>, String> {
        match tree.strategy() == self.name {
            true => Ok(Arc::new(Trained { settings: self, tree: Arc::new(tree) })),
            false => Err(format!("the tree is for strategy {:?}, and this is `{}`", tree.strategy(), self.name)),
        }
    }
}

/// A strategy that has its tree.
#[derive(Debug)]
struct Trained {
    settings: Settings,
    tree: Arc<Tree>,
}

impl Strategy for Trained {
    fn assessors(&self, path: &PathSpec) -> Vec<Box<dyn Assessor + Send>> {
        threshold::Params::default().assessors(path)
    }

    fn lacks(&self, mode: Mode) -> Option<&'static str> {
        lacks(mode)
    }

    fn allocator(&self, mode: Mode) -> Box<dyn Allocator + Send> {
        self.settings.allocator(mode, self.tree())
    }

    fn tree(&self) -> Option<Arc<Tree>> {
        Some(self.tree.clone())
    }

    fn refitting(&self) -> Option<Refitting> {
        let Settings { name, pairs, confidence, .. } = self.settings;
        let [tree_file, store_file] = self.settings.files.clone()?;
        Some(Refitting { strategy: name, tree_file, store_file, pairs, confidence })
    }
}
