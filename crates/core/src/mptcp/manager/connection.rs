//! One connection: its subflows, and the commands needed to reach the wanted states.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::super::{AddressId, Command, ConnectionSnapshot, MeasuredSubflow, Refusal, Subflow, Token};
use super::backoff::Backoff;
use super::entry::Entry;
use super::history::{CloseCause, ConnectionEvent, History};
use super::ids::Ids;
use super::joins::{JOIN_TIMEOUT, JoinFailure, JoinOutcome};
use super::plan::{Paths, Plan};
use crate::path::{PathId, PathState};
use crate::small_map::SmallMap;
use crate::time::{Duration, Instant};
use crate::wanted::ConnectionClass;

mod closing;
mod view;

/// Maximum number of the peer's addresses per connection (RFC 8684 allows 255).
const MAX_REMOTES: usize = 8;
/// Maximum number of subflows per connection; the kernel's own limit is 8.
pub const MAX_SUBFLOWS: usize = 32;
/// The kernel reports that a destroyed subflow is gone sooner than this.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The kernel tells sooner than this whether a join could be ended.
const CANCEL_WAIT: Duration = Duration::from_millis(10);
/// First pause after a failed attempt; doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between attempts.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Consecutive failures from which on the maximum pause is [`RARE_PAUSE`].
const MANY_FAILURES: u32 = 12;
/// Longest pause between attempts that have failed often, though not for want of an answer, or for which the
/// peer has no room.
const RARE_PAUSE: Duration = Duration::from_secs(60);
/// First pause after the peer's limit was detected; doubles up to [`RARE_PAUSE`].
const FIRST_FULL_PAUSE: Duration = Duration::from_secs(5);
/// A subflow that closes sooner after opening has failed: a peer without room answers
/// the SYN and then resets the subflow.
const MIN_LIFETIME: Duration = Duration::from_secs(1);
/// A subflow that lived this long clears the failures before it.
const STABLE_LIFETIME: Duration = Duration::from_secs(10);
/// A further subflow can carry REMOVE_ADDR only once the peer has confirmed it, an RTT
/// after it was reported as established; sooner the kernel would send it over the
/// subflow that is gone. Nor does the kernel find the subflow sooner to change its
/// backup flag, as it sends no MP_PRIO before a join is complete. The wait is twice the
/// RTT measured at its opening, within this range.
const CONFIRMATION_WAIT: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];
/// The peer did not answer (`errno` of Linux).
const ETIMEDOUT: u8 = 110;
/// The subflow was aborted at this endpoint, as a join is that has no answer.
const ECONNABORTED: u8 = 103;
/// This many consecutive subflows that are reset at once, while others live, indicate
/// the peer's limit.
const LIMIT_RESETS: u32 = 3;
/// Ids that are withdrawn if the kernel has pairs of address and id unknown to this
/// agent, e.g. of an earlier agent.
pub(super) const UNKNOWN_IDS: u8 = 16;

/// Commands, and their paths.
pub(super) type Commands = VecDeque<(PathId, Command)>;

#[derive(Debug, Default)]
pub(super) struct Connection {
    pub established: bool,
    pub server_side: bool,
    pub class: ConnectionClass,
    /// True if the in-kernel path manager manages it.
    pub is_foreign: bool,
    /// True if it is queued for comparison with the wanted states.
    pub is_queued: bool,
    /// When it is to be compared again, whatever events arrive.
    pub due: Option<Instant>,
    remotes: Vec<(SocketAddr, Option<AddressId>)>,
    subflows: Vec<Entry>,
    /// Subflows from addresses that no path has yet.
    unplaced: Vec<Subflow>,
    joins: SmallMap<PathId, Join>,
    ids: Ids,
    room: Room,
    has_swept: bool,
    pub history: History,
    /// What became of its joins, for the manager.
    pub outcomes: Vec<(PathId, JoinOutcome)>,
}

