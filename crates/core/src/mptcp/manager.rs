//! The path manager: wanted path states and kernel events in, commands out.
//!
//! For each connection it compares the existing subflows with the wanted states and
//! issues commands for the difference, in the order that keeps data flowing:
//! 1. withdraw and close subflows whose address is gone, so that the peer has room
//!    (REMOVE_ADDR is sent over another subflow, a FIN would not arrive);
//! 2. open subflows that are to carry data, or clear their backup flag;
//! 3. when another subflow has carried for the overlap, demote those that are not to
//!    carry;
//! 4. close unwanted subflows, at once if another exists, so that the kernel
//!    retransmits their data over that one. The last one is never closed; if a peer has
//!    no room for a wanted one, all but one are closed.
//!
//! It never requests a subflow twice (the kernel would open two), and uses the id that
//! the connection already has for an address (else the kernel reports "did not match
//! address and id"). Issued commands count as executed until the driver reports
//! otherwise, since the kernel sends no SUB_PRIORITY event to the program that set the
//! flag.
//!
//! Refused or failed commands are retried after pauses that grow. A subflow that is
//! reset as soon as it is open has failed; if that happens repeatedly while others
//! live, the peer has no room for more. Connections unknown to the kernel are
//! forgotten, those of the in-kernel path manager are not managed. Commands are issued
//! one by one as they are polled, as fast as the rate limit allows: a waiting
//! connection is compared with the wanted states only when its turn comes.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::ops::Bound;

use super::{Command, ConnectionSnapshot, Event, MeasuredSubflow, Notice, Refusal, Token};
use crate::path::{PathId, PathSpec, PathState};
use crate::time::{Duration, Instant};
use crate::wanted::{ConnectionClass, Wanted};
use budget::Budget;
use connection::{Commands, Connection};
use fallbacks::Fallbacks;
use plan::{Paths, Plan};

mod backoff;
mod budget;
mod connection;
mod entry;
mod fallbacks;
mod history;
mod ids;
mod joins;
mod notices;
mod plan;
mod view;

/// Default overlap of two subflows, of the program and of the simulator.
pub const DEFAULT_OVERLAP: Duration = Duration::from_millis(10);

pub use connection::MAX_SUBFLOWS;
pub use history::{CloseCause, ConnectionChange, ConnectionEvent};
pub use view::{ConnectionView, PathUse, SubflowView};

/// Maximum number of managed connections; further ones are left to the kernel.
pub const MAX_CONNECTIONS: usize = 1024;
/// Minimum time before a connection is compared again.
const MIN_WAIT: Duration = Duration::from_millis(1);

/// The state machine.
#[derive(Debug, Default)]
pub struct Manager {
    paths: Paths,
    excluded: Vec<IpAddr>,
    connections: BTreeMap<Token, Connection>,
    /// Connections to be compared with the wanted states, in the order of request.
    queue: VecDeque<Token>,
    wakeups: BTreeSet<(Instant, Token)>,
    commands: Commands,
    budget: Budget,
    notices: VecDeque<Notice>,
    foreign: usize,
    left_out: u64,
    waits_since: Option<Instant>,
    peers: BTreeMap<IpAddr, u8>,
    fallbacks: Fallbacks,
}

impl Manager {
    /// A manager of these paths (at most 16), all closed at first. `overlap` is how
    /// long two subflows carry data together before one is demoted.
    pub fn new(paths: Vec<PathSpec>, overlap: Duration) -> Manager {
        Manager { paths: Paths { specs: paths, overlap, ..Paths::default() }, ..Manager::default() }
    }

    /// Excludes connections from these addresses, e.g. those inside a tunnel: a subflow outside it would bypass it.
    pub fn leave_alone(&mut self, addresses: Vec<IpAddr>) {
        self.excluded = addresses;
    }

