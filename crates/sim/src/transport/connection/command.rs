//! Commands of a path manager to a connection.

use std::net::SocketAddr;

use crosslane_core::mptcp::{AddressId, Command};
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;

use super::super::segment::{ACK, RST};
use super::super::subflow::{Phase, Subflow};
use super::{Endpoint, MAX_SUBFLOWS, Protocol, SERVER_ADDRESS, vehicle_address};
use crate::addresses::MAX_PATHS;

impl Endpoint {
    /// Executes a command; false if the kernel would reject it.
    pub fn command(&mut self, now: Instant, command: &Command) -> bool {
        if self.settings.protocol == Protocol::Tcp {
            return false;
        }
        match *command {
            Command::CreateSubflow { token, local_id, local, backup, .. } => {
                let path = (0..MAX_PATHS as u8).map(PathId).find(|&path| vehicle_address(path) == local);
                let room = self.subflows.len() < MAX_SUBFLOWS;
                let Some(path) = path.filter(|_| token == self.token && self.established && room) else {
                    return false;
                };
                self.open(now, path, Some(local_id), backup);
                true
            }
            Command::CancelJoin { local, .. } => {
                let is_it = |subflow: &Subflow| {
                    subflow.phase == Phase::Opening && subflow.join && vehicle_address(subflow.path) == local
                };
                let place = self.subflows.iter().position(is_it);
                place.map(|place| self.subflows.remove(place)).is_some()
            }
            Command::DestroySubflow { local, remote, lost, .. } => {
                let Some(place) = self.place(local, remote) else { return false };
                self.report_closed(place, 0);
                match self.subflows[place].phase {
                    Phase::Opening => drop(self.subflows.remove(place)),
                    _ if lost => self.abort(now, place),
                    _ => self.close(now, place),
                }
                true
            }
            Command::SetBackup { local, remote, backup, .. } => {
                let place = self.place(local, remote).filter(|place| self.subflows[*place].is_usable());
                // Linux 6.18: the flag of a subflow that the peer has not confirmed cannot be changed.
                let Some(place) = place else { return false };
                let subflow = &mut self.subflows[place];
                subflow.backup[0] = backup;
                subflow.pending_prio = Some(backup);
                self.push(now);
                self.transmit(now);
                true
            }
            Command::Withdraw { local_id, .. } => self.withdraw(local_id),
            // The vehicle opens every subflow, so no address is announced.
            Command::Announce { .. } => false,
        }
    }

    /// Resets a subflow at that time if its closing has not ended by then.
    pub fn reset_at(&mut self, at: Instant, local: SocketAddr) {
        let is_it = |subflow: &&mut Subflow| {
            let address = SocketAddr::new(vehicle_address(subflow.path), subflow.port);
            subflow.phase == Phase::Closing && address == local
        };
        self.subflows.iter_mut().filter(is_it).for_each(|subflow| subflow.reset_at = Some(at));
    }

    /// Resets the subflows for which it is time.
    pub(super) fn reset_destroyed(&mut self, now: Instant) {
        let is_due = |subflow: &Subflow| subflow.reset_at.is_some_and(|at| at <= now);
        while let Some(place) = self.subflows.iter().position(is_due) {
            self.abort(now, place);
        }
    }

    /// Resets a subflow (`tcp_abort`); its data is re-injected.
    fn abort(&mut self, now: Instant, place: usize) {
        let subflow = self.subflows.remove(place);
        self.segments.push_back(self.segment_of(&subflow, RST | ACK));
        self.reinject(now);
    }

    /// Sends the SYN of the first subflow, or of one that joins from the address
    /// with this id.
    pub(super) fn open(&mut self, now: Instant, path: PathId, joins: Option<AddressId>, backup: bool) {
        let port = super::FIRST_PORT + self.opened;
        let id = joins.unwrap_or(AddressId(0));
        let place = self.add(now, path, port, Phase::Opening, joins.is_some(), id);
        self.subflows[place].backup[0] = backup;
        self.send_syn(place);
    }

    /// Sends REMOVE_ADDR over a subflow from another address, preferably not a
    /// backup.
    fn withdraw(&mut self, id: AddressId) -> bool {
        let known = self.subflows.iter().any(|subflow| self.named(subflow).local_id == id);
        let other = |subflow: &Subflow| subflow.phase == Phase::Open && self.named(subflow).local_id != id;
        let others = (0..self.subflows.len()).filter(|&place| other(&self.subflows[place]));
        let over = others.min_by_key(|&place| self.subflows[place].backup[0]);
        if let Some(place) = over.filter(|_| known) {
            self.send_removal(place, id);
        }
        known
    }

    fn place(&self, local: SocketAddr, remote: SocketAddr) -> Option<usize> {
        if remote != SERVER_ADDRESS {
            return None;
        }
        let matches = |path: PathId, port: u16| SocketAddr::new(vehicle_address(path), port) == local;
        self.subflows.iter().position(|subflow| subflow.phase != Phase::Closing && matches(subflow.path, subflow.port))
    }
}