/// The opening of a subflow over a path.
#[derive(Clone, Copy, Debug, Default)]
struct Join {
    /// When it was requested last.
    since: Instant,
    opening_until: Option<Instant>,
    local: Option<IpAddr>,
    remote: Option<SocketAddr>,
    backup: bool,
    tries: Backoff,
}

/// The peer's limit, as far as known.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    resets: u32,
    last_reset: Instant,
    full: Backoff,
    full_until: Option<Instant>,
}

impl Connection {
    pub fn new(remote: SocketAddr, server_side: bool) -> Connection {
        Connection { server_side, remotes: Vec::from([(remote, None)]), ..Connection::default() }
    }

    pub fn subflows(&self, token: Token, paths: &Paths) -> impl Iterator<Item = MeasuredSubflow> {
        let plan = Plan { paths, class: self.class };
        let usable = self.subflows.iter().filter(move |entry| !entry.is_stranded(plan));
        usable.map(move |entry| {
            let Subflow { local, remote, .. } = entry.subflow;
            MeasuredSubflow { token, path: entry.path, local, remote, accepted: self.server_side }
        })
    }

    /// The peer's address when the connection began.
    pub fn peer(&self) -> Option<IpAddr> {
        self.remotes.first().map(|(remote, _)| remote.ip().to_canonical())
    }

    /// It accepts further subflows, if it began or was found.
    pub fn establish(&mut self, now: Instant, how: Option<ConnectionEvent>) {
        if let Some(how) = how.filter(|_| !self.established) {
            self.established = true;
            self.history.add(now, None, how);
        }
    }

    /// Leaves it to the in-kernel path manager.
    pub fn leave(&mut self, now: Instant) {
        self.history.add(now, None, ConnectionEvent::Left);
        self.is_foreign = true;
        self.subflows.clear();
        self.unplaced.clear();
        self.joins.clear();
    }

    pub fn learn_remote(&mut self, remote: SocketAddr, id: AddressId) {
        let port = self.remotes.first().map_or(0, |(first, _)| first.port());
        let remote = if remote.port() == 0 { SocketAddr::new(remote.ip(), port) } else { remote };
        if self.remotes.len() < MAX_REMOTES && !self.remotes.iter().any(|(known, _)| *known == remote) {
            self.remotes.push((remote, Some(id)));
        }
    }

    /// The peer withdrew an address. The kernel closes its subflows and reports it.
    pub fn forget_remote(&mut self, id: AddressId) {
        self.remotes.retain(|(_, known)| *known != Some(id));
    }

    /// The wanted state of a path changed: earlier pauses do not apply.
    pub fn on_wanted_change(&mut self, path: PathId, is_wanted_again: bool) {
        if is_wanted_again {
            self.forget_failures(path);
        }
        for entry in self.subflows.iter_mut().filter(|entry| entry.path == path) {
            entry.flag.revive();
            entry.destroy.revive();
        }
    }

    /// Sets its class; the plan is that of the former one.
    pub fn set_class(&mut self, plan: Plan, class: ConnectionClass) {
        self.class = class;
        for path in plan.paths.ids() {
            let was = plan.wanted(path);
            if was != (Plan { class, ..plan }).wanted(path) {
                self.on_wanted_change(path, was == PathState::Closed);
            }
        }
    }

    /// The address of a path changed or was removed.
    pub fn address_changed(&mut self, now: Instant, plan: Plan, path: PathId) {
        self.joins.remove(path);
        self.gained_room(now);
        for subflow in core::mem::take(&mut self.unplaced) {
            self.opened(now, plan, subflow);
        }
    }

    pub fn opened(&mut self, now: Instant, plan: Plan, subflow: Subflow) {
        if let Some((path, state)) = self.place(now, plan, subflow) {
            self.history.add(now, Some(path), ConnectionEvent::Opened(state));
        }
    }

