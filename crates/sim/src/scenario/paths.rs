//! The paths of a scenario, and their order of preference.

use crosslane_core::path::PathId;

use super::{PathEntry, Scenario, Strategy};

impl Scenario {
    /// The paths, in order of their id.
    pub fn paths(&self) -> Vec<PathEntry<'_>> {
        let radios = self.radios.iter().map(|radio| (&radio.name, radio.rat));
        let access = self.access.iter().map(|link| (&link.name, link.rat));
        radios.chain(access).zip(0..).map(|((name, rat), id)| PathEntry { id: PathId(id), name, rat }).collect()
    }

    /// Id of the path with this name.
    pub fn path_id(&self, name: &str) -> Option<PathId> {
        self.paths().into_iter().find(|path| path.name == name).map(|path| path.id)
    }

    /// Rank of each path in the user's preference, 0 first, in order of path id;
    /// paths that are not named follow in that order.
    pub fn ranks(&self) -> Vec<u8> {
        let named = |name: &str| self.service.prefer.iter().position(|other| other == name);
        let after = self.service.prefer.len();
        let paths = self.paths().into_iter();
        paths.map(|path| named(path.name).unwrap_or(after + usize::from(path.id.0)) as u8).collect()
    }

    /// The path that the user prefers; path 0 if none is named.
    pub fn preferred_path(&self) -> PathId {
        self.service.prefer.first().and_then(|name| self.path_id(name)).unwrap_or(PathId(0))
    }

    /// The path of the first subflow.
    pub fn first_path(&self) -> PathId {
        let named = self.traffic.over.as_ref().and_then(|name| self.path_id(name));
        named.unwrap_or_else(|| self.preferred_path())
    }

    /// The path of strategy `single` and of third-party tunnels.
    pub fn single_path(&self, strategy: &Strategy) -> PathId {
        strategy.path().and_then(|name| self.path_id(name)).unwrap_or_else(|| self.preferred_path())
    }
}

impl Strategy {
    /// The path that a strategy over one path names.
    pub(super) fn path(&self) -> Option<&str> {
        self.parameters.get("path").filter(|_| self.keeps_to_one_path())?.as_str()
    }
}
