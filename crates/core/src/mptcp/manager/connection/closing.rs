//! Closing of subflows, and withdrawal of addresses that are gone.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::super::super::{AddressId, Command, Token};
use super::super::Plan;
use super::super::entry::Entry;
use super::super::history::{CloseCause, ConnectionEvent};
use super::super::ids::Ids;
use super::{Commands, Connection, UNKNOWN_IDS};
use crate::path::{PathId, PathState};
use crate::time::Instant;

impl Connection {
    /// Withdraws and closes subflows whose address is gone: no FIN can reach the peer
    /// from there, so REMOVE_ADDR is sent over another subflow, as soon as one can
    /// carry it.
    ///
    /// The kernel sends REMOVE_ADDR over the first subflow that is not of that address,
    /// even if it is stranded too. So all but one are closed before, and as the kernel
    /// withdraws no address that it does not have, they are announced once more.
    pub(super) fn close_stranded(&mut self, now: Instant, token: Token, plan: Plan, out: &mut Commands) {
        if self.confirmed_at(plan).is_none_or(|at| now < at) {
            return;
        }
        let due = |entry: &&mut Entry| !entry.is_closing() && entry.is_stranded(plan) && entry.destroy.may(now);
        // The address with id 0 cannot be announced.
        let mut due: Vec<&mut Entry> = self.subflows.iter_mut().filter(due).collect();
        due.sort_by_key(|entry| entry.subflow.local_id);
        let Some((first, others)) = due.split_first_mut() else { return };
        for entry in &mut *others {
            out.push_back((entry.path, entry.command_destroy(now, token, false)));
            self.history.add(now, Some(entry.path), ConnectionEvent::Closed(CloseCause::NoAddress));
        }
        withdraw(token, first, &mut self.ids, out);
        self.history.add(now, Some(first.path), ConnectionEvent::Closed(CloseCause::NoAddress));
        out.push_back((first.path, first.command_destroy(now, token, false)));
        for entry in others {
            let local = entry.subflow.local.ip().to_canonical();
            if let Some(local_id) = self.ids.of(local) {
                let local = SocketAddr::new(local, 0);
                out.push_back((entry.path, Command::Announce { token, local_id, local }));
            }
            withdraw(token, entry, &mut self.ids, out);
        }
    }

    /// Closes the unwanted subflows for which `which` is true, if another subflow
    /// exists; if the peer has no room for one, all but one. On a lost path the address
    /// is first withdrawn over another subflow: no FIN would reach the peer.
    pub(super) fn close(
        &mut self,
        now: Instant,
        token: Token,
        plan: Plan,
        out: &mut Commands,
        which: impl Fn(&Entry) -> bool,
    ) {
        let is_unwanted = |entry: &&mut Entry| entry.is_usable(plan) && plan.wanted(entry.path) == PathState::Closed;
        let stays =
            self.subflows.iter().any(|entry| entry.is_usable(plan) && plan.wanted(entry.path) != PathState::Closed);
        if !stays && self.room.full_until.is_none() {
            return;
        }
        let Connection { subflows, ids, server_side, history, .. } = self;
        let unwanted = subflows.iter_mut().filter(is_unwanted).skip(usize::from(!stays));
        for entry in unwanted.filter(|entry| which(entry) && entry.destroy.may(now)) {
            let lost = entry.is_lost(plan);
            if lost && !*server_side {
                withdraw(token, entry, ids, out);
            }
            out.push_back((entry.path, entry.command_destroy(now, token, lost)));
            history.add_own(now, entry.path, ConnectionEvent::Closed(CloseCause::Unwanted), plan);
        }
    }

    /// Closes all but the first subflow over a path to the same peer: a subflow that was
    /// requested over a dead path, given up and requested again may come twice when the path
    /// returns. An accepted connection may have several over one local path.
    pub(super) fn close_duplicates(&mut self, now: Instant, token: Token, plan: Plan, out: &mut Commands) {
        for place in 1..self.subflows.len() {
            let (before, rest) = self.subflows.split_at_mut(place);
            let Some(entry) = rest.first_mut() else { continue };
            let key = |entry: &Entry| (entry.path, entry.subflow.remote, entry.subflow.local.ip().to_canonical());
            let is_twice = before.iter().any(|first| first.is_usable(plan) && key(first) == key(entry));
            if is_twice && !self.server_side && entry.is_usable(plan) && entry.destroy.may(now) {
                out.push_back((entry.path, entry.command_destroy(now, token, false)));
                self.history.add(now, Some(entry.path), ConnectionEvent::Closed(CloseCause::Duplicate));
            }
        }
    }

    /// When a subflow can first carry REMOVE_ADDR.
    pub(super) fn confirmed_at(&self, plan: Plan) -> Option<Instant> {
        let usable = self.subflows.iter().filter(|entry| entry.is_usable(plan));
        usable.map(|entry| entry.confirmed).min()
    }

    /// Withdraws the addresses that no path has any more.
    pub(super) fn withdraw_unused(&mut self, now: Instant, token: Token, plan: Plan, out: &mut Commands) {
        for (ip, local_id, path) in self.unused(plan).collect::<Vec<_>>() {
            if self.ids.settled_at(ip) <= now {
                self.ids.forget(ip);
                out.push_back((path, Command::Withdraw { token, local_id }));
            }
        }
    }

    pub(super) fn unused(&self, plan: Plan) -> impl Iterator<Item = (IpAddr, AddressId, PathId)> {
        let is_used = |ip: IpAddr| self.subflows.iter().any(|entry| entry.subflow.local.ip().to_canonical() == ip);
        self.ids.pairs().filter(move |&(ip, _, _)| plan.paths.path_of(ip).is_none() && !is_used(ip))
    }

    /// Withdraws pairs of address and id unknown to this agent, once.
    pub(super) fn sweep(&mut self, token: Token, path: PathId, out: &mut Commands) {
        if core::mem::replace(&mut self.has_swept, true) {
            return;
        }
        for id in (1..=UNKNOWN_IDS).map(AddressId) {
            if !self.ids.pairs().any(|(_, known, _)| known == id) {
                out.push_back((path, Command::Withdraw { token, local_id: id }));
            }
        }
    }
}

/// Withdraws the address of a subflow.
fn withdraw(token: Token, entry: &Entry, ids: &mut Ids, out: &mut Commands) {
    let local = entry.subflow.local.ip().to_canonical();
    if let Some(local_id) = ids.of(local) {
        ids.forget(local);
        out.push_back((entry.path, Command::Withdraw { token, local_id }));
    }
}