    /// Its path and state, if it was not known yet.
    fn place(&mut self, now: Instant, plan: Plan, subflow: Subflow) -> Option<(PathId, PathState)> {
        let ip = subflow.local.ip().to_canonical();
        let Some(path) = plan.paths.path_of(ip).or_else(|| plan.paths.former_path_of(ip)) else {
            if self.unplaced.len() < MAX_SUBFLOWS && !self.unplaced.iter().any(|known| known.local == subflow.local) {
                self.unplaced.push(subflow);
            }
            return None;
        };
        // The event has the peer's flag; the kernel does not report our own to the
        // program that requested it.
        let mut backup = subflow.backup;
        let [min, mut unconfirmed] = CONFIRMATION_WAIT;
        if let Some(join) = self.joins.get_mut(path)
            && join.local == Some(ip)
            && join.opening_until.take().is_some()
        {
            backup |= join.backup;
            let took = now.since(join.since);
            self.outcomes.push((path, JoinOutcome::Opened(took)));
            unconfirmed = (took * 2).clamp(min, unconfirmed);
            // One that never failed has nothing to remember, for each of a thousand connections.
            if join.tries.failures == 0 {
                self.joins.remove(path);
            }
        } else if subflow.local_id == AddressId(0) {
            unconfirmed = Duration::ZERO;
        }
        self.ids.learn(ip, subflow.local_id, path);
        let is_new = self.find(subflow.local, subflow.remote).is_none() && self.subflows.len() < MAX_SUBFLOWS;
        if is_new {
            let (confirmed, active_since) = (now + unconfirmed, (!backup).then_some(now));
            self.subflows.reserve_exact(1);
            self.subflows.push(Entry {
                subflow: Subflow { backup, ..subflow },
                path,
                opened: now,
                confirmed,
                closing_since: None,
                active_since,
                flag: Backoff { not_before: confirmed, ..Backoff::default() },
                destroy: Backoff::default(),
            });
        }
        is_new.then_some((path, if backup { PathState::Backup } else { PathState::Active }))
    }

    /// A subflow exists that the peer has not answered yet.
    fn found_opening(&mut self, now: Instant, plan: Plan, subflow: &Subflow) {
        let ip = subflow.local.ip().to_canonical();
        let Some(path) = plan.paths.path_of(ip) else { return };
        let join = self.joins.get_or_insert(path, Join::default());
        if join.opening_until.is_none() {
            let opening_until = Some(now + JOIN_TIMEOUT);
            let (local, remote) = (Some(ip), Some(subflow.remote));
            *join = Join { since: now, opening_until, local, remote, backup: subflow.backup, ..*join };
            self.ids.learn(ip, subflow.local_id, path);
            self.ids.opening.insert(ip, now + JOIN_TIMEOUT);
        }
    }

    /// Processes the list of all its subflows.
    pub fn resync(&mut self, now: Instant, plan: Plan, snapshot: &ConnectionSnapshot) {
        let before = core::mem::take(&mut self.subflows);
        self.unplaced.clear();
        snapshot.opening.iter().for_each(|subflow| self.found_opening(now, plan, subflow));
        for &subflow in &snapshot.subflows {
            let same = |entry: &&Entry| (entry.subflow.local, entry.subflow.remote) == (subflow.local, subflow.remote);
            if let Some(&known) = before.iter().find(same) {
                let mut entry = Entry { closing_since: None, ..known };
                entry.set_backup(now, subflow.backup);
                self.subflows.reserve_exact(1);
                self.subflows.push(entry);
            } else {
                if let Some((path, _)) = self.place(now, plan, subflow) {
                    self.history.add(now, Some(path), ConnectionEvent::Found);
                }
                if let Some(entry) = self.find(subflow.local, subflow.remote) {
                    entry.flag = Backoff::default();
                }
            }
        }
    }

