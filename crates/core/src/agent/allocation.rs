//! What is wanted of the paths: an allocator for the default class of connections, and one
//! for each further class, over the same beliefs.
//!
//! An allocator has the states of its class as those until now. So what one class wants has no effect on
//! another. Demands and the order of the paths are those of the default class.

use alloc::boxed::Box;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::iter;

use super::path::Path;
use super::{Agent, Output};
use crate::actuator::Verdict;
use crate::allocate::{Allocator, PathInput, PathSupply};
use crate::demand::Object;
use crate::path::{MAX_PATHS, PathId, PathState, PerPath};
use crate::reason::Reason;
use crate::time::Instant;
use crate::wanted::{ConnectionClass, MAX_CLASSES, Wanted};

/// A class of connections after the default one.
pub(super) struct Class {
    allocator: Box<dyn Allocator + Send>,
    /// The wanted state of each path, and its reason.
    paths: Vec<(PathState, Reason)>,
}

impl Class {
    fn review(&mut self, now: Instant, paths: &[Path]) -> Option<Reason> {
        let mut supplies = supplies(paths);
        supplies.iter_mut().enumerate().for_each(|(path, supply)| supply.input.was = self.state(path));
        self.allocator.review(now, &supplies)
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.allocator.next_wakeup()
    }

    fn state(&self, place: usize) -> PathState {
        self.paths.get(place).map_or(PathState::Closed, |(state, _)| *state)
    }

    fn states(&self) -> PerPath<PathState> {
        self.paths.iter().map(|(state, _)| *state).collect()
    }
}

fn supplies(paths: &[Path]) -> PerPath<PathSupply<'_>> {
    paths.iter().map(Path::supply).collect()
}

fn class_at(place: usize) -> ConnectionClass {
    ConnectionClass((place + 1) as u8)
}

impl Agent {
    /// The same agent with further classes of connections, at most [`MAX_CLASSES`], and an
    /// allocator for each. The first has the number 1. To be called before the first input.
    pub fn with_classes(mut self, allocators: Vec<Box<dyn Allocator + Send>>) -> Agent {
        let of_class = |allocator| Class { allocator, paths: self.paths.iter().map(|_| Default::default()).collect() };
        self.classes = allocators.into_iter().take(MAX_CLASSES).map(of_class).collect();
        self.add_classes_to_wanted();
        self
    }

    pub(super) fn on_demand(&mut self, now: Instant, demand: &[Object]) {
        let reason = self.allocator.on_demand(now, demand, &supplies(&self.paths));
        while let Some(admission) = self.allocator.poll_admission() {
            self.reports.outputs.push_back(Output::Admission(admission));
        }
        if let Some(reason) = reason {
            self.allocate_default(now, |_, _| reason.clone());
            self.apply();
        }
    }

    /// Allocates again for the classes whose allocators ask for it.
    pub(super) fn review(&mut self, now: Instant) {
        let reason = self.allocator.review(now, &supplies(&self.paths));
        if let Some(reason) = reason {
            self.allocate_default(now, |_, _| reason.clone());
            self.apply();
        }
        if let Some(trial) = self.allocator.poll_trial() {
            self.reports.outputs.push_back(Output::Trial(trial));
        }
        for place in 0..self.classes.len() {
            if let Some(reason) = self.classes[place].review(now, &self.paths) {
                self.allocate_class(place, |_, _| reason.clone());
                self.apply();
            }
        }
    }

    /// Allocates for all classes.
    pub(super) fn allocate(&mut self, now: Instant, why: impl Fn(&[Path], usize) -> Reason) {
        self.allocate_default(now, &why);
        (0..self.classes.len()).for_each(|place| self.allocate_class(place, &why));
        self.apply();
    }

