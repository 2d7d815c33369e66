//! The path manager: wanted path states and kernel events in, commands out.
//!
//! For each connection it compares the subflows there are with the states
//! wanted and asks for the difference, in the order that keeps data flowing:
//! 1. withdraw and close what has lost its address, so that the peer has room
//!    (REMOVE_ADDR goes over another subflow, where a FIN would go nowhere);
//! 2. open and un-back up what shall carry;
//! 3. when another subflow has carried for the overlap, demote what shall not;
//! 4. close what is to be closed, at once if another subflow is there, so that
//!    the kernel sends its data again over that one. The last one is never
//!    closed, but more than one is, where a peer has no room for what is wanted.
//!
//! It never asks twice for the same subflow (the kernel would open two), and
//! gives an address the id that the connection already knows it by (else the
//! kernel answers "did not match address and id"). Commands it has given count
//! as carried out until the driver tells otherwise, since the kernel sends no
//! SUB_PRIORITY event to whoever set the flag.
//!
//! What is refused or fails is tried again after pauses that grow; a subflow
//! that is reset as soon as it is open has failed, and if that happens again
//! and again while others live, the peer has no room for more. Connections that
//! the kernel does not know are forgotten, those of the in-kernel path manager
//! left alone. Commands leave one by one as they are polled for, no more in a
//! second than the budget allows: a connection waits until its turn comes, and
//! is compared with what is wanted only then.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::{Command, ConnectionSnapshot, Event, Notice, Refusal, Subflow, Token};
use crate::path::{PathId, PathSpec, PathState};
use crate::time::{Duration, Instant};
use budget::Budget;
use connection::{Commands, Connection};

mod backoff;
mod budget;
mod connection;
mod entry;
mod ids;

pub use connection::MAX_SUBFLOWS;

/// Connections managed at a time; further ones are left to the kernel.
pub const MAX_CONNECTIONS: usize = 1024;
/// Peers of which it has been said how many subflows they accept.
const MAX_PEERS: usize = 64;
/// Former addresses of paths remembered.
const MAX_FORMER: usize = 64;
/// Notices kept until they are polled for.
const MAX_NOTICES: usize = 64;
/// Least time between two notices that commands have to wait.
const SAY_AGAIN: Duration = Duration::from_secs(10);
/// A connection is looked at again no sooner than this.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// The state machine.
#[derive(Debug)]
pub struct Manager {
    plan: Plan,
    left_alone: Vec<IpAddr>,
    connections: BTreeMap<Token, Connection>,
    /// Connections to be compared with what is wanted, in the order in which that
    /// became necessary.
    queue: VecDeque<Token>,
    wakeups: BTreeSet<(Instant, Token)>,
    commands: Commands,
    budget: Budget,
    notices: VecDeque<Notice>,
    foreign: usize,
    left_out: u64,
    waits_since: Option<Instant>,
    peers: BTreeMap<IpAddr, u8>,
}

/// The paths and what is wanted of them.
#[derive(Debug)]
struct Plan {
    paths: Vec<PathSpec>,
    wanted: Vec<PathState>,
    /// Paths over which no word gets through.
    lost: Vec<bool>,
    overlap: Duration,
    /// Addresses that paths had before, the oldest first: a subflow from one may
    /// become known only now.
    former: VecDeque<(IpAddr, PathId)>,
}

impl Plan {
    fn ids(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.paths.len()).map(|place| PathId(place as u8))
    }

    fn wants(&self, path: PathId) -> PathState {
        self.wanted.get(usize::from(path.0)).copied().unwrap_or(PathState::Closed)
    }

    fn is_lost(&self, path: PathId) -> bool {
        self.lost.get(usize::from(path.0)).is_some_and(|lost| *lost)
    }

    /// Our address on a path, and the index of its interface.
    fn address(&self, path: PathId) -> Option<(IpAddr, u32)> {
        let spec = self.paths.get(usize::from(path.0))?;
        Some((spec.local?, spec.if_index))
    }

    fn path_of(&self, local: IpAddr) -> Option<PathId> {
        let local = canonical(local);
        let place = self.paths.iter().position(|path| path.local == Some(local))?;
        Some(PathId(place as u8))
    }

    fn former_path_of(&self, local: IpAddr) -> Option<PathId> {
        self.former.iter().rfind(|(address, _)| *address == local).map(|&(_, path)| path)
    }
}

impl Manager {
    /// A manager of these paths (at most 16), all closed at first. `overlap` is
    /// how long two subflows carry together before one is demoted.
    pub fn new(paths: Vec<PathSpec>, overlap: Duration) -> Manager {
        let wanted = paths.iter().map(|_| PathState::Closed).collect();
        Manager {
            plan: Plan { paths, wanted, lost: Vec::new(), overlap, former: VecDeque::new() },
            left_alone: Vec::new(),
            connections: BTreeMap::new(),
            queue: VecDeque::new(),
            wakeups: BTreeSet::new(),
            commands: Commands::new(),
            budget: Budget::new(),
            notices: VecDeque::new(),
            foreign: 0,
            left_out: 0,
            waits_since: None,
            peers: BTreeMap::new(),
        }
    }