    /// A subflow is gone. Returns how many subflows beyond the first the peer accepts,
    /// if that has just been detected.
    pub fn closed(&mut self, now: Instant, plan: Plan, subflow: Subflow, error: u8) -> Option<u8> {
        let same = |entry: &Entry| (entry.subflow.local, entry.subflow.remote) == (subflow.local, subflow.remote);
        let Some(place) = self.subflows.iter().position(same) else {
            self.unplaced.retain(|known| (known.local, known.remote) != (subflow.local, subflow.remote));
            if error == ECONNABORTED {
                // Of an earlier join, which counts as failed already.
                return None;
            }
            if let Some(path) = self.join_failed(now, subflow.local.ip().to_canonical()) {
                // The kernel closes it without an error if the answer has no MP_JOIN.
                let (event, failure) = match Some(error).filter(|error| *error != ETIMEDOUT) {
                    Some(0) => (ConnectionEvent::NotJoined, Some(JoinFailure::WithoutMptcp)),
                    Some(_) => (ConnectionEvent::NotOpened(error), None),
                    None => (ConnectionEvent::NotOpened(error), Some(JoinFailure::Unanswered)),
                };
                self.history.add(now, Some(path), event);
                self.outcomes.extend(failure.map(|failure| (path, JoinOutcome::Failed(failure))));
            }
            return None;
        };
        let entry = self.subflows.remove(place);
        if !entry.is_closing() {
            self.history.add(now, Some(entry.path), ConnectionEvent::Ended(error));
        }
        let lived = now.since(entry.opened);
        if lived >= STABLE_LIFETIME {
            self.forget_failures(entry.path);
        // If we closed it, or its address is gone, this says nothing about the path.
        } else if entry.is_usable(plan) {
            self.fail(now, entry.path);
            if lived < MIN_LIFETIME {
                return self.was_reset(now, plan);
            }
        }
        self.gained_room(now);
        None
    }

    pub fn priority_changed(&mut self, now: Instant, subflow: Subflow) {
        if let Some(entry) = self.find(subflow.local, subflow.remote) {
            let was = entry.state();
            entry.set_backup(now, subflow.backup);
            let (path, state) = (entry.path, entry.state());
            if state != was {
                self.history.add(now, Some(path), ConnectionEvent::PeerSet(state));
            }
        }
        let unplaced = self.unplaced.iter_mut().filter(|known| known.local == subflow.local);
        unplaced.for_each(|known| known.backup = subflow.backup);
    }

    /// The kernel refused a command, though it knows the connection.
    pub fn refused(&mut self, now: Instant, token: Token, command: &Command, why: Refusal, out: &mut Commands) {
        match *command {
            Command::CreateSubflow { local, .. } => {
                let path = self.join_failed(now, local.to_canonical());
                self.history.add(now, path, ConnectionEvent::Refused(why));
                if let (Refusal::IdTaken, Some(path)) = (why, path) {
                    self.ids.forget(local.to_canonical());
                    self.sweep(token, path, out);
                }
            }
            // It is gone; an event will report that.
            Command::DestroySubflow { .. } if why == Refusal::UnknownSubflow => {}
            Command::DestroySubflow { local, remote, .. } => {
                if let Some(entry) = self.find(local, remote) {
                    entry.closing_since = None;
                    entry.destroy.refused(now);
                    let path = entry.path;
                    self.history.add(now, Some(path), ConnectionEvent::Refused(why));
                }
            }
            Command::SetBackup { local, remote, backup, .. } => {
                if let Some(entry) = self.find(local, remote) {
                    entry.set_backup(now, !backup);
                    entry.flag.refused(now);
                    let path = entry.path;
                    self.history.add(now, Some(path), ConnectionEvent::Refused(why));
                    if why == Refusal::UnknownSubflow && !backup {
                        // The peer's confirmation of the join was lost: another join need not wait for the kernel to repeat this one.
                        out.extend(
                            self.abandon(now, token, path, remote, CloseCause::Unconfirmed).map(|close| (path, close)),
                        );
                    }
                }
            }
            // It has been answered, as an event will report, or cannot be ended: no second one beside it.
            Command::CancelJoin { local, .. } => {
                let is_it = |join: &&mut Join| join.local == Some(local.to_canonical()) && join.opening_until.is_none();
                if let Some(join) = self.joins.values_mut().find(is_it).filter(|join| now < join.since + JOIN_TIMEOUT) {
                    join.opening_until = Some(join.since + JOIN_TIMEOUT);
                }
            }
            // Not retried: an address unknown to the kernel needs no withdrawal.
            Command::Announce { .. } | Command::Withdraw { .. } => {}
        }
    }

