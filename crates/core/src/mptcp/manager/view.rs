//! What the path manager knows of its connections.

use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Bound;

use super::plan::Plan;
use super::{Manager, Token};
use crate::path::{PathId, PathState};
use crate::reason::Reason;
use crate::time::Instant;
use crate::wanted::ConnectionClass;

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionView {
    /// The connection.
    pub token: Token,
    /// Its class.
    pub class: ConnectionClass,
    /// The peer's address and port when the connection began.
    pub peer: Option<SocketAddr>,
    /// True if this endpoint accepted it.
    pub accepted: bool,
    /// True if it accepts further subflows.
    pub established: bool,
    /// True if the in-kernel path manager manages it.
    pub is_foreign: bool,
    /// Its subflows that are known.
    pub subflows: Vec<SubflowView>,
}

/// A subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubflowView {
    /// Its path.
    pub path: PathId,
    /// Local address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Whether it is active or a backup; closed: it is being closed.
    pub state: PathState,
    /// When it was opened, or found.
    pub opened: Instant,
}

/// How a connection uses a path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathUse {
    /// The path.
    pub path: PathId,
    /// The wanted state of its subflow.
    pub wanted: PathState,
    /// The present state; closed: there is none.
    pub state: PathState,
    /// The reason for a difference of the two; an empty text if there is none.
    pub reason: Reason,
}

impl Manager {
    /// Number of managed connections.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// At most `limit` connections in the order of their tokens, from the next one after a
    /// token on.
    pub fn views(&self, after: Option<Token>, limit: usize) -> Vec<ConnectionView> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let connections = self.connections.range((from, Bound::Unbounded)).take(limit);
        connections.map(|(&token, connection)| connection.view(token)).collect()
    }

    /// How a connection uses each path; `None`: it is not managed.
    pub fn path_uses(&self, now: Instant, token: Token) -> Option<Vec<PathUse>> {
        let connection = self.connections.get(&token)?;
        let plan = Plan { paths: &self.paths, class: connection.class };
        Some(plan.paths.ids().map(|path| connection.path_use(now, plan, path)).collect())
    }
}
