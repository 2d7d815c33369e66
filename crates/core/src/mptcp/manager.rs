//! The path manager: wanted path states and kernel events in, commands out.
//!
//! For each connection it compares the subflows there are with the states
//! wanted and asks for the difference, in the order that keeps data flowing:
//! 1. open and un-back up what shall carry;
//! 2. when another subflow has carried for the overlap, demote what shall not;
//! 3. close what is to be closed, at once if another subflow is there, so that
//!    the kernel sends its data again over that one.
//!
//! It never asks twice for the same subflow (the kernel would open two), and
//! gives an address the id that the connection already knows it by (else the
//! kernel answers "did not match address and id"). Commands it has given count
//! as carried out until the driver tells otherwise, since the kernel sends no
//! SUB_PRIORITY event to whoever set the flag.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::{AddressId, Command, Event, Seen, Subflow, Token};
use crate::allocate::PathState;
use crate::path::{PathId, PathSpec};
use crate::time::{Duration, Instant};

/// Connections managed at a time; further ones are left to the kernel.
pub const MAX_CONNECTIONS: usize = 1024;
/// Addresses of the peer remembered per connection (RFC 8684 allows 255).
const MAX_REMOTES: usize = 8;
/// Subflows followed per connection; the kernel's own limit is 8.
const MAX_SUBFLOWS: usize = 32;
/// An attempt to open a subflow is given up after this time: the SYN and two
/// repetitions (1 s and 2 s later), and an answer.
const OPENING: Duration = Duration::from_millis(3500);
/// First pause after a failed attempt; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The state machine.
#[derive(Debug)]
pub struct Manager {
    paths: Vec<PathSpec>,
    wanted: Vec<PathState>,
    /// Paths over which no word gets through.
    lost: Vec<bool>,
    overlap: Duration,
    connections: BTreeMap<Token, Connection>,
    commands: VecDeque<(PathId, Command)>,
}

#[derive(Debug)]
struct Connection {
    established: bool,
    server_side: bool,
    remotes: Vec<SocketAddr>,
    subflows: Vec<Known>,
    attempts: BTreeMap<PathId, Attempt>,
    /// Ids by which the peer knows our addresses.
    ids: BTreeMap<PathId, AddressId>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    subflow: Subflow,
    path: PathId,
    closing: bool,
    active_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Attempt {
    opening_until: Option<Instant>,
    not_before: Instant,
    failures: u32,
    backup: bool,
}

impl Manager {
    /// A manager of these paths (at most 16), all closed at first. `overlap` is
    /// how long two subflows carry together before one is demoted.
    pub fn new(paths: Vec<PathSpec>, overlap: Duration) -> Manager {
        let wanted = paths.iter().map(|_| PathState::Closed).collect();
        Manager { paths, wanted, lost: Vec::new(), overlap, connections: BTreeMap::new(), commands: VecDeque::new() }
    }

    /// Takes what is wanted of each path from now on. A path that is wanted
    /// again starts without the pauses of earlier attempts.
    pub fn want(&mut self, now: Instant, states: &[PathState]) {
        for (place, (wanted, &state)) in self.wanted.iter_mut().zip(states).enumerate() {
            if *wanted == PathState::Closed && state != PathState::Closed {
                let path = PathId(place as u8);
                for connection in self.connections.values_mut() {
                    connection.attempts.retain(|&of, attempt| of != path || attempt.opening_until.is_some());
                }
            }
            *wanted = state;
        }
        self.reconcile(now);
    }

    /// Takes which paths are lost. What is closed over one of them the peer is told
    /// over another: no FIN would reach it, and it would go on sending there.
    pub fn set_lost(&mut self, lost: Vec<bool>) {
        self.lost = lost;
    }

    /// Takes the news that a path has another address, or none. Subflows from
    /// the old one cannot carry anything any more and are closed.
    pub fn set_address(&mut self, now: Instant, path: PathId, local: Option<IpAddr>, if_index: u32) {
        let Some(spec) = self.paths.get_mut(usize::from(path.0)) else { return };
        spec.if_index = if_index;
        if spec.local == local {
            return;
        }
        spec.local = local;
        for (&token, connection) in &mut self.connections {
            connection.ids.remove(&path);
            connection.attempts.remove(&path);
            for known in connection.subflows.iter_mut().filter(|known| known.path == path && !known.closing) {
                let command = known.command_destroy(token);
                self.commands.push_back((path, command));
            }
        }
        self.reconcile(now);
    }

