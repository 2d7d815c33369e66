//! What is closed, and what the peer is told of addresses that are gone.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::super::super::{AddressId, Command, Token};
use super::super::entry::Entry;
use super::super::ids::Ids;
use super::super::{Plan, canonical};
use super::{Commands, Connection, UNKNOWN_IDS};
use crate::path::{PathId, PathState};
use crate::time::Instant;

impl Connection {
    /// Withdraws and closes what has lost its address: no FIN can reach the peer
    /// from there, so it is told over another subflow, as soon as one can bear it.
    ///
    /// The kernel sends REMOVE_ADDR over the first subflow that is not of that
    /// address, be it stranded too. So all but one are closed before, and as it
    /// withdraws no address that it does not know, they are announced once more.
    pub(super) fn close_stranded(&mut self, now: Instant, token: Token, plan: &Plan, out: &mut Commands) {
        if self.confirmed_at(plan).is_none_or(|at| now < at) {
            return;
        }
        let due = |entry: &&mut Entry| !entry.closing && entry.is_stranded(plan) && entry.destroy.may(now);
        // That of the first subflow's id cannot be announced.
        let mut due: Vec<&mut Entry> = self.subflows.iter_mut().filter(due).collect();
        due.sort_by_key(|entry| entry.subflow.local_id);
        let Some((first, others)) = due.split_first_mut() else { return };
        for entry in &mut *others {
            out.push_back((entry.path, entry.command_destroy(now, token)));
        }
        withdraw(token, first, &mut self.ids, out);
        out.push_back((first.path, first.command_destroy(now, token)));
        for entry in others {
            let local = canonical(entry.subflow.local.ip());
            if let Some(local_id) = self.ids.of(local) {
                let local = SocketAddr::new(local, 0);
                out.push_back((entry.path, Command::Announce { token, local_id, local }));
            }
            withdraw(token, entry, &mut self.ids, out);
        }
    }

    /// Closes `which` are not wanted, if another subflow is there; if the peer has
    /// no room for one, all but one. What is caught on a lost path the peer is told
    /// over another, before: no FIN would reach it.
    pub(super) fn close(
        &mut self,
        now: Instant,
        token: Token,
        plan: &Plan,
        out: &mut Commands,
        which: impl Fn(&Entry) -> bool,
    ) {
        let is_unwanted = |entry: &&mut Entry| entry.lives(plan) && plan.wants(entry.path) == PathState::Closed;
        let stays = self.subflows.iter().any(|entry| entry.lives(plan) && plan.wants(entry.path) != PathState::Closed);
        let kept = match (stays, self.room.full_until) {
            (true, _) => 0,
            (false, Some(_)) => 1,
            (false, None) => return,
        };
        let Connection { subflows, ids, server_side, .. } = self;
        let unwanted = subflows.iter_mut().filter(is_unwanted).skip(kept);
        for entry in unwanted.filter(|entry| which(entry) && entry.destroy.may(now)) {
            if entry.is_given_up(plan) && !*server_side {
                withdraw(token, entry, ids, out);
            }
            out.push_back((entry.path, entry.command_destroy(now, token)));
        }
    }

    /// From when on a subflow can bear what the peer is to be told.
    pub(super) fn confirmed_at(&self, plan: &Plan) -> Option<Instant> {
        let lives = self.subflows.iter().filter(|entry| entry.lives(plan));
        lives.map(|entry| entry.confirmed).min()
    }

    /// Has the kernel forget the addresses that no path has any more.
    pub(super) fn withdraw_unused(&mut self, now: Instant, token: Token, plan: &Plan, out: &mut Commands) {
        for (ip, local_id, path) in self.unused(plan).collect::<Vec<_>>() {
            if self.ids.settled_at(ip) <= now {
                self.ids.forget(ip);
                out.push_back((path, Command::Withdraw { token, local_id }));
            }
        }
    }

    pub(super) fn unused(&self, plan: &Plan) -> impl Iterator<Item = (IpAddr, AddressId, PathId)> {
        let is_used = |ip: IpAddr| self.subflows.iter().any(|entry| canonical(entry.subflow.local.ip()) == ip);
        self.ids.pairs().filter(move |&(ip, _, _)| plan.path_of(ip).is_none() && !is_used(ip))
    }

    /// Has the kernel forget pairs of address and id that we do not know, once.
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

/// Has the peer told that the address of a subflow is gone.
fn withdraw(token: Token, entry: &Entry, ids: &mut Ids, out: &mut Commands) {
    let local = canonical(entry.subflow.local.ip());
    if let Some(local_id) = ids.of(local) {
        ids.forget(local);
        out.push_back((entry.path, Command::Withdraw { token, local_id }));
    }
}
