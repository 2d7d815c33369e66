//! What the user prefers while the agent runs: a path, an order of the paths, a mode, an end of its volume.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Agent;
use super::path::Path;
use super::view::requested;
use crate::allocate::Allocator;
use crate::allocate::learned::tree::Tree;
use crate::assess::Belief;
use crate::path::{PathId, PathState};
use crate::reason::Reason;
use crate::time::Instant;
use crate::volume::Volume;
use crate::wanted::Wanted;

/// A path that the user prefers: it carries alone while it is good, with the others in reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preferred {
    /// The path.
    pub path: PathId,
    /// Until when; `None`: until another request.
    pub until: Option<Instant>,
}

impl Agent {
    /// The path that the user prefers.
    pub fn preferred(&self) -> Option<Preferred> {
        self.preferred
    }

    /// Replaces the allocator of the default class, for another mode of use; the beliefs stay.
    pub fn set_allocator(&mut self, now: Instant, allocator: Box<dyn Allocator + Send>, reason: &Reason) {
        self.allocator = allocator;
        self.allocate_default(now, |_, _| reason.clone());
        self.apply();
    }

    /// Replaces the tree that orders the paths, for all classes of connections. The present order stands until the
    /// end of the window; without a tree the user's order applies at once.
    pub fn set_tree(&mut self, now: Instant, tree: Option<&Arc<Tree>>, reason: &Reason) {
        self.allocators().for_each(|allocator| allocator.set_tree(tree.cloned()));
        self.allocate(now, |_, _| reason.clone());
    }

    /// Sets the rank of each path in the user's preference (0 first), in the order of their ids.
    pub fn set_ranks(&mut self, now: Instant, ranks: impl Iterator<Item = u8>, reason: &Reason) {
        self.paths.iter_mut().zip(ranks).for_each(|(path, rank)| path.rank = rank);
        self.allocate(now, |_, _| reason.clone());
    }

    /// Sets the price of a byte over each path, in the order of their ids, also of those that are added later. The
    /// unit is the same for all; without prices the list is empty.
    pub fn set_unit_costs(&mut self, unit_costs: Vec<f64>) {
        for (place, path) in self.paths.iter_mut().enumerate() {
            path.unit_cost = unit_costs.get(place).copied();
        }
        self.unit_costs = unit_costs;
    }

    /// What is left of a path's volume. A path that is used up is closed like one that is removed.
    pub(super) fn set_volume(&mut self, now: Instant, id: PathId, volume: Volume, reason: Reason) {
        let Some(path) = self.paths.get_mut(usize::from(id.0)).filter(|path| !path.removed) else { return };
        let was = core::mem::replace(&mut path.volume, volume);
        path.volume_reason = reason.clone();
        if was != volume {
            self.allocate(now, |_, _| reason.clone());
        }
    }

    pub(super) fn prefer(&mut self, now: Instant, preferred: Option<Preferred>) {
        let path = |of: Preferred| self.paths.get(usize::from(of.path.0)).filter(|path| !path.removed);
        let reason = match preferred {
            None => Reason::plain("prefer.end", "no path is preferred by request any more"),
            Some(preferred) => {
                let Some(path) = path(preferred) else { return };
                Reason::plain("prefer.request", requested(&path.name))
            }
        };
        self.preferred = preferred;
        self.allocate(now, |_, _| reason.clone());
    }

    /// When the preferred path is preferred no more.
    pub(super) fn preference_end(&self) -> Option<Instant> {
        self.preferred.and_then(|preferred| preferred.until)
    }

    pub(super) fn end_preference(&mut self, now: Instant) {
        if self.preference_end().is_none_or(|until| now < until) {
            return;
        }
        if let Some(Preferred { path, .. }) = self.preferred.take() {
            let name = &self.paths[usize::from(path.0)].name;
            let reason = Reason::plain("prefer.end", format!("{name} is preferred by request no more"));
            self.allocate(now, |_, _| reason.clone());
        }
    }

    /// The path on which a new connection should begin: of the good paths that are active, one that is not `avoided`,
    /// the first in the strategy's order, and among others the most preferred one. If none is good, `present` stays, unless
    /// nothing may use it; `None`: any path.
    pub fn first_path(&self, present: Option<PathId>, avoided: &[PathId]) -> Option<PathId> {
        let order = self.wanted.order().paths();
        let merit = |id: &PathId| {
            let place = order.iter().position(|named| named == id).unwrap_or(usize::MAX);
            (avoided.contains(id), place, self.paths[usize::from(id.0)].rank)
        };
        let carries = |(_, path): &(u8, &Path)| path.state == PathState::Active && path.input().belief == Belief::Good;
        let carrying = (0..).zip(&self.paths).filter(carries).map(|(id, _)| PathId(id));
        let may_be_used = |id: &PathId| self.paths.get(usize::from(id.0)).is_some_and(|path| !path.is_barred());
        carrying.min_by_key(merit).or(present.filter(may_be_used))
    }

    pub(super) fn apply_preference(&self, wanted: &mut Wanted) {
        let Some(Preferred { path: id, .. }) = self.preferred else { return };
        let path = &self.paths[usize::from(id.0)];
        if path.belief == Belief::Good && !path.is_barred() {
            wanted.prefer(id);
        }
    }
}
