//! The kernel's in-kernel path manager (`net.mptcp.path_manager=kernel`) on the
//! vehicle: it creates one subflow from every endpoint once the connection admits
//! further subflows.

use crosslane_core::mptcp::{AddressId, Command, Event};
use crosslane_core::path::PathId;

use super::connection::{SERVER_ADDRESS, vehicle_address};

/// Maximum number of additional subflows.
const MAX_SUBFLOWS: usize = 8;

/// The path manager.
#[derive(Clone, Debug)]
pub struct KernelPathManager {
    /// Path and backup flag of each endpoint, in order of configuration.
    pub endpoints: Vec<(PathId, bool)>,
}

impl KernelPathManager {
    /// The commands for an event.
    pub fn on_event(&self, event: &Event) -> Vec<Command> {
        let Event::Established { token, subflow, .. } = *event else { return Vec::new() };
        let is_first = |path: PathId| vehicle_address(path) == subflow.local.ip();
        let others = self.endpoints.iter().filter(|(path, _)| !is_first(*path));
        let create = |&(path, backup): &(PathId, bool)| Command::CreateSubflow {
            token,
            local_id: AddressId(path.0 + 1),
            local: vehicle_address(path),
            if_index: 0,
            remote: SERVER_ADDRESS,
            backup,
        };
        // MP_PRIO makes the first subflow a backup if its endpoint is one.
        let demote = self.endpoints.iter().find(|(path, backup)| *backup && is_first(*path)).map(|_| {
            let (local, remote) = (subflow.local, subflow.remote);
            Command::SetBackup { token, local, remote, backup: true }
        });
        demote.into_iter().chain(others.take(MAX_SUBFLOWS).map(create)).collect()
    }
}
