//! The kernel's own path manager (`net.mptcp.path_manager=kernel`) on the
//! vehicle: a subflow from every endpoint, once, when the connection can take
//! them.

use crosslane_core::mptcp::{AddressId, Command, Event};
use crosslane_core::path::PathId;

use super::connection::{SERVER_ADDRESS, vehicle_address};

/// Subflows beside the first, at most.
const MAX_SUBFLOWS: usize = 8;

/// The path manager.
#[derive(Clone, Debug)]
pub struct KernelPathManager {
    /// Path and backup flag of each endpoint, in the order of their adding.
    endpoints: Vec<(PathId, bool)>,
}

impl KernelPathManager {
    /// One that knows these endpoints: path and backup flag.
    pub fn new(endpoints: Vec<(PathId, bool)>) -> KernelPathManager {
        KernelPathManager { endpoints }
    }

    /// What it does upon an event.
    pub fn on_event(&self, event: &Event) -> Vec<Command> {
        let Event::Established { token, subflow, .. } = event else { return Vec::new() };
        let is_first = |path: PathId| vehicle_address(path) == subflow.local.ip();
        let others = self.endpoints.iter().filter(|(path, _)| !is_first(*path));
        let create = |&(path, backup): &(PathId, bool)| Command::CreateSubflow {
            token: *token,
            local_id: AddressId(path.0 + 1),
            local: vehicle_address(path),
            if_index: 0,
            remote: SERVER_ADDRESS,
            backup,
        };
        // The first subflow learns by MP_PRIO that its endpoint is a backup.
        let demote = self.endpoints.iter().find(|(path, backup)| *backup && is_first(*path)).map(|_| {
            let (local, remote) = (subflow.local, subflow.remote);
            Command::SetBackup { token: *token, local, remote, backup: true }
        });
        demote.into_iter().chain(others.take(MAX_SUBFLOWS).map(create)).collect()
    }
}