    /// Closes a subflow that carries nothing, if there is another.
    pub fn abandon(
        &mut self,
        now: Instant,
        token: Token,
        path: PathId,
        remote: SocketAddr,
        cause: CloseCause,
    ) -> Option<Command> {
        let open = self.subflows.iter_mut().filter(|entry| !entry.is_closing());
        let (mut stalled, others): (Vec<&mut Entry>, Vec<&mut Entry>) =
            open.partition(|entry| entry.path == path && entry.subflow.remote == remote);
        let entry = stalled.first_mut().filter(|_| !others.is_empty())?;
        self.history.add(now, Some(path), ConnectionEvent::Closed(cause));
        Some(entry.command_destroy(now, token, true))
    }

    /// Issues the commands for the difference from the wanted states.
    pub fn reconcile(&mut self, now: Instant, token: Token, plan: Plan, out: &mut Commands) {
        self.expire(now, token, out);
        if self.established && !self.is_foreign {
            // First, since the peer may need the room, and data is stalled on lost
            // paths.
            self.close_stranded(now, token, plan, out);
            self.close_duplicates(now, token, plan, out);
            self.close(now, token, plan, out, |entry| entry.is_lost(plan));
            self.open_and_promote(now, token, plan, out);
            self.demote(now, token, plan, out);
            self.close(now, token, plan, out, |_| true);
            self.withdraw_unused(now, token, plan, out);
        }
    }

    /// When to compare it again if no input arrives.
    pub fn wakeup(&self, plan: Plan) -> Option<Instant> {
        if !self.established || self.is_foreign {
            return None;
        }
        let joins = plan.paths.ids().filter_map(|path| {
            let join = self.joins.get(path).copied().unwrap_or_default();
            let retry = || {
                self.missing(plan, path)
                    .map(|_| join.tries.not_before.max(self.full_until()).max(self.not_before(plan, path)))
            };
            join.opening_until.or_else(retry)
        });
        let closes = self.subflows.iter().filter(|entry| !entry.is_closing() && entry.destroy.failures > 0);
        let closes = closes.filter(|entry| entry.is_unwanted(plan)).filter_map(|entry| entry.destroy.retry_at());
        let gone = self.subflows.iter().filter_map(|entry| Some(entry.closing_since? + CLOSE_TIMEOUT));
        let is_stranded = |entry: &Entry| !entry.is_closing() && entry.is_stranded(plan) && entry.destroy.failures == 0;
        let strands = self.subflows.iter().any(is_stranded).then(|| self.confirmed_at(plan)).flatten();
        let promotes = self.subflows.iter().filter(|entry| entry.waits_for_promotion(plan) && self.promotes(plan));
        let promotes = promotes.filter_map(|entry| entry.flag.retry_at());
        let unused = self.unused(plan).map(|(ip, _, _)| self.ids.settled_at(ip));
        let subflows = closes.chain(strands).chain(gone).chain(promotes).chain(self.demotion_wakeup(plan));
        joins.chain(unused).chain(subflows).min()
    }

    /// The earliest next join, as far as the path's network decides. A connection without a subflow does not wait.
    fn not_before(&self, plan: Plan, path: PathId) -> Instant {
        let has_subflow = self.subflows.iter().any(|entry| entry.is_usable(plan));
        let peer = self.peer().filter(|_| has_subflow);
        peer.map_or(Instant::ZERO, |peer| plan.paths.joins.not_before(path, peer))
    }

    /// True if it has a subflow over a path.
    pub fn has_live(&self, path: PathId) -> bool {
        self.subflows.iter().any(|entry| entry.path == path && !entry.is_closing())
    }

    fn full_until(&self) -> Instant {
        self.room.full_until.unwrap_or_default()
    }

