//! How a connection uses the paths, and why not as wanted.

use alloc::format;
use core::net::SocketAddr;

use super::super::super::Token;
use super::super::entry::Entry;
use super::super::plan::Plan;
use super::super::view::{ConnectionView, PathUse, SubflowView};
use super::Connection;
use crate::path::{PathId, PathState};
use crate::reason::Reason;
use crate::time::Instant;

impl Connection {
    pub fn view(&self, token: Token) -> ConnectionView {
        let subflow = |entry: &Entry| SubflowView {
            path: entry.path,
            local: entry.subflow.local,
            remote: entry.subflow.remote,
            state: entry.state(),
            opened: entry.opened,
        };
        ConnectionView {
            token,
            class: self.class,
            peer: self.remotes.first().map(|(remote, _)| *remote),
            accepted: self.server_side,
            established: self.established,
            is_foreign: self.is_foreign,
            subflows: self.subflows.iter().map(subflow).collect(),
        }
    }

    pub fn path_use(&self, now: Instant, plan: Plan, path: PathId) -> PathUse {
        let of_path = self.subflows.iter().filter(|entry| entry.path == path && !entry.is_stranded(plan));
        let state = of_path.map(Entry::state).max().unwrap_or_default();
        let wanted = plan.wanted(path);
        let reason = match (state, wanted) {
            _ if self.is_foreign => Reason::plain(
                "connection.kernel",
                "the in-kernel path manager manages this connection, which began under it",
            ),
            _ if state == wanted => Reason::default(),
            (PathState::Closed, _) => self.why_missing(now, plan, path),
            _ if self.server_side => {
                Reason::plain("connection.accepted", "the peer began the connection, and sets its priorities")
            }
            (_, PathState::Closed) => Reason::plain("subflow.last", "it is the last subflow, or about to be closed"),
            (_, PathState::Backup) => {
                Reason::plain("subflow.overlap", "no other subflow has carried data long enough yet")
            }
            (_, PathState::Active) => Reason::plain("subflow.promotion", "its backup flag is about to be cleared"),
        };
        PathUse { path, wanted, state, reason }
    }

    /// Why there is no subflow over a path on which one is wanted.
    fn why_missing(&self, now: Instant, plan: Plan, path: PathId) -> Reason {
        let join = self.joins.get(path).copied().unwrap_or_default();
        let family = |remote: &SocketAddr| remote.ip().to_canonical().is_ipv4();
        let wait_s = |until: Instant| until.since(now).as_secs_f64();
        let Some((local, _)) = plan.paths.address(path) else {
            return Reason::plain("subflow.address", "the path has no address now");
        };
        if self.server_side {
            return Reason::plain("connection.accepted", "the peer began the connection, and opens its subflows");
        }
        if !self.established {
            return Reason::plain("connection.new", "the connection accepts no further subflows yet");
        }
        if !self.remotes.iter().any(|(remote, _)| family(remote) == local.is_ipv4()) {
            let version = if local.is_ipv4() { "IPv4" } else { "IPv6" };
            return Reason::plain("subflow.family", format!("the peer has no {version} address that is known"));
        }
        if join.opening_until.is_some() {
            return Reason::plain("subflow.opening", "it is being opened: the peer has not answered yet");
        }
        if self.full_until() > now {
            let text = format!("the peer accepts no more subflows; next attempt in {:.1} s", wait_s(self.full_until()));
            return Reason::plain("subflow.full", text);
        }
        let failures = join.tries.failures;
        if self.not_before(plan, path) > now.max(join.tries.not_before) {
            let text = format!(
                "the path's network lets no joins to the peer pass; next attempt in {:.0} s, by one connection for all",
                wait_s(self.not_before(plan, path))
            );
            return Reason::plain("subflow.network", text);
        }
        if failures == 0 {
            return Reason::plain("subflow.due", "it is about to be opened");
        }
        let next_s = wait_s(join.tries.not_before);
        let text = format!("{failures} attempts to open it failed; next attempt in {next_s:.1} s");
        Reason::plain("subflow.failed", text).with([("failures", f64::from(failures)), ("next_s", next_s)])
    }
}
