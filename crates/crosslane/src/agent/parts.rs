//! Parts of the agent that may become available later, and notes about them to the user.

use std::net::SocketAddr;
use std::time::Duration;

use crosslane_core::actuator::Event;
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use toml::Spanned;

use super::Driver;
use super::changes::described;
use super::later::Part;
use super::sources::SOURCES;
use super::tunnel_actuator::{ActiveTunnel, Resolving};
use super::{machine, unit};
use crate::control::running_agent;
use crate::error::{Error, Result};
use crate::http::HttpServer;
use crate::netlink::{PathManager, selected_path_manager};
use crate::output;

/// Period in which the agent checks the selected path manager and reports
/// suppressed lines of its journal.
pub const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Longest wait at the start for the address of a gateway that has a name.
const RESOLVE_TIMEOUT: Duration = Duration::from_millis(500);

/// How often the agent looks for another one.
const OTHER_AGENT_PERIOD: Duration = Duration::from_secs(10);

/// Another agent in this network namespace at the last check, and when the next one is due.
#[derive(Default)]
pub struct OtherAgent {
    pub pid: Option<u32>,
    due: Instant,
}

/// What a second agent means.
pub fn second_agent(pid: u32) -> String {
    format!(
        "the agent {pid} runs in this network namespace too: each opens subflows for every connection over its own paths; \
         stop one, or give them different paths"
    )
}

impl Driver {
    /// Sets up every part that the configuration asks for; a part that is not
    /// available yet is retried later.
    pub(super) fn set_up_all(&mut self) {
        (0..SOURCES.len()).for_each(|source| self.set_up(Part::Source(source)));
        if self.config.service.demands.is_some() {
            self.set_up(Part::Demands);
        }
        if self.config.tunnel.is_some() {
            self.set_up(Part::Tunnel);
            if let Some(resolving) = &mut self.resolving {
                // If the name server answers quickly, the tunnel exists before the agent reports that it is ready.
                let answer = resolving.wait(RESOLVE_TIMEOUT);
                answer.into_iter().for_each(|answer| self.resolved(answer));
            }
        }
        if self.config.unit.is_some() {
            self.set_up(Part::Unit);
        }
        if self.config.http.is_some() {
            self.set_up(Part::Http);
        }
    }

    /// Retries the parts that are due.
    pub(super) fn retry(&mut self) {
        let due = self.missing.take_due(self.clock.now());
        due.into_iter().for_each(|part| self.set_up(part));
    }

    pub(super) fn set_up(&mut self, part: Part) {
        let done = match part {
            Part::Source(source) => self.open_source(source).map(Some),
            Part::Demands => self.open_demands().map(Some),
            Part::Tunnel => self.start_tunnel(),
            Part::Unit => self.open_unit().map(Some),
            Part::Http => self.start_http().map(Some),
            Part::Volumes => self.write_volumes(),
        };
        match done {
            Ok(Some(())) => self.set_available(part),
            Ok(None) => {}
            Err(fault) => self.set_missing(part, &fault),
        }
    }

    pub(super) fn set_available(&mut self, part: Part) {
        if self.missing.resolve(part) {
            let name = match part {
                Part::Source(source) => SOURCES[source].name,
                Part::Demands => "listening for demands",
                Part::Tunnel => "the tunnel",
                Part::Unit => "the unit's end of the tunnels",
                Part::Http => "the page over HTTP",
                Part::Volumes => "writing data volumes",
            };
            self.note_to_user(&format!("{name} works now"));
        }
    }

    pub(super) fn set_missing(&mut self, part: Part, fault: &Error) {
        if self.missing.failed(self.clock.now(), part, fault.to_string()) {
            self.note_to_user(&format!("{fault}; the agent continues without it and retries until it works"));
        }
    }

    fn open_source(&mut self, source: usize) -> Result<()> {
        if let Some(observer) = (SOURCES[source].open)(&self.config, self.clock) {
            self.observers.push(observer?);
        }
        Ok(())
    }

    fn open_demands(&mut self) -> Result<()> {
        let service = &self.config.service;
        let Some(name) = &service.demands else { return Ok(()) };
        self.control.listen_for_demands(name.get_ref())
    }

    fn start_http(&mut self) -> Result<()> {
        let config = self.config.clone();
        let listen = config.http.as_ref().map(|http| *http.listen.get_ref());
        self.http = listen.map(HttpServer::start).transpose()?;
        Ok(())
    }

