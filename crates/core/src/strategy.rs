//! The agent's strategies: each is a choice of assessors and an allocator, with parameters.
//!
//! A strategy is a file in this folder and a line of [`CATALOG`]. Strategies from papers
//! have the papers' names, ours are named after what they do.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::allocate::learned::Pairs;
use crate::allocate::learned::tree::Tree;
use crate::allocate::{Allocator, Mode};
use crate::assess::Assessor;
use crate::parameters::{Field, List, ParameterError, Table, list, read};
use crate::path::{PathSpec, Rat};

pub mod adaptive;
pub mod deadline;
pub mod hapanchak;
pub mod learned;
pub mod mp_dpa;
pub mod smartps;
pub mod threshold;
pub mod torrinhas;

/// All of them, in the order in which messages and pages name them.
pub static CATALOG: [Entry; 8] = [
    hapanchak::ENTRY,
    threshold::ENTRY,
    adaptive::ENTRY,
    mp_dpa::ENTRY,
    deadline::ENTRY,
    torrinhas::ENTRY,
    smartps::ENTRY,
    learned::ENTRY,
];

/// A strategy with its parameters.
pub trait Strategy: fmt::Debug + Send + Sync {
    /// Assessors for one path; the greatest of their beliefs applies.
    fn assessors(&self, path: &PathSpec) -> Vec<Box<dyn Assessor + Send>>;

    /// Why it does not have this mode of use, if it does not.
    fn lacks(&self, _mode: Mode) -> Option<&'static str> {
        None
    }

    /// The allocator for a mode of use that it [has](Self::lacks).
    fn allocator(&self, mode: Mode) -> Box<dyn Allocator + Send>;

    /// Whether it prefers paths by the deadlines of the traffic, and needs them.
    fn needs_deadlines(&self) -> bool {
        false
    }

    /// Whether it judges paths that carry nothing by echo requests.
    fn uses_echoes(&self) -> bool {
        false
    }

    /// Name of the file with the tree that it is to use, if it has one.
    fn tree_file(&self) -> Option<&str> {
        None
    }

    /// The tree that it uses.
    fn tree(&self) -> Option<Arc<Tree>> {
        None
    }

    /// What a tree is fitted again from, if its trials are stored.
    fn refitting(&self) -> Option<Refitting> {
        None
    }

    /// The same strategy with the tree of that file.
    ///
    /// # Errors
    /// It is not for this strategy.
    fn with_tree(&self, _tree: Tree) -> Result<Arc<dyn Strategy>, String> {
        Err("this strategy has no tree".into())
    }
}

/// How the tree of a strategy is fitted again.
#[derive(Clone, Debug, PartialEq)]
pub struct Refitting {
    /// The strategy.
    pub strategy: &'static str,
    /// Name of the tree's file.
    pub tree_file: String,
    /// Name of the file with what the trials showed.
    pub store_file: String,
    /// The pairs of paths that the tree is for.
    pub pairs: Pairs,
    /// Least share of the training windows in a leaf that agree (0.5 to 1).
    pub confidence: f64,
}

/// A strategy in the catalogue.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in configurations, scenarios and records.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Its parameters.
    pub parameters: fn() -> List,
    read: fn(Table) -> Result<Arc<dyn Strategy>, ParameterError>,
}

impl Entry {
    /// The entry of a strategy whose parameters are `P`.
    pub const fn new<P: Field + Default + Strategy + 'static>(name: &'static str, what: &'static str) -> Entry {
        Entry { name, what, parameters: list::<P>, read: |table| Ok(Arc::new(read::<P>(table)?)) }
    }

    /// The strategy with these parameters; those that are absent have their defaults.
    ///
    /// # Errors
    /// The first parameter that does not exist or is invalid.
    pub fn read(&self, parameters: Table) -> Result<Arc<dyn Strategy>, ParameterError> {
        (self.read)(parameters)
    }

    /// Why it [lacks](Strategy::lacks) a mode of use, if it does.
    pub fn lacks(&self, mode: Mode) -> Option<&'static str> {
        self.read(Table::new()).ok()?.lacks(mode)
    }

    /// Whether it [needs deadlines](Strategy::needs_deadlines).
    pub fn needs_deadlines(&self) -> bool {
        self.read(Table::new()).is_ok_and(|strategy| strategy.needs_deadlines())
    }

    /// Whether it [uses echo requests](Strategy::uses_echoes).
    pub fn uses_echoes(&self) -> bool {
        self.read(Table::new()).is_ok_and(|strategy| strategy.uses_echoes())
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.name == other.name
    }
}

impl Eq for Entry {}

/// The strategy `name`.
///
/// # Errors
/// No strategy has this name; the message names those that exist.
pub fn find(name: &str) -> Result<&'static Entry, String> {
    CATALOG.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<&str> = CATALOG.iter().map(|entry| entry.name).collect();
        format!("there is no strategy {name:?}, only {}", known.join(", "))
    })
}

/// The threshold of a path by its access technology; `None`: only its interface counts.
/// Without a separate one, Wi-Fi has that of 802.11p.
fn threshold_of(path: &PathSpec, ieee80211p_dbm: f64, wifi_dbm: Option<f64>, cellular_dbm: Option<f64>) -> Option<f64> {
    match path.rat {
        Rat::Ieee80211p => Some(ieee80211p_dbm),
        Rat::Wifi => Some(wifi_dbm.unwrap_or(ieee80211p_dbm)),
        Rat::Lte | Rat::Nr => cellular_dbm,
        Rat::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_strategy_has_a_separate_name_and_reads_its_defaults() {
        for entry in &CATALOG {
            assert_eq!(CATALOG.iter().filter(|other| *other == entry).count(), 1, "{entry:?}");
            assert_eq!(find(entry.name), Ok(entry));
            assert!(entry.read(Table::new()).is_ok(), "{entry:?}");
        }
        assert_eq!(
            find("treshold"),
            Err("there is no strategy \"treshold\", only hapanchak, threshold, adaptive, mp-dpa, deadline-mptcp, torrinhas, smartps, learned"
                .into())
        );
    }

    #[test]
    fn wifi_has_a_separate_threshold_or_that_of_80211p() {
        let of = |rat, wifi_dbm| {
            threshold_of(
                &PathSpec { name: "a".into(), rat, local: None, if_index: 0, radio: None },
                -82.0,
                wifi_dbm,
                None,
            )
        };
        assert_eq!(of(Rat::Ieee80211p, Some(-75.0)), Some(-82.0));
        assert_eq!((of(Rat::Wifi, Some(-75.0)), of(Rat::Wifi, None)), (Some(-75.0), Some(-82.0)));
        assert_eq!((of(Rat::Nr, Some(-75.0)), of(Rat::Other, Some(-75.0))), (None, None));
    }
}
