//! Where the kernel's path manager manages the connections: its endpoints, those of the agent and those of others.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crosslane_core::actuator::{self, Endpoint, EndpointCommand, EndpointPolicy, FIRST_ENDPOINT_ID};
use crosslane_core::agent::MAX_PATHS;
use crosslane_core::mptcp::manager::MAX_CONNECTIONS;
use crosslane_core::mptcp::{AddressId, Token};
use crosslane_core::path::PathId;

use super::Driver;
use crate::netlink::endpoints::{self, EndpointSocket, Limits};
use crate::netlink::{CommandError, PathManager, TcpState};
use crate::program::endpoint_owner;

/// Maximum number of further subflows of a connection that the kernel allows.
const MAX_SUBFLOWS: u32 = 8;
/// Maximum number of endpoints of others that are named.
const MAX_NAMED: usize = 64;

/// The kernel's endpoints, as far as the agent knows them.
#[derive(Default)]
pub struct Endpoints {
    socket: Option<EndpointSocket>,
    present: Vec<endpoints::Endpoint>,
    /// Ids and addresses of endpoints of others that were named.
    named: BTreeSet<(u8, IpAddr)>,
    fault: Option<String>,
    /// True if a flag changed, or a subflow opened, since all subflows were seen with the flags of their endpoints.
    is_unverified: bool,
}

impl Endpoints {
    fn socket(&mut self) -> Option<&mut EndpointSocket> {
        if self.socket.is_none() {
            self.socket = EndpointSocket::open().ok();
        }
        self.socket.as_mut()
    }

    fn list(&mut self) -> Result<Vec<Endpoint>, CommandError> {
        let Some(socket) = self.socket() else { return Ok(Vec::new()) };
        self.present = socket.list()?;
        let endpoint = |of: &endpoints::Endpoint| Some(Endpoint { id: of.id?, address: of.address, backup: of.backup });
        Ok(self.present.iter().filter_map(endpoint).collect())
    }

    /// Lets each connection have a subflow for every path; a larger limit stays.
    fn raise_limits(&mut self, paths: usize) -> Result<(), CommandError> {
        let Some(socket) = self.socket() else { return Ok(()) };
        let (limits, needed) = (socket.limits()?, (paths as u32).min(MAX_SUBFLOWS));
        if limits.subflows >= needed {
            return Ok(());
        }
        socket.set_limits(Limits { subflows: needed, ..limits })
    }

    fn carry_out(&mut self, command: EndpointCommand) -> Result<(), CommandError> {
        self.is_unverified = true;
        let others = self.present.clone();
        let Some(socket) = self.socket() else { return Ok(()) };
        match command {
            EndpointCommand::Add { id, address, if_index, backup } => {
                let endpoint = endpoints::Endpoint::subflow(address);
                socket.add(&endpoints::Endpoint { id: Some(id), if_index, backup, ..endpoint })
            }
            EndpointCommand::SetBackup { address, backup } => {
                socket.set_flags(address, backup, is_fullmesh(&others, address))
            }
            EndpointCommand::RepeatBackup { address, backup } => {
                let fullmesh = is_fullmesh(&others, address);
                socket.set_flags(address, !backup, fullmesh)?;
                socket.set_flags(address, backup, fullmesh)
            }
            EndpointCommand::Remove { id } => socket.remove(id),
        }
    }
}

/// The other flag of an endpoint: the kernel sets both at once, and that of another program stays.
fn is_fullmesh(present: &[endpoints::Endpoint], address: IpAddr) -> bool {
    present.iter().any(|endpoint| endpoint.address == address && endpoint.fullmesh)
}

impl Driver {
    /// A subflow opened, or a connection began: its flag may not be that of its endpoint.
    pub(super) fn verify_endpoints(&mut self) {
        self.endpoints.is_unverified = true;
    }

