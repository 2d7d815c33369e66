//! What the agent reports of itself: status, connections, explanations.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crosslane_core::agent::{Change, Changed, MAX_PATHS, PathView};
use crosslane_core::mptcp::Token;
use crosslane_core::mptcp::manager::{ConnectionView, SubflowView};
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_sim::input::toml_fault::did_you_mean;

use super::changes::described;
use super::parts::second_agent;
use super::path_routes::PathRoutes;
use super::tunnel_actuator::ActiveTunnel;
use super::{Driver, connection_history, machine};
use crate::control::report::{
    AgentStatus, ChangeReport, ConnectionPage, ConnectionReport, Explanation, PathReport, PathUseReport, PreferredPath,
    RadioReport, ReasonReport, SubflowReport, TokenName, TunnelSummary,
};
use crate::control::status::{Status, path_name};
use crate::error::{Error, Result};
use crate::netlink::PathManager;
use crate::version;

/// Connections in an answer: a line of them is short enough to be written at once, and takes less than a millisecond.
const PAGE: usize = 64;
/// Characters of a name that does not exist in the answer.
const MAX_SHOWN: usize = 64;
/// Digits of a token that may be wrong for another one to be suggested.
const MAX_WRONG_DIGITS: usize = 2;

impl Driver {
    pub(super) fn agent_status(&mut self) -> AgentStatus {
        let now = self.clock.now();
        let bytes = self.counters.bytes();
        let preferred = self.engine.preferred().map(|preferred| PreferredPath {
            path: path_name(&self.path_names(), preferred.path),
            remaining_s: preferred.until.map(|until| until.since(now).as_secs_f64()),
        });
        let tunnel = self.tunnel.as_ref().map(ActiveTunnel::status);
        AgentStatus {
            version: version::version().into(),
            pid: std::process::id(),
            configuration: self.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
            uptime_s: now.as_secs_f64(),
            longest_answer_ms: self.longest_answer.as_secs_f64() * 1e3,
            strategy: self.config.strategy_name().map(str::to_owned),
            tree: self.tree(),
            mode: self.mode,
            preferred,
            connections: self.engine.connection_count(),
            paths: self.path_reports(&bytes),
            tunnel: tunnel.as_ref().map(TunnelSummary::from),
            units: self.roadside.as_ref().map(|roadside| roadside.status(now, &bytes)).unwrap_or_default(),
            problems: self.problems(tunnel),
            changes: self.changes(now, None),
        }
    }

    /// The connections from the next one after a token on.
    pub(super) fn connection_page(&self, after: Option<TokenName>) -> ConnectionPage {
        let now = self.clock.now();
        let mut views = self.engine.connections(after.map(|token| Token(token.0)), PAGE + 1);
        let is_last = views.len() <= PAGE;
        views.truncate(PAGE);
        let next = views.last().filter(|_| !is_last).map(|view| TokenName(view.token.0));
        ConnectionPage { connections: views.iter().map(|view| self.connection(now, view)).collect(), next }
    }