    /// Sets the wanted state of each path. One that is wanted again, or is to carry, starts without earlier pauses.
    pub fn set_wanted(&mut self, wanted: &Wanted) {
        if self.paths.wanted == *wanted {
            return;
        }
        let was = core::mem::replace(&mut self.paths.wanted, wanted.clone());
        for path in self.paths.ids() {
            let mut is_to_carry = false;
            for connection in self.connections.values_mut() {
                let (before, now) = (was.state(connection.class, path), wanted.state(connection.class, path));
                if before != now {
                    connection.on_wanted_change(path, before == PathState::Closed || now == PathState::Active);
                    is_to_carry |= now == PathState::Active;
                }
            }
            if is_to_carry {
                self.paths.joins.revive_unanswered(path);
            }
        }
        self.queue_all();
    }

    /// Sets the class of a connection, by which its wanted states are chosen.
    pub fn set_class(&mut self, token: Token, class: ConnectionClass) {
        self.with(token, |connection, plan| connection.set_class(plan, class));
    }

    /// Adds a path, or another one in the place of a removed one.
    pub fn add_path(&mut self, now: Instant, path: PathId, spec: PathSpec) {
        let (local, if_index) = (spec.local, spec.if_index);
        match self.paths.specs.get_mut(usize::from(path.0)) {
            Some(removed) => removed.name = spec.name,
            None => self.paths.specs.push(PathSpec { local: None, ..spec }),
        }
        self.set_address(now, path, local, if_index);
    }

    /// Sets which paths are lost. The address of a subflow closed on a lost path is
    /// withdrawn over another: no FIN would reach the peer, which would continue to
    /// send there.
    pub fn set_lost(&mut self, lost: Vec<bool>) {
        for path in self.paths.ids().collect::<Vec<_>>() {
            let is_back = self.paths.is_lost(path) && !lost.get(usize::from(path.0)).is_some_and(|lost| *lost);
            if is_back {
                self.paths.joins.revive(path);
            }
        }
        self.paths.lost = lost;
    }

    /// Sets the address of a path; `None`: it has none. Subflows from the old one
    /// cannot carry data any more and are closed.
    pub fn set_address(&mut self, now: Instant, path: PathId, local: Option<IpAddr>, if_index: u32) {
        let Some(spec) = self.paths.specs.get_mut(usize::from(path.0)) else { return };
        spec.if_index = if_index;
        if spec.local == local {
            return;
        }
        if let Some(former) = core::mem::replace(&mut spec.local, local) {
            self.add_former_address(path, former);
        }
        self.paths.joins.forget(path);
        self.fallbacks.forget(path);
        for connection in self.connections.values_mut() {
            let plan = Plan { paths: &self.paths, class: connection.class };
            connection.address_changed(now, plan, path);
        }
        self.queue_all();
    }

    /// Adds a former address of a path. A subflow found from it carries no data any
    /// more and is closed.
    pub fn add_former_address(&mut self, path: PathId, local: IpAddr) {
        self.paths.add_former(path, local);
    }

    /// Processes an event of the kernel.
    pub fn handle(&mut self, now: Instant, event: &Event) {
        match *event {
            Event::Created { token, subflow, server_side } | Event::Established { token, subflow, server_side } => {
                let is_new = !self.connections.contains_key(&token);
                let began = matches!(event, Event::Established { .. }).then_some(ConnectionEvent::Began);
                if !server_side && began.is_some() {
                    self.speaks(self.path_of(subflow.local.ip()), subflow.remote.ip());
                }
                if self.begin(now, token, subflow.local, subflow.remote, server_side, began) && is_new {
                    self.with(token, |connection, plan| connection.opened(now, plan, subflow));
                }
            }
            Event::Closed { token } => self.forget(now, token),
            Event::Announced { token, remote, remote_id } => {
                self.with(token, |connection, _| connection.learn_remote(remote, remote_id));
            }
            Event::Removed { token, remote_id } => {
                self.with(token, |connection, _| connection.forget_remote(remote_id));
            }
            Event::SubflowEstablished { token, subflow } => {
                self.with(token, |connection, plan| connection.opened(now, plan, subflow));
            }
            Event::SubflowClosed { token, subflow, error } => {
                let limit = |connection: &mut Connection, plan: Plan| {
                    Some((connection.closed(now, plan, subflow, error)?, connection.peer()?))
                };
                if let Some((subflows, peer)) = self.with(token, limit).flatten() {
                    self.report_limit(peer, subflows);
                }
            }
            Event::SubflowPriority { token, subflow } => {
                self.with(token, |connection, _| connection.priority_changed(now, subflow));
            }
            Event::ListenerCreated { .. } | Event::ListenerClosed { .. } => {}
        }
    }

