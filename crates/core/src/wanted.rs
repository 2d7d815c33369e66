//! What an allocator wants of the paths, and an actuator carries out.

use alloc::vec::Vec;

use crate::path::{PathId, PathState, PerPath};

/// Maximum number of classes of connections after the default one.
pub const MAX_CLASSES: usize = 16;

/// A class of connections with separate wanted states; 0 is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionClass(pub u8);

/// In which order packet schedulers use the paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By the user's preference.
    #[default]
    Preference,
    /// None: for each packet the path that the scheduler selects.
    Free,
    /// These paths, the most preferred first, and then the others by the user's preference.
    Paths(Vec<PathId>),
}

impl Order {
    /// The paths that it names, the most preferred first.
    pub fn paths(&self) -> &[PathId] {
        match self {
            Order::Paths(paths) => paths,
            Order::Preference | Order::Free => &[],
        }
    }

    /// The same with other ids of the paths; a path without one is left out.
    pub fn map(&self, id: impl FnMut(&PathId) -> Option<PathId>) -> Order {
        match self {
            Order::Paths(paths) => Order::Paths(paths.iter().filter_map(id).collect()),
            other => other.clone(),
        }
    }

    /// Puts a path that is named first, or leaves it out.
    fn replace(&mut self, path: PathId, is_first: bool) {
        if let Order::Paths(paths) = self {
            paths.retain(|other| *other != path);
            if is_first {
                paths.insert(0, path);
            }
        }
    }
}

/// What an allocator wants of the paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The state of each path, for connections of the default class.
    states: PerPath<PathState>,
    /// The same for each further class.
    further: Vec<PerPath<PathState>>,
    order: Order,
}

impl From<PerPath<PathState>> for Wanted {
    /// The same states for all connections, in the user's order.
    fn from(states: PerPath<PathState>) -> Wanted {
        Wanted { states, ..Wanted::default() }
    }
}

impl FromIterator<PathState> for Wanted {
    fn from_iter<I: IntoIterator<Item = PathState>>(states: I) -> Wanted {
        states.into_iter().collect::<PerPath<PathState>>().into()
    }
}

impl Wanted {
    /// With this order of the paths.
    pub fn with_order(self, order: Order) -> Wanted {
        Wanted { order, ..self }
    }

    /// Sets the states for the connections of a class, whether it exists or is the next one.
    pub(crate) fn set_class(&mut self, class: ConnectionClass, states: PerPath<PathState>) {
        match usize::from(class.0).checked_sub(1) {
            None => self.states = states,
            Some(place) if place < self.further.len() => self.further[place] = states,
            Some(_) => self.further.push(states),
        }
    }

    fn classes_mut(&mut self) -> impl Iterator<Item = &mut PerPath<PathState>> {
        core::iter::once(&mut self.states).chain(&mut self.further)
    }

    /// The order of the paths.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// The state of each path for connections of the default class.
    pub fn states(&self) -> &[PathState] {
        &self.states
    }

    /// The same, to be changed.
    pub(crate) fn states_mut(&mut self) -> &mut [PathState] {
        &mut self.states
    }

    /// The state of a path for a class; an unknown class is the default one.
    pub fn state(&self, class: ConnectionClass, path: PathId) -> PathState {
        let further = usize::from(class.0).checked_sub(1).and_then(|place| self.further.get(place));
        further.unwrap_or(&self.states).get(usize::from(path.0)).copied().unwrap_or(PathState::Closed)
    }

    /// Sets the state of a path for all connections.
    pub(crate) fn set(&mut self, path: PathId, state: PathState) {
        let states = self.classes_mut().filter_map(|states| states.get_mut(usize::from(path.0)));
        states.for_each(|of_class| *of_class = state);
    }

    /// Only this path carries, for all connections; the others that carried are in reserve.
    pub(crate) fn prefer(&mut self, path: PathId) {
        for states in self.classes_mut() {
            states.iter_mut().for_each(|state| *state = (*state).min(PathState::Backup));
        }
        self.set(path, PathState::Active);
        self.order.replace(path, true);
    }

    /// Closes a path for all connections.
    pub(crate) fn close(&mut self, path: PathId) {
        self.set(path, PathState::Closed);
        self.order.replace(path, false);
    }
}
