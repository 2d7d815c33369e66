//! The paths of the path manager, and their wanted states.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::joins::Joins;
use crate::path::{PathId, PathSpec, PathState};
use crate::reason::Reason;
use crate::recent::push_recent;
use crate::time::Duration;
use crate::wanted::{ConnectionClass, Wanted};

/// Maximum number of former addresses of paths.
const MAX_FORMER: usize = 64;

/// The paths and their wanted states.
#[derive(Debug, Default)]
pub(super) struct Paths {
    pub specs: Vec<PathSpec>,
    pub wanted: Wanted,
    /// The reason of each path's wanted state, for each class, and its words.
    pub reasons: Vec<Vec<(Reason, Arc<str>)>>,
    /// Lost paths.
    pub lost: Vec<bool>,
    /// Joins that failed.
    pub joins: Joins,
    pub overlap: Duration,
    /// Former addresses of paths, the oldest first: a subflow from one may become known
    /// only now.
    pub former: VecDeque<(IpAddr, PathId)>,
}

/// The plan for one connection: the paths, and the states that its class wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan<'a> {
    pub paths: &'a Paths,
    pub class: ConnectionClass,
}

impl Plan<'_> {
    pub fn wanted(self, path: PathId) -> PathState {
        self.paths.wanted.state(self.class, path)
    }
}

impl Paths {
    pub fn ids(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.specs.len()).map(|place| PathId(place as u8))
    }

    /// The name of a path.
    pub fn name(&self, path: PathId) -> String {
        self.specs.get(usize::from(path.0)).map_or_else(String::new, |spec| spec.name.clone())
    }

    pub fn is_lost(&self, path: PathId) -> bool {
        self.lost.get(usize::from(path.0)).is_some_and(|lost| *lost)
    }

    /// Local address on a path, and the index of its interface.
    pub fn address(&self, path: PathId) -> Option<(IpAddr, u32)> {
        let spec = self.specs.get(usize::from(path.0))?;
        Some((spec.local?, spec.if_index))
    }

    pub fn path_of(&self, local: IpAddr) -> Option<PathId> {
        let local = local.to_canonical();
        let place = self.specs.iter().position(|path| path.local == Some(local))?;
        Some(PathId(place as u8))
    }

    pub fn former_path_of(&self, local: IpAddr) -> Option<PathId> {
        self.former.iter().rfind(|(address, _)| *address == local).map(|&(_, path)| path)
    }

    /// Adds a former address of a path; the oldest one makes room.
    pub fn add_former(&mut self, path: PathId, local: IpAddr) {
        self.former.retain(|known| *known != (local, path));
        push_recent(&mut self.former, MAX_FORMER, (local, path));
    }
}