    pub(super) fn allocate_default(&mut self, now: Instant, why: impl Fn(&[Path], usize) -> Reason) {
        let inputs: PerPath<PathInput> = self.paths.iter().map(Path::input).collect();
        let mut wanted = self.allocator.allocate(&inputs);
        self.restrict(&mut wanted);
        for place in 0..self.paths.len() {
            let id = PathId(place as u8);
            let state = wanted.state(ConnectionClass::default(), id);
            if self.paths[place].state != state {
                let reason = why(&self.paths, place);
                self.paths[place].decide(now, id, state, reason, &mut self.reports);
            }
        }
        if wanted.order() != self.wanted.order() {
            let first = wanted.order().paths().first().map_or(0, |path| usize::from(path.0));
            let (order, reason) = (wanted.order().clone(), why(&self.paths, first));
            self.reports.outputs.push_back(Output::Order { order, reason });
        }
        self.wanted = wanted;
        self.add_classes_to_wanted();
    }

    /// The allocators of all classes, that of the default one first.
    pub(super) fn allocators(&mut self) -> impl Iterator<Item = &mut Box<dyn Allocator + Send>> {
        iter::once(&mut self.allocator).chain(self.classes.iter_mut().map(|class| &mut class.allocator))
    }

    fn add_classes_to_wanted(&mut self) {
        for (place, class) in self.classes.iter().enumerate() {
            self.wanted.set_class(class_at(place), class.states());
        }
    }

    fn allocate_class(&mut self, place: usize, why: impl Fn(&[Path], usize) -> Reason) {
        let class = &mut self.classes[place];
        let of_class = |(path, input): (usize, PathInput)| PathInput { was: class.state(path), ..input };
        let inputs: PerPath<PathInput> = self.paths.iter().map(Path::input).enumerate().map(of_class).collect();
        let mut wanted = class.allocator.allocate(&inputs);
        self.restrict(&mut wanted);
        self.classes[place].paths.resize_with(self.paths.len(), Default::default);
        for (path, PathInput { was, .. }) in inputs.into_iter().enumerate() {
            let id = PathId(path as u8);
            let state = wanted.state(ConnectionClass::default(), id);
            if was != state {
                let reason = why(&self.paths, path);
                self.classes[place].paths[path] = (state, reason.clone());
                let class = class_at(place);
                self.reports.outputs.push_back(Output::ClassDecision { class, path: id, state, was, reason });
            }
        }
        self.wanted.set_class(class_at(place), self.classes[place].states());
    }

    /// The reason why a class of connections has the wanted state of a path.
    pub fn reason_of(&self, class: ConnectionClass, path: PathId) -> Option<&Reason> {
        let place = usize::from(path.0);
        match usize::from(class.0).checked_sub(1).and_then(|place| self.classes.get(place)) {
            Some(class) => class.paths.get(place).map(|(_, reason)| reason),
            None => self.paths.get(place).map(|path| &path.state_reason),
        }
    }

    /// Applies the path preferred by request, and closes barred paths.
    fn restrict(&self, wanted: &mut Wanted) {
        self.apply_preference(wanted);
        let paths = self.paths.iter().enumerate();
        paths.filter(|(_, path)| path.is_barred()).for_each(|(place, _)| wanted.close(PathId(place as u8)));
    }

    /// Every class adopts the state of a path that was found, unless it wants more.
    pub(super) fn adopt_state(&mut self, path: PathId, found: PathState) {
        self.wanted.set(path, found);
        for class in &mut self.classes {
            if let Some((state, reason)) = class.paths.get_mut(usize::from(path.0)).filter(|(state, _)| *state < found)
            {
                (*state, *reason) = (found, Reason::plain("resync", "a subflow exists on it"));
            }
        }
        self.add_classes_to_wanted();
    }

    pub(super) fn apply(&mut self) {
        // A path without a decision of the class has no reason.
        let none = Reason::default();
        let mut further = ArrayVec::<&Reason, { MAX_PATHS * MAX_CLASSES }>::new();
        for place in 0..self.paths.len() {
            further.extend(self.classes.iter().map(|class| class.paths.get(place).map_or(&none, |(_, reason)| reason)));
        }
        let further_of = |place: usize| &further[place * self.classes.len()..][..self.classes.len()];
        let verdicts = self.paths.iter().enumerate().map(|(place, path)| Verdict {
            belief: path.belief,
            reason: &path.state_reason,
            further: further_of(place),
        });
        let verdicts: PerPath<Verdict> = verdicts.collect();
        self.actuators.iter_mut().for_each(|actuator| actuator.apply(&self.wanted, &verdicts));
    }
}