    /// Gives up what takes too long.
    fn expire(&mut self, now: Instant, token: Token, out: &mut Commands) {
        let expired = |join: &Join| join.opening_until.is_some_and(|until| now >= until);
        let expired: Vec<PathId> = self.joins.iter().filter(|(_, join)| expired(join)).map(|(path, _)| path).collect();
        for path in expired {
            let Some(join) = self.joins.get_mut(path) else { continue };
            let addresses = join.local.zip(join.remote);
            out.extend(addresses.map(|(local, remote)| (path, Command::CancelJoin { token, local, remote })));
            join.opening_until = None;
            if now.since(join.since) < JOIN_TIMEOUT {
                (join.tries.failures, join.tries.not_before) = (join.tries.failures + 1, now + CANCEL_WAIT);
                continue;
            }
            join.tries.failed(now, FIRST_PAUSE, MAX_PAUSE);
            self.history.add(now, Some(path), ConnectionEvent::NotOpened(0));
            self.outcomes.push((path, JoinOutcome::Failed(JoinFailure::Unanswered)));
        }
        self.subflows.retain(|entry| entry.closing_since.is_none_or(|since| now < since + CLOSE_TIMEOUT));
        self.room.full_until = self.room.full_until.filter(|until| now < *until);
    }

    /// The opening of a subflow from `local` failed; returns its path.
    fn join_failed(&mut self, now: Instant, local: IpAddr) -> Option<PathId> {
        self.ids.opening.remove(local);
        let is_opening = |join: &Join| join.local == Some(local) && join.opening_until.is_some();
        let path = self.joins.iter().find(|(_, join)| is_opening(join)).map(|(path, _)| path)?;
        self.fail(now, path);
        Some(path)
    }

    fn fail(&mut self, now: Instant, path: PathId) {
        let join = self.joins.get_or_insert(path, Join::default());
        join.opening_until = None;
        let longest = if join.tries.failures < MANY_FAILURES { MAX_PAUSE } else { RARE_PAUSE };
        join.tries.failed(now, FIRST_PAUSE, longest);
    }

    fn forget_failures(&mut self, path: PathId) {
        self.joins.retain(|of, join| of != path || join.opening_until.is_some());
    }

    fn was_reset(&mut self, now: Instant, plan: Plan) -> Option<u8> {
        let Room { resets, last_reset, mut full, .. } = self.room;
        let had_room =
            self.subflows.iter().any(|entry| entry.opened > last_reset && now.since(entry.opened) >= MIN_LIFETIME);
        let resets = if had_room { 1 } else { resets.saturating_add(1) };
        self.room = Room { resets, last_reset: now, full, full_until: None };
        let others: Vec<&Entry> = self.subflows.iter().filter(|entry| entry.is_usable(plan)).collect();
        if resets < LIMIT_RESETS || others.is_empty() {
            return None;
        }
        if had_room {
            full = Backoff::default();
        }
        full.failed(now, FIRST_FULL_PAUSE, RARE_PAUSE);
        (self.room.full, self.room.full_until) = (full, Some(full.not_before));
        self.history.add(now, None, ConnectionEvent::Full);
        Some(others.iter().filter(|entry| entry.subflow.local_id != AddressId(0)).count() as u8)
    }

    /// A subflow of ours is gone: the peer may have room for another.
    fn gained_room(&mut self, now: Instant) {
        if self.room.full_until.take().is_some() {
            self.room.resets = LIMIT_RESETS - 1;
            for join in self.joins.values_mut().filter(|join| join.opening_until.is_none()) {
                join.tries = Backoff::default();
                join.tries.failed(now, FIRST_PAUSE, FIRST_PAUSE);
            }
        }
    }

    fn open_and_promote(&mut self, now: Instant, token: Token, plan: Plan, out: &mut Commands) {
        let promotes = self.promotes(plan);
        for path in plan.paths.ids() {
            let is_over_path = |entry: &&mut Entry| entry.path == path && entry.is_usable(plan);
            match self.subflows.iter_mut().find(is_over_path) {
                None => self.open(now, token, plan, path, out),
                Some(entry) if promotes && entry.waits_for_promotion(plan) && entry.flag.may(now) => {
                    out.push_back((path, entry.command_backup(now, token, false)));
                    self.history.add_own(now, path, ConnectionEvent::Set(PathState::Active), plan);
                }
                Some(_) => {}
            }
        }
    }