    /// `None` if the gateway's name must be resolved first.
    fn start_tunnel(&mut self) -> Result<Option<()>> {
        let config = self.config.clone();
        let Some(tunnel) = config.tunnel.as_ref().map(Spanned::get_ref) else { return Ok(None) };
        if let (Some(name), None) = (&tunnel.gateway, tunnel.known_gateway_address()) {
            self.resolving = Some(Resolving::start(name.get_ref())?);
            return Ok(None);
        }
        self.tunnel = Some(ActiveTunnel::start(tunnel, &config, self.clock)?);
        self.join_tunnel();
        // The tunnel works without requests.
        if let Err(fault) = self.control.listen_for_tunnel(&tunnel.interface) {
            self.journal.fault(&fault);
        }
        Ok(Some(()))
    }

    /// The name server has answered for the gateway's name.
    pub(super) fn resolved(&mut self, answer: Result<SocketAddr>) {
        self.resolving = None;
        let config = self.config.clone();
        match (answer, &config.tunnel) {
            (Ok(address), Some(tunnel)) => {
                tunnel.get_ref().set_gateway_address(address);
                self.set_up(Part::Tunnel);
            }
            (Ok(_), None) => {}
            (Err(fault), _) => self.set_missing(Part::Tunnel, &fault),
        }
    }

    /// Passes the present addresses to a tunnel that started; the engine then steers it.
    fn join_tunnel(&mut self) {
        for path in (0..self.config.paths.len()).map(|place| PathId(place as u8)) {
            let address = self.interfaces.configured(path);
            if let Some(Err(fault)) = self.tunnel.as_mut().map(|tunnel| tunnel.set_path(path, address)) {
                self.journal.fault(&fault);
            }
        }
        self.handle(Event::TunnelStarted.into());
    }

    /// Notes what is missing at the start.
    pub(super) fn note_lacks(&mut self) {
        if let Some(tree) = self.config.strategy.as_ref().and_then(|strategy| strategy.tree()) {
            self.journal.note(&format!("a tree orders the paths, {}", described(&tree)));
        }
        self.config.renamed.iter().for_each(|sentence| self.journal.note(sentence));
        let lacks = machine::lacks(&self.config).into_iter();
        // The periodic check reports these two.
        lacks
            .filter(|lack| ![machine::KERNEL_MANAGES, unit::NO_FORWARDING].contains(&lack.as_str()))
            .for_each(|lack| self.journal.note(&lack));
        self.periodic_check();
    }

    /// Checks what changes without an event.
    pub(super) fn periodic_check(&mut self) {
        self.journal.report_suppressed(false);
        let slow = self.control.drop_slow();
        self.control(&slow);
        self.check_tunnel();
        self.check_units();
        self.check_home();
        self.check_unit();
        self.observe_handshakes();
        self.check_first_path();
        self.check_other_agent();
        if self.file.is_none() || self.mptcp.is_none() || self.config.paths.is_empty() {
            return;
        }
        let Ok(selected) = selected_path_manager() else { return };
        let previous = self.path_manager.replace(selected);
        match (selected, previous) {
            (PathManager::Kernel, None | Some(PathManager::UserSpace)) => self.note_to_user(machine::KERNEL_MANAGES),
            (PathManager::UserSpace, Some(PathManager::Kernel)) => self.note_to_user(
                "net.mptcp.path_manager is `userspace` now: this agent manages connections that begin from now on",
            ),
            _ => {}
        }
        self.check_endpoints();
    }

    /// Starts the tunnel again if another program has removed its interface.
    fn check_tunnel(&mut self) {
        if let Some(fault) = self.tunnel.as_ref().and_then(ActiveTunnel::removed) {
            self.tunnel = None;
            self.set_missing(Part::Tunnel, &fault);
        }
        // A path of which a notice was lost, or whose socket could not be bound.
        for path in (0..self.config.paths.len()).map(|place| PathId(place as u8)) {
            let address = self.interfaces.configured(path);
            self.tunnel.iter_mut().for_each(|tunnel| drop(tunnel.set_path(path, address)));
        }
    }

    /// Notes a second agent in this network namespace: both would manage its connections. Begins to set rules and routes
    /// once no other agent does.
    fn check_other_agent(&mut self) {
        let now = self.clock.now();
        if self.file.is_none() || (now < self.other_agent.due && self.path_routes.is_some()) {
            return;
        }
        let other = running_agent::other();
        if other.is_none() && self.path_routes.is_none() {
            self.journal.note("no other agent sets rules and routes of paths now, so this one does");
            self.start_path_routes().unwrap_or_else(|fault| self.journal.fault(&fault));
        }
        let other = other.filter(|_| self.mptcp.is_some() && !self.config.paths.is_empty());
        if let Some(pid) = other.filter(|_| self.other_agent.pid != other) {
            self.journal.note(&second_agent(pid));
        }
        self.other_agent = OtherAgent { pid: other, due: now + OTHER_AGENT_PERIOD };
    }

    pub(super) fn note_to_user(&mut self, sentence: &str) {
        self.journal.note(sentence);
        if self.file.is_some() {
            output::message(sentence);
        }
    }
}
