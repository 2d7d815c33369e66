//! The kernel's MPTCP: what the engine asks of it, and what it says to that.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crosslane_core::mptcp::{Command, ConnectionSnapshot, Event};

use super::config::Config;
use crate::error::{Error, Result};
use crate::netlink::diag::{Connection, Diag, SubflowInfo};
use crate::netlink::path_manager::{self, CommandSocket};
use crate::netlink::{self, CommandError, EventError, Stream, TcpState};

/// Its sockets.
pub struct Mptcp {
    commands: CommandSocket,
    pub diag: Diag,
    events: Stream<Event>,
    /// The ends of subflows that were destroyed and are still to be reset.
    destroyed: VecDeque<(SocketAddr, SocketAddr)>,
}

impl Mptcp {
    /// `None` on a kernel without, where a tunnel is there all the same.
    pub fn open(config: &Config) -> Result<Option<Mptcp>> {
        let starting = |cause: &dyn std::fmt::Display| Error::failure("starting the agent", cause);
        match netlink::probe() {
            Err(_) if config.tunnel.is_some() => return Ok(None),
            probed => probed.map_err(|cause| Error::told(cause.to_string(), 1))?,
        }
        let events = path_manager::events().map_err(|cause| starting(&cause))?;
        Ok(Some(Mptcp {
            commands: CommandSocket::open().map_err(|cause| starting(&cause))?,
            diag: Diag::open().map_err(|cause| starting(&cause))?,
            events: events.into_stream().map_err(|cause| starting(&cause))?,
            destroyed: VecDeque::new(),
        }))
    }

    /// Carries out a command.
    pub fn carry_out(&mut self, command: &Command) -> std::result::Result<(), CommandError> {
        self.commands.send(command)?;
        if let Command::DestroySubflow { local, remote, .. } = *command {
            self.destroyed.push_back((local, remote));
        }
        Ok(())
    }

    /// Resets what is left of one subflow that was destroyed, which is not urgent as
    /// commands are; false if there is none.
    pub fn reset_destroyed(&mut self) -> bool {
        let Some((local, remote)) = self.destroyed.pop_front() else { return false };
        // Best effort: a kernel that cannot has destroyed it all the same.
        drop(self.diag.reset_destroyed(local, remote));
        true
    }
}

/// The kernel's next event; never, without MPTCP.
pub async fn event(mptcp: Option<&mut Mptcp>) -> std::result::Result<Event, EventError> {
    match mptcp {
        Some(mptcp) => mptcp.events.next().await,
        None => std::future::pending().await,
    }
}

/// A connection as the engine is told of it.
pub fn seen(connection: &Connection) -> ConnectionSnapshot {
    let is_opening = |info: &&SubflowInfo| info.tcp.state == TcpState::SynSent;
    let (opening, open): (Vec<_>, Vec<_>) = connection.subflows.iter().partition(is_opening);
    let subflows = |of: Vec<&SubflowInfo>| of.into_iter().map(|info| info.subflow).collect();
    ConnectionSnapshot {
        token: connection.token,
        local: connection.local,
        remote: connection.remote,
        // Only the first subflow tells who opened the connection; without it, a
        // vehicle is taken for the client.
        server_side: connection.server_side.unwrap_or(false),
        subflows: subflows(open),
        opening: subflows(opening),
    }
}
