//! Actuators: wanted states of the paths in, commands out.
//!
//! An actuator knows no strategy. The agent passes every decision, with its reasons, and
//! every event to each of its actuators. To add one: a file here, its variant of
//! [`Command`], and the driver that carries out the command.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::assess::{Belief, StalledSubflow};
use crate::mptcp::{self, ConnectionSnapshot, Notice, Refusal, Token};
use crate::path::{PathId, PathSpec, PathState};
use crate::time::Instant;

mod mptcp_subflows;
mod tunnel_paths;

pub use tunnel_paths::{Steering, TunnelPaths};

/// A class of connections with wanted states of its own; 0 is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionClass(pub u8);

/// What an allocator wants of the paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// For each class of connections the state of each path.
    classes: Vec<Vec<PathState>>,
    /// The paths, the most preferred first; empty: the user's preference applies.
    order: Vec<PathId>,
}

impl From<Vec<PathState>> for Wanted {
    /// The same states for all connections, in the user's order.
    fn from(states: Vec<PathState>) -> Wanted {
        Wanted { classes: Vec::from([states]), order: Vec::new() }
    }
}

impl FromIterator<PathState> for Wanted {
    fn from_iter<I: IntoIterator<Item = PathState>>(states: I) -> Wanted {
        states.into_iter().collect::<Vec<PathState>>().into()
    }
}

impl Wanted {
    /// With this order of the paths.
    pub fn with_order(self, order: Vec<PathId>) -> Wanted {
        Wanted { order, ..self }
    }

    /// With other states for the connections of a further class; returns the class too.
    pub fn with_class(mut self, states: Vec<PathState>) -> (Wanted, ConnectionClass) {
        self.classes.push(states);
        let class = ConnectionClass((self.classes.len() - 1) as u8);
        (self, class)
    }

    /// The paths, the most preferred first; empty: the user's preference applies.
    pub fn order(&self) -> &[PathId] {
        &self.order
    }

    /// The state of each path for connections of the default class.
    pub fn states(&self) -> &[PathState] {
        self.classes.first().map_or(&[], Vec::as_slice)
    }

    /// The state of a path for a class; an unknown class is the default one.
    pub fn state(&self, class: ConnectionClass, path: PathId) -> PathState {
        let states = self.classes.get(usize::from(class.0)).or(self.classes.first());
        states.and_then(|states| states.get(usize::from(path.0))).copied().unwrap_or(PathState::Closed)
    }

    /// Closes a path for all connections.
    pub(crate) fn close(&mut self, path: PathId) {
        let states = self.classes.iter_mut().filter_map(|states| states.get_mut(usize::from(path.0)));
        states.for_each(|state| *state = PathState::Closed);
        self.order.retain(|other| *other != path);
    }
}

/// What is known of a path when its wanted state is decided.
#[derive(Clone, Copy, Debug)]
pub struct Verdict<'a> {
    /// The belief about it.
    pub belief: Belief,
    /// The reason for its wanted state, one sentence; empty until a decision.
    pub reason: &'a str,
}

/// An event for actuators; each processes those that concern it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An event of the kernel's MPTCP.
    Mptcp(mptcp::Event),
    /// The list of all MPTCP connections, after a start or after events were lost.
    Resync(Vec<ConnectionSnapshot>),
    /// The kernel refused an MPTCP command, for this reason.
    Refused(mptcp::Command, Refusal),
    /// An MPTCP connection belongs to this class.
    Class(Token, ConnectionClass),
    /// A subflow is stalled while others of its path carry data.
    Stalled(PathId, StalledSubflow),
    /// The tunnel began to run.
    TunnelStarted,
    /// The address of a path changed or was removed.
    Address {
        /// The path.
        path: PathId,
        /// Local address on it.
        local: Option<IpAddr>,
        /// Index of its interface.
        if_index: u32,
    },
    /// An address that a path had before the agent started; subflows from it may
    /// remain.
    FormerAddress {
        /// The path.
        path: PathId,
        /// The address.
        local: IpAddr,
    },
    /// A path was added, or replaces a removed one.
    PathAdded(PathId, PathSpec),
}

/// A command to what carries data.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// To the kernel's MPTCP, about a subflow or address of this path.
    Mptcp(PathId, mptcp::Command),
    /// To the tunnel.
    Tunnel(Steering),
}

/// An output of an actuator.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A command to execute.
    Command(Command),
    /// A notice to the user.
    Notice(Notice),
}

/// A subflow whose transport statistics describe its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredSubflow {
    /// Its connection.
    pub token: Token,
    /// Its path.
    pub path: PathId,
    /// Local address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// True if this endpoint accepted the connection.
    pub accepted: bool,
}

/// Carries out the wanted states of paths for one kind of transport; a loop like that of
/// every [`Engine`](crate::engine::Engine).
pub trait Actuator: Send {
    /// Applies the wanted states; `verdicts` has one entry for each path.
    fn apply(&mut self, now: Instant, wanted: &Wanted, verdicts: &[Verdict]);

    /// Processes an event.
    fn handle(&mut self, now: Instant, event: &Event);

    /// The next output due at `now`, if any.
    fn poll(&mut self, now: Instant) -> Option<Output>;

    /// When to poll again if nothing else happens; `None`: never.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    /// The state in which paths already are according to an event, so that an agent
    /// that starts in the middle of a connection adopts it.
    fn found(&self, _event: &Event) -> Vec<(PathId, PathState)> {
        Vec::new()
    }

    /// The subflows to measure.
    fn subflows(&self) -> Box<dyn Iterator<Item = MeasuredSubflow> + '_> {
        Box::new(core::iter::empty())
    }

    /// Number of connections since the start that are left to the kernel for lack of
    /// room.
    fn left_out(&self) -> u64 {
        0
    }
}

/// The reason for a path's state as an owned sentence.
fn sentences(verdicts: &[Verdict]) -> Vec<String> {
    verdicts.iter().map(|verdict| verdict.reason.into()).collect()
}
