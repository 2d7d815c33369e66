//! Notices to the user, and what the path manager finds of the networks.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::super::{HandshakeCounters, NETWORK_PASSES, Notice, PlainConnection, Token};
use super::Manager;
use super::joins::{JoinChange, JoinOutcome};
use crate::path::PathId;
use crate::reason::Reason;
use crate::time::{Duration, Instant};

/// Maximum number of peers whose limit has been reported.
const MAX_PEERS: usize = 64;
/// Maximum number of notices not yet polled.
const MAX_NOTICES: usize = 64;
/// Minimum time between two notices that commands are delayed.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

impl Manager {
    /// Processes the kernel's counters of handshakes, and the connections that fell back to TCP; the list may be empty if
    /// the counters of fallbacks are as before.
    pub fn observe_handshakes(&mut self, counters: HandshakeCounters, plain: &[PlainConnection]) {
        let paths = &self.paths;
        for (path, rule, text) in self.fallbacks.observe(counters, plain, |path| paths.name(path)) {
            self.notify(Notice::Network { path, rule, text });
        }
    }

    /// What the network of each path, or of all (`None`), does to MPTCP.
    pub fn network_faults(&self, now: Instant) -> Vec<(Option<PathId>, Reason)> {
        let of_path = |path: PathId| {
            let name = self.paths.name(path);
            let joins = self.paths.joins.fault(now, path, &name, || self.carries(path));
            [joins, self.fallbacks.fault(path, &name)].into_iter().flatten().map(move |reason| (Some(path), reason))
        };
        let all = self.fallbacks.avoids().map(|reason| (None, reason));
        self.paths.ids().flat_map(of_path).chain(all).collect()
    }

    /// A connection with a peer began with MPTCP, by a subflow over a path.
    pub(super) fn speaks(&mut self, path: Option<PathId>, peer: IpAddr) {
        if self.fallbacks.speaks(path, peer)
            && let Some(path) = path
        {
            self.passes(path);
        }
    }

    /// Processes what became of the joins of a connection since the last time.
    pub(super) fn settle_joins(&mut self, now: Instant, token: Token) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let outcomes = core::mem::take(&mut connection.outcomes);
        let Some(peer) = connection.peer() else { return };
        for (path, outcome) in outcomes {
            // A lost path explains what is not answered.
            if matches!(outcome, JoinOutcome::Failed(_)) && self.paths.is_lost(path) {
                continue;
            }
            match self.paths.joins.observe(now, path, peer, outcome) {
                Some(JoinChange::Blocked) => {
                    let found = self.paths.joins.notice(path, &self.paths.name(path), self.carries(path));
                    if let Some((rule, text)) = found {
                        self.notify(Notice::Network { path: Some(path), rule, text });
                    }
                }
                Some(JoinChange::Passes) => {
                    self.passes(path);
                    self.queue_all();
                }
                None => {}
            }
        }
    }

    /// True if a subflow over the path lives.
    fn carries(&self, path: PathId) -> bool {
        !self.paths.is_lost(path) && self.connections.values().any(|connection| connection.has_live(path))
    }

    fn passes(&mut self, path: PathId) {
        let text = String::from("MPTCP passes over ") + &self.paths.name(path) + " again";
        self.notify(Notice::Network { path: Some(path), rule: NETWORK_PASSES, text });
    }

    pub(super) fn notify(&mut self, notice: Notice) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push_back(notice);
        }
    }

    /// Reports the limit once for each peer, and again if it has changed.
    pub(super) fn report_limit(&mut self, peer: IpAddr, subflows: u8) {
        let peer = peer.to_canonical();
        if self.peers.get(&peer) == Some(&subflows) {
            return;
        }
        if self.peers.len() >= MAX_PEERS {
            self.peers.clear();
        }
        self.peers.insert(peer, subflows);
        self.notify(Notice::PeerLimit { peer, subflows });
    }

    pub(super) fn report_waiting(&mut self, now: Instant) {
        if self.waits_since.is_none_or(|since| now.since(since) >= NOTICE_INTERVAL) {
            self.waits_since = Some(now);
            self.notify(Notice::Waiting { connections: self.queue.len() + 1 });
        }
    }
}