    /// False for accepted connections, where the peer sets the backup flag. Also false
    /// while a subflow on a lost path closes: a backup carries data then anyway, and
    /// other connections need their commands more.
    fn promotes(&self, plan: Plan) -> bool {
        !self.server_side && !self.subflows.iter().any(|entry| entry.is_closing() && entry.is_lost(plan))
    }

    fn open(&mut self, now: Instant, token: Token, plan: Plan, path: PathId, out: &mut Commands) {
        let earlier = self.joins.get(path).copied().unwrap_or_default();
        if earlier.opening_until.is_some() || now < earlier.tries.not_before.max(self.full_until()) {
            return;
        }
        let Some((local, if_index, remote)) = self.missing(plan, path) else { return };
        if now < self.not_before(plan, path) {
            return;
        }
        let Some(local_id) = self.ids.take(local, path) else { return };
        self.outcomes.push((path, JoinOutcome::Requested));
        let backup = plan.wanted(path) == PathState::Backup;
        let timeout = if backup { JOIN_TIMEOUT } else { plan.paths.joins.timeout(path, earlier.tries.failures) };
        let opening_until = Some(now + timeout);
        self.ids.opening.insert(local, now + JOIN_TIMEOUT);
        let join = Join { since: now, opening_until, local: Some(local), remote: Some(remote), backup, ..earlier };
        self.joins.insert(path, join);
        out.push_back((path, Command::CreateSubflow { token, local_id, local, if_index, remote, backup }));
    }

    /// Local address, interface and peer address for a subflow over the path, if it is
    /// wanted, missing, and opened by us: the endpoint that accepted the connection
    /// opens none.
    fn missing(&self, plan: Plan, path: PathId) -> Option<(IpAddr, u32, SocketAddr)> {
        let is_there = self.subflows.iter().any(|entry| entry.path == path && !entry.is_stranded(plan));
        if is_there || self.server_side || plan.wanted(path) == PathState::Closed {
            return None;
        }
        let (local, if_index) = plan.paths.address(path)?;
        let mut remotes = self.remotes.iter().map(|&(remote, _)| remote);
        let remote = remotes.find(|remote| remote.ip().to_canonical().is_ipv4() == local.is_ipv4())?;
        Some((local, if_index, remote))
    }

    fn demote(&mut self, now: Instant, token: Token, plan: Plan, out: &mut Commands) {
        if self.demotion_due(plan).is_none_or(|due| now < due) {
            return;
        }
        for entry in &mut self.subflows {
            if entry.waits_for_demotion(plan) && entry.flag.may(now) {
                out.push_back((entry.path, entry.command_backup(now, token, true)));
                self.history.add_own(now, entry.path, ConnectionEvent::Set(PathState::Backup), plan);
            }
        }
    }

    /// When an active subflow has carried for the overlap, if another waits to be
    /// demoted.
    fn demotion_due(&self, plan: Plan) -> Option<Instant> {
        if !self.subflows.iter().any(|entry| entry.waits_for_demotion(plan)) {
            return None;
        }
        let stays = |entry: &&Entry| {
            entry.carries() && !entry.is_stranded(plan) && plan.wanted(entry.path) == PathState::Active
        };
        let since = self.subflows.iter().filter(stays).filter_map(|entry| entry.active_since).min();
        since.map(|since| since + plan.paths.overlap)
    }

    fn demotion_wakeup(&self, plan: Plan) -> Option<Instant> {
        let due = self.demotion_due(plan)?;
        let waits = self.subflows.iter().filter(|entry| entry.waits_for_demotion(plan));
        waits.filter_map(|entry| entry.flag.retry_at()).min().map(|retry| due.max(retry))
    }

    fn find(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<&mut Entry> {
        self.subflows.iter_mut().find(|entry| (entry.subflow.local, entry.subflow.remote) == (local, remote))
    }
}