    /// Takes an event of the kernel.
    pub fn handle(&mut self, now: Instant, event: &Event) {
        match *event {
            Event::Created { token, subflow, server_side } | Event::Established { token, subflow, server_side } => {
                let new = !self.connections.contains_key(&token);
                self.begin(token, subflow.remote, server_side, matches!(event, Event::Established { .. }));
                if new {
                    self.subflow_opened(now, token, subflow);
                }
            }
            Event::Closed { token } => drop(self.connections.remove(&token)),
            Event::Announced { token, remote, .. } => self.learn_remote(token, remote),
            Event::SubflowEstablished { token, subflow } => self.subflow_opened(now, token, subflow),
            Event::SubflowClosed { token, subflow, .. } => self.subflow_closed(now, token, subflow),
            Event::SubflowPriority { token, subflow } => self.priority_changed(now, token, subflow),
            Event::Removed { .. } | Event::ListenerCreated { .. } | Event::ListenerClosed { .. } => {}
        }
        self.reconcile(now);
    }

    /// Takes the list of all connections that there are, after a start or when
    /// events were missed.
    pub fn resync(&mut self, now: Instant, seen: &[Seen]) {
        self.connections.retain(|token, _| seen.iter().any(|other| other.token == *token));
        for connection in self.connections.values_mut() {
            connection.subflows.clear();
        }
        for connection in seen {
            self.begin(connection.token, connection.remote, connection.server_side, true);
            for &subflow in &connection.subflows {
                self.subflow_opened(now, connection.token, subflow);
            }
        }
        self.reconcile(now);
    }

    /// Takes the news that the kernel refused a command.
    pub fn refused(&mut self, now: Instant, command: &Command) {
        match *command {
            Command::CreateSubflow { token, local, .. } => {
                if let Some(path) = self.path_of(local) {
                    self.attempt_failed(now, token, path);
                }
            }
            Command::DestroySubflow { token, local, remote } => self.forget(token, local, remote),
            Command::SetBackup { token, local, remote, backup } => {
                self.with_subflow(token, local, remote, |known| known.set_backup(now, !backup));
            }
            Command::Announce { .. } | Command::Withdraw { .. } => {}
        }
    }

    /// Closes one subflow that carries nothing, if its connection has another: the
    /// kernel then sends its data again over that one.
    pub fn abandon(&mut self, token: Token, path: PathId, remote: SocketAddr) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let of = |known: &Known| known.path == path && known.subflow.remote == remote;
        if !connection.subflows.iter().any(|known| !known.closing && !of(known)) {
            return;
        }
        if let Some(known) = connection.subflows.iter_mut().find(|known| !known.closing && of(known)) {
            let command = known.command_destroy(token);
            self.commands.push_back((path, command));
        }
    }

    /// The next command, and the path it is about.
    pub fn poll(&mut self, now: Instant) -> Option<(PathId, Command)> {
        if self.commands.is_empty() && self.next_wakeup().is_some_and(|at| now >= at) {
            self.expire_attempts(now);
            self.reconcile(now);
        }
        self.commands.pop_front()
    }