    /// # Errors
    /// There is neither a path nor a connection of this name.
    pub(super) fn explain(&mut self, what: &str) -> Result<Explanation> {
        let now = self.clock.now();
        let bytes = self.counters.bytes();
        let id = self.engine.views().find(|view| view.name == what).map(|view| view.id);
        if let Some(id) = id
            && let Some(status) = self.path_reports(&bytes).into_iter().find(|path| path.path == what)
        {
            let (r#for, against): (Vec<_>, Vec<_>) =
                self.engine.arguments(id).into_iter().partition(|argument| argument.is_for);
            let reasons = |arguments: Vec<crosslane_core::agent::Argument>| {
                arguments.iter().map(|argument| ReasonReport::from(&argument.reason)).collect()
            };
            let (r#for, against) = (reasons(r#for), reasons(against));
            return Ok(Explanation::Path {
                status: Box::new(status),
                r#for,
                against,
                changes: self.changes(now, Some(id)),
                tree: self.tree(),
            });
        }
        let token: Option<TokenName> = what.parse().ok();
        let view = token.and_then(|token| {
            let before = token.0.checked_sub(1).map(Token);
            self.engine.connections(before, 1).into_iter().find(|view| view.token.0 == token.0)
        });
        let Some(view) = view else { return Err(self.unknown(what, token)) };
        let status = Box::new(self.connection(now, &view));
        let names = self.path_names();
        let changes = self.engine.history(view.token);
        let changes = changes.iter().map(|change| connection_history::report(now, &names, change)).collect();
        Ok(Explanation::Connection { status, paths: self.path_uses(now, &view), changes })
    }

    /// No path has this name, and no connection this token.
    pub(super) fn unknown(&self, what: &str, token: Option<TokenName>) -> Error {
        let attempt = "requesting from the agent";
        // A name as long as a line would be compared with each path's for tens of milliseconds.
        let what: &str = &what.chars().take(MAX_SHOWN).collect::<String>();
        let Some(token) = token else {
            let remedy = did_you_mean(what, self.engine.views().map(|view| view.name));
            return Error::usage(attempt, format!("it has no path {what:?}"), remedy);
        };
        let wrong_digits = |of: &u32| (0..8).filter(|digit| (of ^ token.0) >> (4 * digit) & 0xf != 0).count();
        let nearest = self.engine.subflows().map(|subflow| subflow.token.0).min_by_key(wrong_digits);
        let remedy = match nearest.filter(|nearest| wrong_digits(nearest) <= MAX_WRONG_DIGITS) {
            Some(nearest) => format!("did you mean `{}`?", TokenName(nearest)),
            None => "`crosslane connections` lists them".into(),
        };
        Error::usage(attempt, format!("it manages no connection {what:?}, and has no path of this name"), remedy)
    }

    /// What the tree is that orders the paths, if there is one.
    fn tree(&self) -> Option<String> {
        Some(described(&*self.config.strategy.as_ref()?.tree()?))
    }

    fn path_names(&self) -> Vec<&str> {
        self.engine.paths().map(|(name, _, _)| name).collect()
    }

    fn path_reports(&self, bytes: &BTreeMap<String, [u64; 2]>) -> Vec<PathReport> {
        let (now, faults) = (self.clock.now(), self.network_faults());
        let connections = self.connections_of_paths();
        let report = |view: PathView| {
            let interface = self.interfaces.name(view.id);
            let bytes = bytes.get(interface);
            let age_s = |at: Instant| now.since(at).as_secs_f64();
            PathReport {
                path: view.name.into(),
                interface: interface.into(),
                address: self.interfaces.configured(view.id).map(|address| address.to_string()),
                preference: 1 + self.engine.views().filter(|other| other.rank < view.rank).count() as u16,
                state: view.state.name().into(),
                state_since_s: age_s(view.decided),
                state_reason: view.state_reason.into(),
                belief: view.belief.name().into(),
                belief_since_s: age_s(view.believed),
                belief_reason: view.belief_reason.into(),
                signal_dbm: view.latest.signal.map(|(_, signal)| signal.rssi_dbm.into()),
                signal_age_s: view.latest.signal.map(|(at, _)| age_s(at)),
                signal_source: self.signals.source(view.id).map(str::to_owned),
                radio: view.latest.radio.map(|(at, link)| RadioReport {
                    tx_mbit_s: link.tx_bit_s.map(|rate| rate / 1e6),
                    rx_mbit_s: link.rx_bit_s.map(|rate| rate / 1e6),
                    retries: link.retries,
                    failures: link.failures,
                    age_s: age_s(at),
                }),
                rtt_ms: view.latest.transport.map(|(_, transport)| transport.rtt.as_secs_f64() * 1e3),
                connections: connections[usize::from(view.id.0)],
                sent_bytes: bytes.map(|[sent, _]| *sent),
                received_bytes: bytes.map(|[_, received]| *received),
                network: self.network_fault(&faults, view.id),
                echo: self.echo_report(now, &view),
                volume: self.volumes.as_ref().and_then(|volumes| volumes.report(view.id)),
            }
        };
        self.engine.views().map(report).collect()
    }

    /// Number of connections with a subflow over each path. The subflows of a connection follow one another.
    fn connections_of_paths(&self) -> [usize; MAX_PATHS] {
        let (mut counts, mut last) = ([0; MAX_PATHS], [None; MAX_PATHS]);
        for subflow in self.engine.subflows() {
            let place = usize::from(subflow.path.0);
            if last[place].replace(subflow.token) != Some(subflow.token) {
                counts[place] += 1;
            }
        }
        counts
    }

    fn connection(&self, now: Instant, view: &ConnectionView) -> ConnectionReport {
        let names = self.path_names();
        let subflow = |subflow: &SubflowView| {
            let transport = self.poller.transport(view.token, subflow.local, subflow.remote);
            SubflowReport {
                path: path_name(&names, subflow.path),
                local: subflow.local.to_string(),
                remote: subflow.remote.to_string(),
                state: subflow.state.name().into(),
                open_s: now.since(subflow.opened).as_secs_f64(),
                rtt_ms: transport.map(|transport| transport.rtt.as_secs_f64() * 1e3),
                acked_bytes: transport.map(|transport| transport.bytes_acked),
                received_bytes: transport.map(|transport| transport.bytes_received),
            }
        };
        ConnectionReport {
            token: TokenName(view.token.0),
            class: self.config.class_name(view.class).to_owned(),
            peer: view.peer.as_ref().map(SocketAddr::to_string),
            accepted: view.accepted,
            is_foreign: view.is_foreign,
            subflows: view.subflows.iter().map(subflow).collect(),
        }
    }

    fn path_uses(&self, now: Instant, of: &ConnectionView) -> Vec<PathUseReport> {
        let uses = self.engine.path_uses(now, of.token).unwrap_or_default();
        let report = |view: PathView| {
            let found = uses.iter().find(|one| one.path == view.id)?;
            Some(PathUseReport {
                path: view.name.into(),
                wanted_state: found.wanted.name().into(),
                state: found.state.name().into(),
                wanted_reason: self.engine.reason_of(of.class, view.id).unwrap_or(view.state_reason).into(),
                reason: (!found.reason.is_empty()).then(|| (&found.reason).into()),
            })
        };
        self.engine.views().filter_map(report).collect()
    }

    /// The last changes of all paths, or of one.
    fn changes(&self, now: Instant, of: Option<PathId>) -> Vec<ChangeReport> {
        let names = self.path_names();
        let report = |change: &Change| {
            let (of, to) = match change.to {
                Changed::Belief(belief) => ("belief", belief.name()),
                Changed::State(state) => ("state", state.name()),
            };
            ChangeReport {
                number: change.number,
                ago_s: now.since(change.at).as_secs_f64(),
                path: path_name(&names, change.path),
                of: of.into(),
                to: to.into(),
                reason: (&change.reason).into(),
            }
        };
        self.engine.changes().filter(|change| of.is_none_or(|of| change.path == of)).map(report).collect()
    }

    /// What does not work now.
    fn problems(&self, tunnel: Option<Status>) -> Vec<String> {
        let mut problems: Vec<String> = self.missing.faults().map(str::to_owned).collect();
        if self.path_manager == Some(PathManager::Kernel) {
            problems.push(machine::KERNEL_MANAGES.into());
        }
        problems.extend(self.other_agent.pid.map(second_agent));
        problems.extend(self.path_routes.as_ref().and_then(PathRoutes::fault).map(str::to_owned));
        let peers = tunnel.into_iter().flat_map(|tunnel| tunnel.peers);
        problems.extend(peers.filter_map(|peer| Some(format!("tunnel, {}: {}", peer.name, peer.problem?))));
        let everywhere = self.network_faults().into_iter().filter(|(path, _)| path.is_none());
        problems.extend(everywhere.map(|(_, reason)| reason.text()));
        let no_address = |view: &PathView| self.interfaces.configured(view.id).is_none();
        problems.extend(self.engine.views().filter(no_address).map(|view| {
            let (name, interface) = (view.name, self.interfaces.name(view.id));
            format!("path {name:?}: the interface {interface:?} does not exist, or has no address")
        }));
        let left_out = self.engine.left_out();
        if left_out > 0 {
            problems.push(format!("{left_out} connections since the start are left to the kernel for lack of room"));
        }
        problems
    }
}
