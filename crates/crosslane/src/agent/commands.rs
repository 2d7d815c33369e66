//! The kernel's MPTCP: commands of the engine, and events of the kernel.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use crosslane_core::actuator::{self, Actuator, KernelEndpoints, PacketScheduler};
use crosslane_core::mptcp::manager::Manager;
use crosslane_core::mptcp::{Command, ConnectionSnapshot, Event, RESET_AFTER};
use crosslane_core::path::PathSpec;
use crosslane_core::time::Instant;

use super::Driver;
use super::classes::Classes;
use super::config::Config;
use crate::error::{Error, Result};
use crate::netlink::diag::{Connection, Diag, SubflowInfo};
use crate::netlink::links;
use crate::netlink::path_manager::{self, CommandSocket};
use crate::netlink::{self, CommandError, EventError, Stream, TcpState};

pub struct Mptcp {
    commands: CommandSocket,
    pub diag: Diag,
    pub events: Stream<Event>,
    pub classes: Classes,
    /// Local and remote address of subflows that were destroyed, and when they are to be reset.
    destroyed: VecDeque<(Instant, SocketAddr, SocketAddr)>,
}

impl Mptcp {
    /// `None` on a kernel without MPTCP if there is a tunnel or a unit, which work without it.
    pub fn open(config: &Config) -> Result<Option<Mptcp>> {
        let starting = |cause: &dyn std::fmt::Display| Error::failure("starting the agent", cause);
        match netlink::probe() {
            Err(_) if config.tunnel.is_some() || config.unit.is_some() => return Ok(None),
            probed => probed.map_err(|cause| Error::message(cause.to_string(), 1))?,
        }
        let events = path_manager::events().map_err(|cause| starting(&cause))?;
        Ok(Some(Mptcp {
            commands: CommandSocket::open().map_err(|cause| starting(&cause))?,
            diag: Diag::open().map_err(|cause| starting(&cause))?,
            events: events.into_stream().map_err(|cause| starting(&cause))?,
            classes: Classes::new(config),
            destroyed: VecDeque::new(),
        }))
    }

    pub fn carry_out(&mut self, now: Instant, command: &Command) -> std::result::Result<(), CommandError> {
        if let Command::CancelJoin { token, local, remote } = *command {
            return self.diag.cancel_join(token, local, remote);
        }
        // Not every kernel can abort it.
        if let Command::DestroySubflow { local, remote, lost: true, .. } = *command
            && self.diag.abort(local, remote).is_ok()
        {
            // The kernel sends the data of a reset subflow again when its worker runs, on a busy machine 20 ms and more
            // later; a subflow that is destroyed, at once. It fails if the worker was faster.
            drop(self.commands.send(command));
            return Ok(());
        }
        self.commands.send(command)?;
        if let Command::DestroySubflow { local, remote, .. } = *command {
            self.destroyed.push_back((now + RESET_AFTER, local, remote));
        }
        Ok(())
    }

    /// When the next destroyed subflow is to be reset.
    pub fn next_reset(&self) -> Option<Instant> {
        self.destroyed.front().map(|(at, ..)| *at)
    }

    /// Resets one destroyed subflow that is to be reset by then; false if there is none.
    pub fn reset_destroyed(&mut self, until: Instant) -> bool {
        if self.next_reset().is_none_or(|at| at > until) {
            return false;
        }
        let Some((_, local, remote)) = self.destroyed.pop_front() else { return false };
        // Best effort: the subflow is destroyed even if the kernel cannot reset its socket.
        drop(self.diag.reset_destroyed(local, remote));
        true
    }
}

impl Drop for Mptcp {
    fn drop(&mut self) {
        while self.reset_destroyed(Instant::from_nanos(u64::MAX)) {}
    }
}

impl Driver {
    /// An event of the kernel's path manager.
    ///
    /// # Errors
    /// The kernel reports none any more.
    pub(super) fn event(&mut self, event: std::result::Result<Event, EventError>) -> Result<()> {
        match event {
            Ok(event) => {
                self.poller.poll_soon(self.clock.now());
                if matches!(event, Event::Established { .. } | Event::SubflowEstablished { .. }) {
                    self.verify_endpoints();
                }
                self.classified(event);
            }
            Err(EventError::Overrun) => self.resync(),
            Err(EventError::Malformed(fault)) => self.journal.fault(&fault),
            Err(EventError::Io(cause)) => return Err(Error::failure("listening to the kernel's path manager", cause)),
        }
        Ok(())
    }

    /// Passes the present connections to the engine: after a start, and after an
    /// overrun of the kernel's events.
    pub(super) fn resync(&mut self) {
        match self.mptcp.as_mut().map_or(Ok(Vec::new()), |mptcp| mptcp.diag.connections()) {
            Ok(mut connections) => {
                let classes = self.take_classes(&mut connections);
                self.former_addresses(&connections);
                let snapshots = connections.iter().map(connection_snapshot).collect();
                self.handle(actuator::Event::Resync(snapshots).into());
                classes.into_iter().for_each(|(token, class)| self.handle(actuator::Event::Class(token, class).into()));
            }
            Err(fault) => self.journal.fault(&fault),
        }
    }

    /// Passes the addresses of subflows whose address vanished before this agent
    /// started: no event of the kernel would close these subflows.
    fn former_addresses(&mut self, connections: &[Connection]) {
        match links::snapshot() {
            Ok(present) => {
                let local = connections.iter().flat_map(|connection| &connection.subflows);
                let local = local.map(|info| (info.subflow.local.ip(), info.if_index));
                self.interfaces.former(&present, local).into_iter().for_each(|input| self.handle(input));
            }
            Err(fault) => self.journal.fault(&fault),
        }
    }
}

/// MPTCP's path manager, and the tunnel if there is one. Connections inside the tunnel
/// are left alone: a subflow outside it would bypass it.
pub fn actuators(config: &Config, paths: &[PathSpec]) -> Vec<Box<dyn Actuator>> {
    let overlap = Duration::from_millis(u64::from(*config.service.overlap_ms.get_ref()));
    let mut manager = Manager::new(paths.to_vec(), overlap);
    let inside = config.tunnel.iter().flat_map(|tunnel| &tunnel.get_ref().address);
    manager.leave_alone(inside.map(|prefix| prefix.get_ref().0.addr()).collect());
    let mut actuators: Vec<Box<dyn Actuator>> = vec![Box::new(manager)];
    actuators.push(Box::new(KernelEndpoints::new(config.paths.len(), config.service.endpoints)));
    if config.tunnel.is_some() {
        actuators.push(Box::new(PacketScheduler::new(paths.len())));
    }
    actuators
}

/// Snapshot of a connection for the engine.
pub fn connection_snapshot(connection: &Connection) -> ConnectionSnapshot {
    let is_opening = |info: &&SubflowInfo| info.tcp.state == TcpState::SynSent;
    let (opening, open): (Vec<_>, Vec<_>) = connection.subflows.iter().partition(is_opening);
    let subflows = |of: Vec<&SubflowInfo>| of.into_iter().map(|info| info.subflow).collect();
    ConnectionSnapshot {
        token: connection.token,
        local: connection.local,
        remote: connection.remote,
        // Only the first subflow shows which endpoint opened the connection; without
        // it, a vehicle counts as the client.
        server_side: connection.server_side.unwrap_or(false),
        subflows: subflows(open),
        opening: subflows(opening),
    }
}