    /// Leaves connections from these addresses alone, as those inside a tunnel:
    /// a subflow outside of it would evade it.
    pub fn leave_alone(&mut self, addresses: Vec<IpAddr>) {
        self.left_alone = addresses;
    }

    /// Takes what is wanted of each path from now on. A path that is wanted
    /// again starts without the pauses of earlier attempts.
    pub fn want(&mut self, _now: Instant, states: &[PathState]) {
        let mut changed = Vec::new();
        for (place, (wanted, &state)) in self.plan.wanted.iter_mut().zip(states).enumerate() {
            if *wanted != state {
                changed.push((PathId(place as u8), *wanted == PathState::Closed));
            }
            *wanted = state;
        }
        if changed.is_empty() {
            return;
        }
        for connection in self.connections.values_mut() {
            changed.iter().for_each(|&(path, was_closed)| connection.wanted_anew(path, was_closed));
        }
        self.queue_all();
    }

    /// Takes which paths are lost. What is closed over one of them the peer is told
    /// over another: no FIN would reach it, and it would go on sending there.
    pub fn set_lost(&mut self, lost: Vec<bool>) {
        self.plan.lost = lost;
    }

    /// Takes the news that a path has another address, or none. Subflows from
    /// the old one cannot carry anything any more and are closed.
    pub fn set_address(&mut self, now: Instant, path: PathId, local: Option<IpAddr>, if_index: u32) {
        let Some(spec) = self.plan.paths.get_mut(usize::from(path.0)) else { return };
        spec.if_index = if_index;
        if spec.local == local {
            return;
        }
        if let Some(former) = core::mem::replace(&mut spec.local, local) {
            self.add_former_address(path, former);
        }
        self.connections.values_mut().for_each(|connection| connection.address_changed(now, path));
        self.queue_all();
    }

    /// Takes the news that a path had this address before. A subflow that is found
    /// from it carries nothing any more and is closed.
    pub fn add_former_address(&mut self, path: PathId, local: IpAddr) {
        self.plan.former.retain(|known| *known != (local, path));
        if self.plan.former.len() >= MAX_FORMER {
            self.plan.former.pop_front();
        }
        self.plan.former.push_back((local, path));
    }

    /// Takes an event of the kernel.
    pub fn handle(&mut self, now: Instant, event: &Event) {
        match *event {
            Event::Created { token, subflow, server_side } | Event::Established { token, subflow, server_side } => {
                let is_new = !self.connections.contains_key(&token);
                let is_established = matches!(event, Event::Established { .. });
                if self.begin(now, token, subflow.local, subflow.remote, server_side, is_established) && is_new {
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
            Event::SubflowClosed { token, subflow, .. } => {
                let learnt = self
                    .with(token, |connection, plan| Some((connection.closed(now, plan, subflow)?, connection.peer()?)));
                if let Some(Some((subflows, peer))) = learnt {
                    self.say_limit(peer, subflows);
                }
            }
            Event::SubflowPriority { token, subflow } => {
                self.with(token, |connection, _| connection.priority_changed(now, subflow));
            }
            Event::ListenerCreated { .. } | Event::ListenerClosed { .. } => {}
        }
    }

    /// Takes the list of all connections that there are, after a start or when
    /// events were missed.
    pub fn resync(&mut self, now: Instant, seen: &[ConnectionSnapshot]) {
        let there: BTreeSet<Token> = seen.iter().map(|connection| connection.token).collect();
        let gone: Vec<Token> = self.connections.keys().filter(|token| !there.contains(token)).copied().collect();
        gone.into_iter().for_each(|token| self.forget(now, token));
        // The list tells the flags from before what is still to be carried out.
        self.commands.retain(|(_, command)| !matches!(command, Command::SetBackup { .. }));
        let before = self.left_out;
        for found in seen {
            if self.begin(now, found.token, found.local, found.remote, found.server_side, true) {
                self.with(found.token, |connection, plan| connection.resync(now, plan, found));
            }
        }
        self.left_out = before.max(self.left_out - before);
    }

    /// Takes the news that the kernel refused a command, and why.
    pub fn refused(&mut self, now: Instant, command: &Command, why: Refusal) {
        let token = command.token();
        match why {
            Refusal::UnknownConnection => self.forget(now, token),
            Refusal::NotOurs => self.leave(token),
            Refusal::UnknownSubflow | Refusal::IdTaken | Refusal::Other(_) => {
                let mut out = Commands::new();
                self.with(token, |connection, _| connection.refused(now, token, command, why, &mut out));
                self.commands.append(&mut out);
            }
        }
    }

    /// Closes one subflow that carries nothing, if its connection has another: the
    /// kernel then sends its data again over that one. Over a lost path only where it
    /// is a backup: else it is closed with the others there, or is a last resort.
    pub fn abandon(&mut self, now: Instant, token: Token, path: PathId, remote: SocketAddr) {
        if self.plan.is_lost(path) && self.plan.wants(path) != PathState::Backup {
            return;
        }
        let mut out = Commands::new();
        self.with(token, |connection, _| connection.abandon(now, token, path, remote, &mut out));
        self.commands.append(&mut out);
    }

    /// The next command, and the path it is about.
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
            self.say_waiting(now);
            return None;
        }
        self.commands.pop_front()
    }

