//! The in-kernel path manager: its limits and its endpoints, per network namespace. For agents where it manages the
//! connections, `doctor`, and the strategies `kernel` and `kernel-tuned`.
//!
//! Source: Linux `net/mptcp/pm_kernel.c`.

use std::net::IpAddr;

use crosslane_core::mptcp::AddressId;

use super::family::flag;
use super::requests::{self, Address, Answer, Arguments, Operation, RequestSocket};
use super::socket::{CommandError, OpenError};

/// Limits of the in-kernel path manager for each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Further subflows in addition to the first one, 0 to 8.
    pub subflows: u32,
    /// Number of the peer's addresses that it opens subflows to, 0 to 8.
    pub add_addr_accepted: u32,
}

/// A local address that the in-kernel path manager uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its id; `None` lets the kernel choose.
    pub id: Option<AddressId>,
    /// The address.
    pub address: IpAddr,
    /// Interface to send from, 0 for any.
    pub if_index: u32,
    /// Open subflows from it.
    pub subflow: bool,
    /// Announce it to the peer.
    pub signal: bool,
    /// Let its subflows be backups.
    pub backup: bool,
    /// Open subflows from it to every address of the peer's.
    pub fullmesh: bool,
}

impl Endpoint {
    /// An endpoint to open subflows from, no backup, on any interface.
    pub fn subflow(address: IpAddr) -> Endpoint {
        Endpoint { id: None, address, if_index: 0, subflow: true, signal: false, backup: false, fullmesh: false }
    }

    fn flags(&self) -> u32 {
        let bits = [
            (self.subflow, flag::SUBFLOW),
            (self.signal, flag::SIGNAL),
            (self.backup, flag::BACKUP),
            (self.fullmesh, flag::FULLMESH),
        ];
        bits.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum()
    }

    /// `None` for an entry that the kernel added itself, for a subflow that a
    /// program opened without endpoint.
    fn from_address(found: &Address) -> Option<Endpoint> {
        let flags = found.flags.unwrap_or_default();
        found.ip.filter(|_| flags & flag::IMPLICIT == 0).map(|ip| Endpoint {
            id: found.id.map(AddressId),
            address: ip.to_canonical(),
            if_index: found.if_index,
            subflow: flags & flag::SUBFLOW != 0,
            signal: flags & flag::SIGNAL != 0,
            backup: flags & flag::BACKUP != 0,
            fullmesh: flags & flag::FULLMESH != 0,
        })
    }
}

/// A socket for the in-kernel path manager. Needs CAP_NET_ADMIN in its network
/// namespace.
pub struct EndpointSocket(RequestSocket);

impl EndpointSocket {
    /// Opens a socket in the network namespace of this thread.
    pub fn open() -> Result<EndpointSocket, OpenError> {
        Ok(EndpointSocket(RequestSocket::open()?))
    }

    /// Sets the limits, for future and present connections.
    pub fn set_limits(&mut self, limits: Limits) -> Result<(), CommandError> {
        let (subflows, add_addr_accepted) = (Some(limits.subflows), Some(limits.add_addr_accepted));
        let arguments = Arguments { limits: requests::Limits { add_addr_accepted, subflows }, ..Arguments::default() };
        self.request("set the limits of its path manager", Operation::SetLimits, &arguments).map(drop)
    }

    /// The present limits.
    pub fn limits(&mut self) -> Result<Limits, CommandError> {
        let attempt = "report the limits of its path manager";
        let limits = self.request(attempt, Operation::GetLimits, &Arguments::default())?.limits;
        Ok(Limits {
            subflows: limits.subflows.unwrap_or_default(),
            add_addr_accepted: limits.add_addr_accepted.unwrap_or_default(),
        })
    }

    /// Adds an endpoint; the kernel also opens its subflows on present
    /// connections. `EEXIST` if the address has an endpoint already.
    pub fn add(&mut self, endpoint: &Endpoint) -> Result<(), CommandError> {
        let (id, if_index) = (endpoint.id.map(|id| id.0), endpoint.if_index);
        let address = Address { id, ip: Some(endpoint.address), port: 0, flags: Some(endpoint.flags()), if_index };
        self.change("add an endpoint", Operation::AddAddress, address)
    }

    /// Removes an endpoint by its id; the kernel closes its subflows.
    pub fn remove(&mut self, id: AddressId) -> Result<(), CommandError> {
        let address = Address { id: Some(id.0), ..Address::default() };
        self.change("remove an endpoint", Operation::DeleteAddress, address)
    }

    /// Sets the flags of an endpoint that the kernel can change, both at once. They reach every connection, the backup
    /// flag in each only the first subflow from that address.
    pub fn set_flags(&mut self, address: IpAddr, backup: bool, fullmesh: bool) -> Result<(), CommandError> {
        let flags = [(backup, flag::BACKUP), (fullmesh, flag::FULLMESH)];
        let flags = Some(flags.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum());
        let address = Address { ip: Some(address), flags, ..Address::default() };
        self.change("change an endpoint's priority", Operation::SetFlags, address)
    }

    /// Removes all endpoints.
    pub fn flush(&mut self) -> Result<(), CommandError> {
        self.request("remove all endpoints", Operation::FlushAddresses, &Arguments::default()).map(drop)
    }

    /// All endpoints that a program or user added.
    pub fn list(&mut self) -> Result<Vec<Endpoint>, CommandError> {
        let answer = self.request("list its endpoints", Operation::ListAddresses, &Arguments::default())?;
        Ok(answer.addresses.iter().filter_map(Endpoint::from_address).collect())
    }

    fn change(&mut self, attempt: &'static str, operation: Operation, address: Address) -> Result<(), CommandError> {
        self.request(attempt, operation, &Arguments { local: Some(address), ..Arguments::default() }).map(drop)
    }

    fn request(
        &mut self,
        attempt: &'static str,
        operation: Operation,
        arguments: &Arguments,
    ) -> Result<Answer, CommandError> {
        self.0.send(operation, arguments).map_err(CommandError::while_asked_to(attempt))
    }
}
