//! One subflow of a connection, and its wanted state.

use super::super::{Command, Subflow, Token};
use super::backoff::Backoff;
use super::plan::Plan;
use crate::path::{PathId, PathState};
use crate::time::Instant;

/// A subflow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub subflow: Subflow,
    pub path: PathId,
    pub opened: Instant,
    /// When the peer has presumably confirmed it.
    pub confirmed: Instant,
    pub closing_since: Option<Instant>,
    pub active_since: Option<Instant>,
    pub flag: Backoff,
    pub destroy: Backoff,
}

impl Entry {
    pub fn is_closing(&self) -> bool {
        self.closing_since.is_some()
    }

    /// Active or backup; closed while it is being closed.
    pub fn state(&self) -> PathState {
        match (self.is_closing(), self.subflow.backup) {
            (true, _) => PathState::Closed,
            (_, true) => PathState::Backup,
            (_, false) => PathState::Active,
        }
    }

    pub fn carries(&self) -> bool {
        !self.is_closing() && !self.subflow.backup
    }

    /// True if its address is no longer the address of its path.
    pub fn is_stranded(&self, plan: Plan) -> bool {
        plan.paths.address(self.path).is_none_or(|(local, _)| local != self.subflow.local.ip().to_canonical())
    }

    /// True if its path is lost and to be closed.
    pub fn is_lost(&self, plan: Plan) -> bool {
        plan.paths.is_lost(self.path) && plan.wanted(self.path) == PathState::Closed
    }

    pub fn is_unwanted(&self, plan: Plan) -> bool {
        self.is_stranded(plan) || plan.wanted(self.path) == PathState::Closed
    }

    pub fn is_usable(&self, plan: Plan) -> bool {
        !self.is_closing() && !self.is_stranded(plan)
    }

    pub fn waits_for_promotion(&self, plan: Plan) -> bool {
        !self.is_closing() && self.subflow.backup && plan.wanted(self.path) == PathState::Active
    }

    pub fn waits_for_demotion(&self, plan: Plan) -> bool {
        self.carries() && plan.wanted(self.path) == PathState::Backup
    }

    pub fn set_backup(&mut self, now: Instant, backup: bool) {
        self.subflow.backup = backup;
        self.active_since = if backup { None } else { self.active_since.or(Some(now)) };
    }

    /// `lost`: its path carries nothing any more.
    pub fn command_destroy(&mut self, now: Instant, token: Token, lost: bool) -> Command {
        self.closing_since = Some(now);
        let Subflow { local, remote, .. } = self.subflow;
        Command::DestroySubflow { token, local, remote, lost }
    }

    pub fn command_backup(&mut self, now: Instant, token: Token, backup: bool) -> Command {
        self.set_backup(now, backup);
        let Subflow { local, remote, .. } = self.subflow;
        Command::SetBackup { token, local, remote, backup }
    }
}