    /// What the user is to be told.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// When to poll again although nothing came in.
    pub fn next_wakeup(&self) -> Option<Instant> {
        if !self.commands.is_empty() || !self.queue.is_empty() {
            return Some(self.budget.ready_at());
        }
        self.wakeups.first().map(|&(at, _)| at)
    }

    /// Connections managed now.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Connections that there was no room for, since the start; those of before are
    /// not told from new ones in a list of all, so at least so many.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The path that a connection's subflow takes, by our address.
    pub fn path_of(&self, local: IpAddr) -> Option<PathId> {
        self.plan.path_of(local)
    }

    /// True of a connection that this end accepted.
    pub fn is_accepted(&self, token: Token) -> bool {
        self.connections.get(&token).is_some_and(|connection| connection.server_side)
    }

    /// The subflows that say something of their paths: not those whose address is gone.
    pub fn subflows(&self) -> impl Iterator<Item = (Token, PathId, &Subflow)> {
        self.connections.iter().flat_map(|(&token, connection)| {
            connection.subflows(&self.plan).map(move |(path, subflow)| (token, path, subflow))
        })
    }

    /// False if the connection is none to manage.
    fn begin(
        &mut self,
        now: Instant,
        token: Token,
        local: SocketAddr,
        remote: SocketAddr,
        server_side: bool,
        established: bool,
    ) -> bool {
        if !self.connections.contains_key(&token) {
            if canonical(remote.ip()).is_loopback() || self.left_alone.contains(&canonical(local.ip())) {
                return false;
            }
            if self.connections.len() >= MAX_CONNECTIONS {
                if established {
                    self.leave_out();
                }
                return false;
            }
            self.connections.insert(token, Connection::new(remote, server_side));
            self.budget.set_connections(now, self.connections.len());
        }
        self.with(token, |connection, _| connection.established |= established);
        true
    }

    /// There is no room for a connection: said of the first, and counted.
    fn leave_out(&mut self) {
        if self.left_out == 0 {
            self.say(Notice::TooMany);
        }
        self.left_out += 1;
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
    fn leave(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if connection.is_foreign {
            return;
        }
        connection.leave();
        self.foreign += 1;
        self.commands.retain(|(_, command)| command.token() != token);
        if self.foreign == 1 {
            self.say(Notice::NotOurs { token });
        }
    }

    /// Changes a connection, which is then compared with what is wanted.
    fn with<T>(&mut self, token: Token, change: impl FnOnce(&mut Connection, &Plan) -> T) -> Option<T> {
        let connection = self.connections.get_mut(&token)?;
        if !core::mem::replace(&mut connection.is_queued, true) {
            self.queue.push_back(token);
        }
        Some(change(connection, &self.plan))
    }

    fn queue_all(&mut self) {
        for (&token, connection) in &mut self.connections {
            if !core::mem::replace(&mut connection.is_queued, true) {
                self.queue.push_back(token);
            }
        }
    }

    fn reconcile(&mut self, now: Instant, token: Token) {
        // One that is gone may still have been in the queue.
        let Some(connection) = self.connections.get_mut(&token) else { return };
        connection.is_queued = false;
        connection.reconcile(now, token, &self.plan, &mut self.commands);
        let due = connection.wakeup(&self.plan).map(|at| at.max(now + LEAST_WAIT));
        if let Some(before) = core::mem::replace(&mut connection.due, due) {
            self.wakeups.remove(&(before, token));
        }
        self.wakeups.extend(due.map(|at| (at, token)));
    }

    fn say(&mut self, notice: Notice) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push_back(notice);
        }
    }

    /// Says it once of each peer, and again if it has changed.
    fn say_limit(&mut self, peer: IpAddr, subflows: u8) {
        if self.peers.get(&peer) == Some(&subflows) {
            return;
        }
        if self.peers.len() >= MAX_PEERS {
            self.peers.clear();
        }
        self.peers.insert(peer, subflows);
        self.say(Notice::PeerLimit { peer, subflows });
    }

    fn say_waiting(&mut self, now: Instant) {
        if self.waits_since.is_none_or(|since| now.since(since) >= SAY_AGAIN) {
            self.waits_since = Some(now);
            self.say(Notice::Waiting { connections: self.queue.len() + 1 });
        }
    }
}

/// An IPv4 address in IPv6's clothing is an IPv4 address.
fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests;