    /// Processes the list of all connections, after a start or after events were lost.
    pub fn resync(&mut self, now: Instant, snapshots: &[ConnectionSnapshot]) {
        let listed: BTreeSet<Token> = snapshots.iter().map(|connection| connection.token).collect();
        let gone: Vec<Token> = self.connections.keys().filter(|token| !listed.contains(token)).copied().collect();
        gone.into_iter().for_each(|token| self.forget(now, token));
        // The flags in the list do not include commands that still wait.
        self.commands.retain(|(_, command)| !matches!(command, Command::SetBackup { .. }));
        let before = self.left_out;
        for found in snapshots {
            if self.begin(now, found.token, found.local, found.remote, found.server_side, Some(ConnectionEvent::Found))
            {
                self.with(found.token, |connection, plan| connection.resync(now, plan, found));
            }
        }
        self.left_out = before.max(self.left_out - before);
    }

    /// Processes the refusal of a command by the kernel.
    pub fn refused(&mut self, now: Instant, command: &Command, why: Refusal) {
        let token = command.token();
        match why {
            Refusal::UnknownConnection => self.forget(now, token),
            Refusal::NotOurs => self.leave(now, token),
            Refusal::UnknownSubflow | Refusal::IdTaken | Refusal::Other(_) => {
                let mut out = Commands::new();
                self.with(token, |connection, _| connection.refused(now, token, command, why, &mut out));
                self.commands.append(&mut out);
            }
        }
    }

    /// Closes one stalled subflow, if its connection has another: the kernel then
    /// retransmits its data over that one. On a lost path only if it is a backup: else
    /// it is closed with the others there, or is a last resort.
    pub fn abandon(&mut self, now: Instant, token: Token, path: PathId, remote: SocketAddr) {
        let Some(class) = self.connections.get(&token).map(|connection| connection.class) else { return };
        if self.paths.is_lost(path) && self.paths.wanted.state(class, path) != PathState::Backup {
            return;
        }
        let cause = CloseCause::Stalled;
        let command = self.with(token, |connection, _| connection.abandon(now, token, path, remote, cause)).flatten();
        self.commands.extend(command.map(|command| (path, command)));
    }

    /// The next command, and its path.
    pub fn poll(&mut self, now: Instant) -> Option<(PathId, Command)> {
        while let Some(&(at, token)) = self.wakeups.first()
            && at <= now
        {
            self.wakeups.pop_first();
            self.with(token, |connection, _| connection.due = None);
        }
        while self.commands.is_empty() {
            let token = self.queue.pop_front()?;
            self.reconcile(now, token);
        }
        if !self.budget.take(now) {
            self.report_waiting(now);
            return None;
        }
        self.commands.pop_front()
    }

    /// The next notice to the user.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// When to poll again if no input arrives.
    pub fn next_wakeup(&self) -> Option<Instant> {
        if !self.commands.is_empty() || !self.queue.is_empty() {
            return Some(self.budget.ready_at());
        }
        self.wakeups.first().map(|&(at, _)| at)
    }

    /// Number of connections beyond the limit since the start; a lower bound, since a
    /// list of all connections does not distinguish earlier ones from new ones.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The path of a subflow, by its local address.
    pub fn path_of(&self, local: IpAddr) -> Option<PathId> {
        self.paths.path_of(local)
    }