    /// When to poll again although nothing came in.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.connections.values().filter_map(|connection| self.wakeup_of(connection)).min()
    }

    /// Connections managed now.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// The path that a connection's subflow takes, by our address.
    pub fn path_of(&self, local: IpAddr) -> Option<PathId> {
        let local = canonical(local);
        let place = self.paths.iter().position(|path| path.local == Some(local))?;
        Some(PathId(place as u8))
    }

    /// True of a connection that this end accepted.
    pub fn is_accepted(&self, token: Token) -> bool {
        self.connections.get(&token).is_some_and(|connection| connection.server_side)
    }

    /// The subflows that there are.
    pub fn subflows(&self) -> impl Iterator<Item = (Token, PathId, &Subflow)> {
        self.connections.iter().flat_map(|(&token, connection)| {
            connection.subflows.iter().map(move |known| (token, known.path, &known.subflow))
        })
    }

    fn begin(&mut self, token: Token, remote: SocketAddr, server_side: bool, established: bool) {
        if !self.connections.contains_key(&token) && self.connections.len() >= MAX_CONNECTIONS {
            return;
        }
        let connection = self.connections.entry(token).or_insert_with(|| Connection {
            established,
            server_side,
            remotes: Vec::from([remote]),
            subflows: Vec::new(),
            attempts: BTreeMap::new(),
            ids: BTreeMap::new(),
        });
        connection.established |= established;
    }

    fn learn_remote(&mut self, token: Token, remote: SocketAddr) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let port = connection.remotes.first().map_or(0, SocketAddr::port);
        let remote = if remote.port() == 0 { SocketAddr::new(remote.ip(), port) } else { remote };
        if connection.remotes.len() < MAX_REMOTES && !connection.remotes.contains(&remote) {
            connection.remotes.push(remote);
        }
    }

    fn subflow_opened(&mut self, now: Instant, token: Token, subflow: Subflow) {
        let Some(path) = self.path_of(subflow.local.ip()) else {
            return;
        };
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        // The event tells the peer's wish; that it is a backup by ours, the kernel
        // does not say to whoever asked for it.
        let attempt = connection.attempts.remove(&path);
        let backup = subflow.backup || attempt.is_some_and(|attempt| attempt.backup);
        let subflow = Subflow { backup, ..subflow };
        connection.ids.insert(path, subflow.local_id);
        if connection.find(subflow.local, subflow.remote).is_none() && connection.subflows.len() < MAX_SUBFLOWS {
            let active_since = (!subflow.backup).then_some(now);
            connection.subflows.push(Known { subflow, path, closing: false, active_since });
        }
    }

    fn subflow_closed(&mut self, now: Instant, token: Token, subflow: Subflow) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if connection.find(subflow.local, subflow.remote).is_some() {
            self.forget(token, subflow.local, subflow.remote);
        } else if let Some(path) = self.path_of(subflow.local.ip()) {
            self.attempt_failed(now, token, path);
        }
    }

    fn priority_changed(&mut self, now: Instant, token: Token, subflow: Subflow) {
        self.with_subflow(token, subflow.local, subflow.remote, |known| known.set_backup(now, subflow.backup));
    }

    fn forget(&mut self, token: Token, local: SocketAddr, remote: SocketAddr) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.subflows.retain(|known| (known.subflow.local, known.subflow.remote) != (local, remote));
        }
    }

    fn with_subflow(&mut self, token: Token, local: SocketAddr, remote: SocketAddr, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.connections.get_mut(&token).and_then(|c| c.find(local, remote)) {
            change(known);
        }
    }

    fn attempt_failed(&mut self, now: Instant, token: Token, path: PathId) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let attempt = connection.attempts.entry(path).or_default();
        let pause = (FIRST_PAUSE * (1 << attempt.failures.min(10))).min(LONGEST_PAUSE);
        *attempt =
            Attempt { opening_until: None, not_before: now + pause, failures: attempt.failures + 1, backup: false };
    }

    fn expire_attempts(&mut self, now: Instant) {
        let mut expired = Vec::new();
        for (&token, connection) in &self.connections {
            for (&path, attempt) in &connection.attempts {
                if attempt.opening_until.is_some_and(|until| now >= until) {
                    expired.push((token, path));
                }
            }
        }
        for (token, path) in expired {
            self.attempt_failed(now, token, path);
        }
    }

    fn wakeup_of(&self, connection: &Connection) -> Option<Instant> {
        let attempts = connection.attempts.iter().filter_map(|(&path, attempt)| {
            let retry = self.may_open(connection, path).then_some(attempt.not_before);
            attempt.opening_until.or(retry)
        });
        attempts.chain(self.demotion_due(connection)).min()
    }

    /// When the first subflow has carried alone for the overlap and another
    /// waits to be demoted.
    fn demotion_due(&self, connection: &Connection) -> Option<Instant> {
        let waits = |known: &Known| known.carries() && self.wants(known.path) == PathState::Backup;
        if !connection.subflows.iter().any(waits) {
            return None;
        }
        let stays =
            connection.subflows.iter().filter(|known| known.carries() && self.wants(known.path) == PathState::Active);
        stays.filter_map(|known| known.active_since).min().map(|since| since + self.overlap)
    }

    fn wants(&self, path: PathId) -> PathState {
        self.wanted.get(usize::from(path.0)).copied().unwrap_or(PathState::Closed)
    }

    fn reconcile(&mut self, now: Instant) {
        let tokens: Vec<Token> = self.connections.keys().copied().collect();
        for token in tokens {
            let Some(mut connection) = self.connections.remove(&token) else {
                continue;
            };
            if connection.established {
                self.open_and_promote(now, token, &mut connection);
                self.demote(now, token, &mut connection);
                self.close(token, &mut connection);
            }
            self.connections.insert(token, connection);
        }
    }

    fn open_and_promote(&mut self, now: Instant, token: Token, connection: &mut Connection) {
        for place in 0..self.paths.len() {
            let path = PathId(place as u8);
            let wanted = self.wants(path);
            match connection.subflows.iter_mut().find(|known| known.path == path && !known.closing) {
                None if wanted != PathState::Closed => {
                    self.open(now, token, connection, path, wanted == PathState::Backup);
                }
                // What it accepted is a backup by the peer's wish.
                Some(known) if wanted == PathState::Active && known.subflow.backup && !connection.server_side => {
                    let command = known.command_backup(now, token, false);
                    self.commands.push_back((path, command));
                }
                _ => {}
            }
        }
    }

    fn open(&mut self, now: Instant, token: Token, connection: &mut Connection, path: PathId, backup: bool) {
        let earlier = connection.attempts.get(&path).copied().unwrap_or_default();
        if !self.may_open(connection, path) || earlier.opening_until.is_some() || now < earlier.not_before {
            return;
        }
        let spec = &self.paths[usize::from(path.0)];
        let Some(local) = spec.local else { return };
        let same_family = |remote: &&SocketAddr| canonical(remote.ip()).is_ipv4() == local.is_ipv4();
        let Some(&remote) = connection.remotes.iter().find(same_family) else {
            return;
        };
        let attempt = Attempt { opening_until: Some(now + OPENING), backup, ..earlier };
        let local_id = connection.id_for(path);
        connection.attempts.insert(path, attempt);
        let command = Command::CreateSubflow { token, local_id, local, if_index: spec.if_index, remote, backup };
        self.commands.push_back((path, command));
    }

    /// Whether a subflow over the path is wanted, missing, and ours to open:
    /// the end that accepted the connection leaves opening to the other.
    fn may_open(&self, connection: &Connection, path: PathId) -> bool {
        let missing = !connection.subflows.iter().any(|known| known.path == path);
        missing && !connection.server_side && self.wants(path) != PathState::Closed
    }

    fn demote(&mut self, now: Instant, token: Token, connection: &mut Connection) {
        if self.demotion_due(connection).is_none_or(|due| now < due) {
            return;
        }
        for known in &mut connection.subflows {
            if known.carries() && self.wants(known.path) == PathState::Backup {
                let command = known.command_backup(now, token, true);
                self.commands.push_back((known.path, command));
            }
        }
    }

    fn close(&mut self, token: Token, connection: &mut Connection) {
        let stays = |known: &Known| !known.closing && self.wants(known.path) != PathState::Closed;
        if !connection.subflows.iter().any(stays) {
            return;
        }
        for known in &mut connection.subflows {
            if self.wants(known.path) == PathState::Closed && !known.closing {
                let is_lost = self.lost.get(usize::from(known.path.0)).is_some_and(|lost| *lost);
                if is_lost && !connection.server_side {
                    let local_id = known.subflow.local_id;
                    self.commands.push_back((known.path, Command::Withdraw { token, local_id }));
                }
                let command = known.command_destroy(token);
                self.commands.push_back((known.path, command));
            }
        }
    }
}

