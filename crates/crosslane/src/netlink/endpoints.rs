//! The in-kernel path manager: its limits and its endpoints, per network
//! namespace. For the strategies `kernel` and `kernel-tuned`, and the server.
//!
//! Source: Linux `Documentation/netlink/specs/mptcp_pm.yaml`,
//! `net/mptcp/pm_kernel.c`.

use std::net::IpAddr;

use crosslane_core::mptcp::AddressId;
use netlink_packet_core::{DefaultNla, NLM_F_ACK, NLM_F_DUMP};

use super::family::{Address, MPTCP_PM, attribute, flag};
use super::generic::{Family, Request, u32_attribute};
use super::message::{Attribute, DecodeError, attributes};
use super::socket::{CommandError, OpenError};

/// Maximum number of endpoints in the kernel's list (ids are 8 bits wide).
pub const MAX_ENDPOINTS: usize = 255;

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
    fn decode(bytes: &[u8]) -> Result<Option<Endpoint>, DecodeError> {
        let found = Address::decode(bytes)?;
        let flags = found.flags.unwrap_or_default();
        Ok(found.ip.filter(|_| flags & flag::IMPLICIT == 0).map(|ip| Endpoint {
            id: found.id.map(AddressId),
            address: ip.to_canonical(),
            if_index: found.if_index,
            subflow: flags & flag::SUBFLOW != 0,
            signal: flags & flag::SIGNAL != 0,
            backup: flags & flag::BACKUP != 0,
            fullmesh: flags & flag::FULLMESH != 0,
        }))
    }
}

/// A socket for the in-kernel path manager. Needs CAP_NET_ADMIN in its network
/// namespace.
pub struct EndpointSocket {
    family: Family,
}

impl EndpointSocket {
    /// Opens a socket in the network namespace of this thread.
    pub fn open() -> Result<EndpointSocket, OpenError> {
        Ok(EndpointSocket { family: Family::open(MPTCP_PM)? })
    }

    /// Sets the limits, for future and present connections.
    pub fn set_limits(&mut self, limits: Limits) -> Result<(), CommandError> {
        let attributes = vec![
            u32_attribute(attribute::RCV_ADD_ADDRS, limits.add_addr_accepted),
            u32_attribute(attribute::SUBFLOWS, limits.subflows),
        ];
        self.request("set the limits of its path manager", 5, attributes)
    }

    /// The present limits.
    pub fn limits(&mut self) -> Result<Limits, CommandError> {
        let mut limits = Limits { subflows: 0, add_addr_accepted: 0 };
        self.query("report the limits of its path manager", 6, NLM_F_ACK, |attribute| {
            match attribute.kind {
                attribute::RCV_ADD_ADDRS => {
                    limits.add_addr_accepted = attribute.u32("MPTCP_PM_ATTR_RCV_ADD_ADDRS")?;
                }
                attribute::SUBFLOWS => limits.subflows = attribute.u32("MPTCP_PM_ATTR_SUBFLOWS")?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(limits)
    }

    /// Adds an endpoint; the kernel also opens its subflows on present
    /// connections. `EEXIST` if the address has an endpoint already.
    pub fn add(&mut self, endpoint: &Endpoint) -> Result<(), CommandError> {
        let (id, if_index) = (endpoint.id.map(|id| id.0), endpoint.if_index);
        let address = Address { id, ip: Some(endpoint.address), port: 0, flags: Some(endpoint.flags()), if_index };
        self.request("add an endpoint", 1, vec![address.nested(attribute::ADDR)])
    }

    /// Removes an endpoint by its id; the kernel closes its subflows.
    pub fn remove(&mut self, id: AddressId) -> Result<(), CommandError> {
        let address = Address { id: Some(id.0), ..Address::default() };
        self.request("remove an endpoint", 2, vec![address.nested(attribute::ADDR)])
    }

    /// Sets or clears the backup flag of an endpoint. It reaches every
    /// connection, and in each only the first subflow from that address.
    pub fn set_backup(&mut self, address: IpAddr, backup: bool) -> Result<(), CommandError> {
        self.set_flags(address, backup, false)
    }

    /// Sets the flags of an endpoint that the kernel can change, both at once.
    pub fn set_flags(&mut self, address: IpAddr, backup: bool, fullmesh: bool) -> Result<(), CommandError> {
        let flags = [(backup, flag::BACKUP), (fullmesh, flag::FULLMESH)];
        let flags = Some(flags.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum());
        let address = Address { ip: Some(address), flags, ..Address::default() };
        self.request("change an endpoint's priority", 7, vec![address.nested(attribute::ADDR)])
    }

    /// Removes all endpoints.
    pub fn flush(&mut self) -> Result<(), CommandError> {
        self.request("remove all endpoints", 4, Vec::new())
    }

    /// All endpoints that a program or user added, [`MAX_ENDPOINTS`] at most.
    pub fn list(&mut self) -> Result<Vec<Endpoint>, CommandError> {
        let mut found = Vec::new();
        self.query("list its endpoints", 3, NLM_F_DUMP, |attribute| {
            if attribute.kind == attribute::ADDR && found.len() < MAX_ENDPOINTS {
                found.extend(Endpoint::decode(attribute.value)?);
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn request(&mut self, attempt: &'static str, command: u8, attributes: Vec<DefaultNla>) -> Result<(), CommandError> {
        let result = self.family.call(Request { command, attributes }, NLM_F_ACK, |_| Ok(()));
        result.map_err(CommandError::while_asked_to(attempt))
    }

    fn query(
        &mut self,
        attempt: &'static str,
        command: u8,
        flags: u16,
        mut on_attribute: impl FnMut(Attribute<'_>) -> Result<(), DecodeError>,
    ) -> Result<(), CommandError> {
        let result = self.family.call(Request { command, attributes: Vec::new() }, flags, |bytes| {
            attributes("an answer of mptcp_pm", bytes).try_for_each(|attribute| on_attribute(attribute?))
        });
        result.map_err(CommandError::while_asked_to(attempt))
    }
}
