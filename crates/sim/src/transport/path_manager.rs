//! The kernel's in-kernel path manager (`net.mptcp.path_manager=kernel`) on the
//! vehicle: it creates one subflow from every endpoint once the connection admits
//! further subflows.

use std::net::SocketAddr;

use crosslane_core::mptcp::{AddressId, Command, Event, Token};
use crosslane_core::path::PathId;

use super::connection::{SERVER_ADDRESS, vehicle_address};
use super::subflow::SubflowInfo;

/// Maximum number of additional subflows.
const MAX_SUBFLOWS: usize = 8;

/// The path manager.
#[derive(Clone, Debug)]
pub struct KernelPathManager {
    /// Paths that are endpoints, in order of configuration.
    endpoints: Vec<PathId>,
    /// The backup flag of each path as an endpoint.
    backups: Vec<bool>,
    /// The connection, once it admits further subflows.
    token: Option<Token>,
}

impl KernelPathManager {
    /// A path manager with these endpoints, and the backup flag of each path as one.
    pub fn new(endpoints: Vec<PathId>, backups: Vec<bool>) -> KernelPathManager {
        KernelPathManager { endpoints, backups, token: None }
    }

    /// The commands for an event.
    pub fn on_event(&mut self, event: &Event) -> Vec<Command> {
        let Event::Established { token, subflow, .. } = *event else { return Vec::new() };
        self.token = Some(token);
        let is_first = |path: PathId| vehicle_address(path) == subflow.local.ip();
        let others = self.endpoints.iter().filter(|path| !is_first(**path));
        // MP_PRIO makes the first subflow a backup if its endpoint is one.
        let demote = self.endpoints.iter().find(|path| self.is_backup(**path) && is_first(**path)).map(|_| {
            let (local, remote) = (subflow.local, subflow.remote);
            Command::SetBackup { token, local, remote, backup: true }
        });
        demote.into_iter().chain(others.take(MAX_SUBFLOWS).map(|path| self.create(token, *path))).collect()
    }

    /// Adds or removes the endpoint of a path; returns the commands for the connection with
    /// these subflows. The kernel opens a subflow from a new endpoint, and closes those from
    /// a removed one.
    pub fn set_endpoint(
        &mut self,
        path: PathId,
        present: bool,
        subflows: impl Iterator<Item = SubflowInfo>,
    ) -> Vec<Command> {
        self.endpoints.retain(|known| *known != path);
        let mut of_path = subflows.filter(|subflow| subflow.path == path).peekable();
        let Some(token) = self.token else {
            self.endpoints.extend(present.then_some(path));
            return Vec::new();
        };
        if !present {
            let local = |subflow: &SubflowInfo| SocketAddr::new(vehicle_address(path), subflow.port);
            let destroy = |subflow: SubflowInfo| (token, local(&subflow), subflow.transport.peer);
            let destroy = of_path.map(destroy);
            return destroy
                .map(|(token, local, remote)| Command::DestroySubflow { token, local, remote, lost: false })
                .collect();
        }
        self.endpoints.push(path);
        if of_path.peek().is_some() { Vec::new() } else { vec![self.create(token, path)] }
    }

    fn is_backup(&self, path: PathId) -> bool {
        self.backups.get(usize::from(path.0)).is_some_and(|backup| *backup)
    }

    fn create(&self, token: Token, path: PathId) -> Command {
        Command::CreateSubflow {
            token,
            local_id: AddressId(path.0 + 1),
            local: vehicle_address(path),
            if_index: 0,
            remote: SERVER_ADDRESS,
            backup: self.is_backup(path),
        }
    }
}