impl Known {
    fn carries(&self) -> bool {
        !self.closing && !self.subflow.backup
    }

    fn set_backup(&mut self, now: Instant, backup: bool) {
        self.subflow.backup = backup;
        self.active_since = if backup { None } else { self.active_since.or(Some(now)) };
    }

    fn command_destroy(&mut self, token: Token) -> Command {
        self.closing = true;
        let Subflow { local, remote, .. } = self.subflow;
        Command::DestroySubflow { token, local, remote }
    }

    fn command_backup(&mut self, now: Instant, token: Token, backup: bool) -> Command {
        self.set_backup(now, backup);
        let Subflow { local, remote, .. } = self.subflow;
        Command::SetBackup { token, local, remote, backup }
    }
}

impl Connection {
    /// The id that the peer knows our address by, or a free one. 0 is the id of
    /// the first subflow's address alone (RFC 8684 §3.2).
    fn id_for(&self, path: PathId) -> AddressId {
        let free = |id: &u8| !self.ids.values().any(|used| used.0 == *id);
        let fresh = || (path.0 + 1..=u8::MAX).find(free).map_or(AddressId(0), AddressId);
        self.ids.get(&path).copied().unwrap_or_else(fresh)
    }

    fn find(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<&mut Known> {
        self.subflows.iter_mut().find(|known| (known.subflow.local, known.subflow.remote) == (local, remote))
    }
}

/// An IPv4 address in IPv6's clothing is an IPv4 address.
fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests;