    /// Passes the addresses of endpoints to the engine whose flag a subflow of the kernel's connections does not have.
    fn check_flags(&mut self, list: &[Endpoint]) {
        if !self.endpoints.is_unverified {
            return;
        }
        let Some(Ok(found)) = self.mptcp.as_mut().map(|mptcp| mptcp.diag.subflows()) else { return };
        let ours = self.engine.connections(None, MAX_CONNECTIONS).into_iter().filter(|one| !one.is_foreign);
        let ours: BTreeSet<Token> = ours.map(|connection| connection.token).collect();
        let has_another = |endpoint: &&Endpoint| {
            found.iter().any(|info| {
                info.subflow.local.ip() == endpoint.address
                    && info.tcp.state == TcpState::Established
                    && info.mptcp.backup_local() != endpoint.backup
                    && !ours.contains(&info.token_local)
            })
        };
        let missed: Vec<IpAddr> = list.iter().filter(has_another).map(|endpoint| endpoint.address).collect();
        self.endpoints.is_unverified = !missed.is_empty();
        self.handle(actuator::Event::Missed(missed).into());
    }

    /// Passes the kernel's endpoints to the engine, and names those of others.
    pub(super) fn check_endpoints(&mut self) {
        if self.config.paths.is_empty() || self.config.service.endpoints == EndpointPolicy::Off {
            return;
        }
        let is_kernel = self.path_manager == Some(PathManager::Kernel);
        if !is_kernel {
            self.handle(actuator::Event::Endpoints(None).into());
        }
        let paths = self.config.paths.len();
        let listed = match is_kernel {
            true => self.endpoints.raise_limits(paths).and_then(|()| self.endpoints.list()),
            false => self.endpoints.list(),
        };
        match listed {
            Ok(list) => {
                self.name_others(&list, is_kernel);
                if is_kernel {
                    self.handle(actuator::Event::Endpoints(Some(list.clone())).into());
                    self.check_flags(&list);
                }
            }
            Err(fault) => self.endpoint_fault(fault.to_string()),
        }
    }

    /// Carries out a command, and passes the endpoints after it to the engine. After a failure the next check does that.
    pub(super) fn carry_out_endpoint(&mut self, command: EndpointCommand) -> Option<CommandError> {
        match self.endpoints.carry_out(command).and_then(|()| self.endpoints.list()) {
            Ok(list) => {
                self.handle(actuator::Event::Endpoints(Some(list)).into());
                None
            }
            Err(fault) => {
                self.endpoint_fault(fault.to_string());
                Some(fault)
            }
        }
    }

    fn endpoint_fault(&mut self, fault: String) {
        if self.endpoints.fault.as_ref() != Some(&fault) {
            self.note_to_user(&fault);
            self.endpoints.fault = Some(fault);
        }
    }

    /// Names each endpoint of another program once.
    fn name_others(&mut self, list: &[Endpoint], is_kernel: bool) {
        let mut owner = None;
        let own = FIRST_ENDPOINT_ID..FIRST_ENDPOINT_ID + MAX_PATHS as u8;
        for endpoint in list.iter().filter(|endpoint| !own.contains(&endpoint.id.0)) {
            let key = (endpoint.id.0, endpoint.address);
            if self.endpoints.named.len() >= MAX_NAMED || !self.endpoints.named.insert(key) {
                continue;
            }
            let Endpoint { id: AddressId(id), address, .. } = endpoint;
            let path = self.path_with(*address);
            let effect = match (is_kernel, path, self.config.service.endpoints) {
                (false, ..) => "it has no effect on connections that this agent manages".to_owned(),
                (true, None, _) => "it is of no path of this agent, and stays as it is".to_owned(),
                (true, Some(path), EndpointPolicy::Adopt) => {
                    format!("this agent sets its backup flag as path {path} needs it, and does not remove it")
                }
                (true, Some(path), _) => format!("it stays as it is, and this agent does not steer path {path}"),
            };
            let owner = owner.get_or_insert_with(endpoint_owner);
            self.note_to_user(&format!("{owner} has set the MPTCP endpoint {id} with address {address}: {effect}"));
        }
    }

    fn path_with(&self, address: IpAddr) -> Option<String> {
        let view = self.engine.views().find(|view| self.interfaces.configured(view.id) == Some(address));
        view.map(|view| format!("{:?}", view.name))
    }

    /// The path with a local address.
    pub(super) fn path_of(&self, local: IpAddr) -> Option<PathId> {
        self.engine.views().map(|view| view.id).find(|path| self.interfaces.configured(*path) == Some(local))
    }
}
