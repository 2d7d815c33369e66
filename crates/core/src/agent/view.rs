//! What the engine knows of a path, and what speaks for it and against it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::changes::Change;
use super::path::Path;
use super::{Agent, Preferred};
use crate::allocate::Latest;
use crate::assess::Belief;
use crate::echo::EchoCounts;
use crate::mptcp::manager::{ConnectionChange, ConnectionView, PathUse};
use crate::mptcp::{MeasuredSubflow, Token};
use crate::path::{PathId, PathState};
use crate::reason::Reason;
use crate::time::Instant;
use crate::volume::Volume;

/// A path.
#[derive(Clone, Copy, Debug)]
pub struct PathView<'a> {
    /// Its id.
    pub id: PathId,
    /// Its name.
    pub name: &'a str,
    /// Rank in the user's preference, 0 first.
    pub rank: u8,
    /// The belief about it.
    pub belief: Belief,
    /// Its reason; an empty text while nothing is known.
    pub belief_reason: &'a Reason,
    /// When the belief changed.
    pub believed: Instant,
    /// Its wanted state.
    pub state: PathState,
    /// The reason of the last decision; an empty text before the first.
    pub state_reason: &'a Reason,
    /// When the state changed.
    pub decided: Instant,
    /// The latest measurements.
    pub latest: &'a Latest,
    /// The echo requests over it, if any are sent.
    pub echoes: Option<EchoCounts>,
}

/// What speaks for or against a path that is to carry data now.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// Whether it speaks for the path.
    pub is_for: bool,
    /// What it is.
    pub reason: Reason,
}

impl Agent {
    /// The subflows whose transport statistics are wanted as samples.
    pub fn subflows(&self) -> impl Iterator<Item = MeasuredSubflow> {
        self.subflows_after(None)
    }

    /// Those of the connections after a token, in the order of the tokens.
    pub fn subflows_after(&self, after: Option<Token>) -> impl Iterator<Item = MeasuredSubflow> {
        self.actuators.iter().flat_map(move |actuator| actuator.subflows(after))
    }

    /// One of them, by its connection and its local and remote address.
    pub fn subflow(&self, token: Token, local: SocketAddr, remote: SocketAddr) -> Option<MeasuredSubflow> {
        self.actuators.iter().find_map(|actuator| actuator.subflow(token, local, remote))
    }

    /// The first time after the last query at which their statistics are wanted although no regular query is due: a belief
    /// changes then, unless something is acknowledged until then.
    pub fn query_at(&self, last: Instant) -> Option<Instant> {
        let assessors = self.paths.iter().flat_map(|path| &path.assessors);
        assessors.filter_map(|assessor| assessor.query_at()).filter(|at| *at > last).min()
    }

    /// Number of connections since the start that no actuator manages for lack of room.
    pub fn left_out(&self) -> u64 {
        self.actuators.iter().map(|actuator| actuator.left_out()).sum()
    }

    /// Name, belief and wanted state of each path.
    pub fn paths(&self) -> impl Iterator<Item = (&str, Belief, PathState)> {
        self.paths.iter().map(|path| (&*path.name, path.belief, path.state))
    }

    /// Maximum number of bytes that a sender should have written and not acknowledged;
    /// `None`: only its send buffer limits it.
    pub fn backlog_bytes(&self) -> Option<u64> {
        self.allocator.backlog_bytes()
    }

    /// The paths that exist.
    pub fn views(&self) -> impl Iterator<Item = PathView<'_>> {
        let paths = self.paths.iter().enumerate().filter(|(_, path)| !path.removed);
        paths.map(|(place, path)| PathView {
            id: PathId(place as u8),
            name: &path.name,
            rank: path.rank,
            belief: path.belief,
            belief_reason: &path.reason,
            believed: path.believed,
            state: path.state,
            state_reason: &path.state_reason,
            decided: path.decided,
            latest: &path.latest,
            echoes: self.echoes.counts(PathId(place as u8)),
        })
    }

    /// The last changes of belief and state of each path that exists, the oldest first.
    pub fn changes(&self) -> impl DoubleEndedIterator<Item = &Change> {
        let exists = |change: &&Change| self.paths.get(usize::from(change.path.0)).is_some_and(|path| !path.removed);
        self.reports.changes.iter().filter(exists)
    }

    /// Connections, in the order of their tokens: at most `limit`, the first the next one
    /// after a token.
    pub fn connections(&self, after: Option<Token>, limit: usize) -> Vec<ConnectionView> {
        self.actuators.iter().flat_map(|actuator| actuator.connections(after, limit)).collect()
    }

    /// Number of managed connections.
    pub fn connection_count(&self) -> usize {
        self.actuators.iter().map(|actuator| actuator.connection_count()).sum()
    }

    /// What the network of each path, or of all (`None`), does to the connections.
    pub fn network_faults(&self, now: Instant) -> Vec<(Option<PathId>, Reason)> {
        self.actuators.iter().flat_map(|actuator| actuator.network_faults(now)).collect()
    }

    /// How a connection uses each path; `None`: it is not managed.
    pub fn path_uses(&self, now: Instant, token: Token) -> Option<Vec<PathUse>> {
        self.actuators.iter().find_map(|actuator| actuator.path_uses(now, token))
    }

    /// What happened last to a connection, the oldest first.
    pub fn history(&self, token: Token) -> Vec<ConnectionChange> {
        self.actuators.iter().flat_map(|actuator| actuator.history(token)).collect()
    }

    /// What speaks for and against a path now: its assessors, the preference, a request.
    pub fn arguments(&self, id: PathId) -> Vec<Argument> {
        let Some(path) = self.paths.get(usize::from(id.0)) else { return Vec::new() };
        let argument = |is_for, reason| Argument { is_for, reason };
        let beliefs = path.assessors.iter().map(|assessor| assessor.belief());
        let known = beliefs.filter(|(belief, _)| *belief != Belief::Unknown || path.belief == Belief::Unknown);
        let of_assessors = known.filter(|(_, reason)| !reason.is_empty());
        let mut arguments: Vec<Argument> =
            of_assessors.map(|(belief, reason)| argument(belief == Belief::Good, reason.clone())).collect();
        if arguments.is_empty() && path.belief == Belief::Unknown {
            arguments.push(argument(false, Reason::plain("sample.none", "no sample of it yet")));
        }
        if let Some(Preferred { path: preferred, .. }) = self.preferred {
            let name = &self.paths[usize::from(preferred.0)].name;
            arguments.push(argument(preferred == id, Reason::plain("prefer.request", requested(name))));
        }
        if path.volume != Volume::Available {
            arguments.push(argument(false, path.volume_reason.clone()));
        }
        arguments
            .extend(self.preference(path).map(|(is_for, text)| argument(is_for, Reason::plain("preference", text))));
        arguments
    }

    /// What the user's preference among the good paths means for one.
    fn preference(&self, path: &Path) -> Option<(bool, String)> {
        let is_good = |other: &&Path| other.belief == Belief::Good && !other.removed;
        let first = self.paths.iter().filter(is_good).min_by_key(|other| other.rank);
        match first {
            None if path.state == PathState::Active => Some((true, "no path is good: this is a last resort".into())),
            None => None,
            Some(first) if path.belief == Belief::Good && first.rank >= path.rank => {
                Some((true, "it is the most preferred of the good paths".into()))
            }
            Some(first) if first.rank < path.rank => Some((false, format!("{} is good, and preferred", first.name))),
            Some(_) => None,
        }
    }
}

pub(super) fn requested(name: &str) -> String {
    format!("{name} is preferred by request")
}