    /// The subflows that carry information about their paths, of the connections after a
    /// token: not those whose address is gone.
    pub fn subflows(&self, after: Option<Token>) -> impl Iterator<Item = MeasuredSubflow> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.connections
            .range((from, Bound::Unbounded))
            .flat_map(|(&token, connection)| connection.subflows(token, &self.paths))
    }

    /// The subflow of a connection between two addresses, if it carries information about its path.
    pub fn subflow(&self, token: Token, local: SocketAddr, remote: SocketAddr) -> Option<MeasuredSubflow> {
        let mut subflows = self.connections.get(&token)?.subflows(token, &self.paths);
        subflows.find(|subflow| (subflow.local, subflow.remote) == (local, remote))
    }

    /// Returns false if the connection is not to be managed.
    fn begin(
        &mut self,
        now: Instant,
        token: Token,
        local: SocketAddr,
        remote: SocketAddr,
        server_side: bool,
        established: Option<ConnectionEvent>,
    ) -> bool {
        if !self.connections.contains_key(&token) {
            if remote.ip().to_canonical().is_loopback() || self.excluded.contains(&local.ip().to_canonical()) {
                return false;
            }
            if self.connections.len() >= MAX_CONNECTIONS {
                if established.is_some() && self.left_out == 0 {
                    self.notify(Notice::TooMany);
                }
                self.left_out += u64::from(established.is_some());
                return false;
            }
            self.connections.insert(token, Connection::new(remote, server_side));
            self.budget.set_connections(now, self.connections.len());
        }
        self.with(token, |connection, _| connection.establish(now, established));
        true
    }

    fn forget(&mut self, now: Instant, token: Token) {
        let Some(connection) = self.connections.remove(&token) else { return };
        if let Some(due) = connection.due {
            self.wakeups.remove(&(due, token));
        }
        self.foreign -= usize::from(connection.is_foreign);
        self.commands.retain(|(_, command)| command.token() != token);
        self.budget.set_connections(now, self.connections.len());
    }

    /// Leaves a connection to the in-kernel path manager.
    fn leave(&mut self, now: Instant, token: Token) {
        let Some(connection) = self.connections.get_mut(&token).filter(|connection| !connection.is_foreign) else {
            return;
        };
        connection.leave(now);
        self.foreign += 1;
        self.commands.retain(|(_, command)| command.token() != token);
        if self.foreign == 1 {
            self.notify(Notice::NotOurs { token });
        }
    }

    /// Changes a connection and queues it for comparison with the wanted states.
    fn with<T>(&mut self, token: Token, change: impl FnOnce(&mut Connection, Plan) -> T) -> Option<T> {
        let connection = self.connections.get_mut(&token)?;
        if !core::mem::replace(&mut connection.is_queued, true) {
            self.queue.push_back(token);
        }
        let plan = Plan { paths: &self.paths, class: connection.class };
        Some(change(connection, plan))
    }

    fn queue_all(&mut self) {
        for (&token, connection) in &mut self.connections {
            if !core::mem::replace(&mut connection.is_queued, true) {
                self.queue.push_back(token);
            }
        }
    }

    fn reconcile(&mut self, now: Instant, token: Token) {
        self.settle_joins(now, token);
        // A connection that is gone may still be in the queue.
        let Some(connection) = self.connections.get_mut(&token) else { return };
        connection.is_queued = false;
        let plan = Plan { paths: &self.paths, class: connection.class };
        connection.reconcile(now, token, plan, &mut self.commands);
        let due = connection.wakeup(plan).map(|at| at.max(now + MIN_WAIT));
        if let Some(before) = core::mem::replace(&mut connection.due, due) {
            self.wakeups.remove(&(before, token));
        }
        self.wakeups.extend(due.map(|at| (at, token)));
        self.settle_joins(now, token);
    }
}

#[cfg(test)]
mod tests;
