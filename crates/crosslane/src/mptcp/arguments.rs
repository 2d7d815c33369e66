//! The command line of `crosslane mptcp`, and its requests.

use std::net::IpAddr;

use nix::net::if_::if_nametoindex;

use super::ip;
use crate::error::{Error, Result};
use crate::netlink::requests::{Address, Arguments, FLAGS, Limits, Operation};

/// The kernel's path managers, without an agent.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Print JSON.
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    #[command(flatten)]
    Request(Verb),
    /// Hold an MPTCP listener until a signal, for subflows to an announced address and port.
    Listen {
        /// The address.
        #[arg(value_parser = ip)]
        address: IpAddr,
        /// The port; default: the kernel chooses one.
        #[arg(long, default_value_t = 0, hide_default_value = true)]
        port: u16,
    },
    /// Print every event of the kernel, a line each, until a signal.
    Events,
}

/// What is asked of the kernel. All but `endpoint` and `limits` are for connections of the user-space path manager.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Announce an address to the peer of a connection (ADD_ADDR).
    Announce {
        /// The local address.
        #[arg(value_parser = ip)]
        address: IpAddr,
        #[command(flatten)]
        connection: Connection,
        /// Its address id.
        #[arg(long, value_name = "ID")]
        id: u8,
        /// Its port; default: that of the first subflow.
        #[arg(long, default_value_t = 0, hide_default_value = true)]
        port: u16,
        #[command(flatten)]
        device: Device,
        #[command(flatten)]
        flags: Flags<SIGNAL>,
    },
    /// Withdraw an address from the peer of a connection (REMOVE_ADDR); its subflows are closed.
    Withdraw {
        #[command(flatten)]
        connection: Connection,
        /// Its address id.
        #[arg(long, value_name = "ID")]
        id: u8,
    },
    /// Open a subflow.
    Create(Subflow<SUBFLOW>),
    /// Close a subflow.
    Destroy(Subflow<NONE>),
    /// Change the priority of a subflow (MP_PRIO): with `--flags backup` or `nobackup`.
    Priority(Subflow<NONE>),
    /// Endpoints of the in-kernel path manager.
    #[command(subcommand)]
    Endpoint(Endpoint),
    /// Limits of the in-kernel path manager, for each connection.
    #[command(subcommand)]
    Limits(LimitsCommand),
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Endpoint {
    /// Add an endpoint.
    Add {
        /// Its address.
        #[arg(value_parser = ip)]
        address: IpAddr,
        /// Its id; default: the kernel chooses one.
        #[arg(long)]
        id: Option<u8>,
        /// Port to announce and to listen at, with the flag `signal`.
        #[arg(long, default_value_t = 0, hide_default_value = true)]
        port: u16,
        #[command(flatten)]
        device: Device,
        #[command(flatten)]
        flags: Flags<NONE>,
    },
    /// Print one endpoint; with a token, an address of that connection.
    Get {
        /// Its id.
        id: u8,
        /// Token of a connection of the user-space path manager.
        #[arg(long, value_parser = token)]
        token: Option<u32>,
    },
    /// Change the flags `backup` and `fullmesh` of an endpoint: both become as given.
    Set {
        /// Its address.
        #[arg(value_parser = ip, required_unless_present = "id")]
        address: Option<IpAddr>,
        /// Its id, instead of the address.
        #[arg(long)]
        id: Option<u8>,
        /// Its port.
        #[arg(long, default_value_t = 0, hide_default_value = true)]
        port: u16,
        #[command(flatten)]
        flags: Flags<NONE>,
    },
    /// Delete an endpoint; its subflows are closed.
    Delete {
        /// Its id.
        id: u8,
        /// Its address, for the id 0.
        #[arg(value_parser = ip)]
        address: Option<IpAddr>,
    },
    /// Print all endpoints; with a token, all addresses of that connection.
    List {
        /// Token of a connection of the user-space path manager.
        #[arg(long, value_parser = token)]
        token: Option<u32>,
    },
    /// Delete all endpoints.
    Flush,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum LimitsCommand {
    /// Print the limits.
    Get,
    /// Set limits; one that is not given stays.
    Set {
        /// Further subflows in addition to the first one.
        #[arg(long, value_name = "N")]
        subflows: Option<u32>,
        /// Number of the peer's announced addresses that are accepted.
        #[arg(long, value_name = "N")]
        add_addr_accepted: Option<u32>,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Connection {
    /// Token of the connection: decimal, or hexadecimal as 0x5b3a0c11.
    #[arg(long, value_parser = token)]
    token: u32,
}

#[derive(Debug, clap::Args)]
pub(super) struct Device {
    /// Interface to send from.
    #[arg(long, visible_alias = "dev", value_name = "INTERFACE")]
    device: Option<String>,
}

impl Device {
    fn index(&self) -> Result<u32> {
        let Some(name) = &self.device else { return Ok(0) };
        if_nametoindex(name.as_str()).map_err(|cause| {
            let attempt = format!("looking for the interface {name:?}");
            Error::usage(attempt, cause, "name an interface of this network namespace (`ip link` lists them)")
        })
    }
}

const NONE: u32 = 0;
const SIGNAL: u32 = 1 << 0;
const SUBFLOW: u32 = 1 << 1;

/// Flags; without the option those in `DEFAULT`.
#[derive(Debug, clap::Args)]
pub(super) struct Flags<const DEFAULT: u32> {
    /// Flags, separated by commas: signal, subflow, backup, fullmesh, laminar, implicit, bits as 0x40; nobackup and
    /// nofullmesh say that one is off.
    #[arg(long, value_delimiter = ',', value_parser = flag)]
    flags: Option<Vec<u32>>,
}

impl<const DEFAULT: u32> Flags<DEFAULT> {
    fn bits(&self) -> Option<u32> {
        let given = self.flags.as_ref().map(|bits| bits.iter().fold(0, |all, bit| all | bit));
        given.or((DEFAULT != 0).then_some(DEFAULT))
    }
}

/// A subflow, by its addresses.
#[derive(Debug, clap::Args)]
pub(super) struct Subflow<const FLAGS: u32> {
    #[command(flatten)]
    connection: Connection,
    /// The local address.
    #[arg(long, value_name = "ADDRESS", value_parser = ip)]
    local: Option<IpAddr>,
    /// The local port.
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    local_port: u16,
    /// Address id of the local address.
    #[arg(long, value_name = "ID")]
    local_id: Option<u8>,
    /// The peer's address.
    #[arg(long, value_name = "ADDRESS", value_parser = ip)]
    remote: Option<IpAddr>,
    /// The peer's port.
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    remote_port: u16,
    #[command(flatten)]
    device: Device,
    #[command(flatten)]
    flags: Flags<FLAGS>,
}

impl<const FLAGS: u32> Subflow<FLAGS> {
    fn arguments(&self) -> Result<Arguments> {
        let (flags, if_index) = (self.flags.bits(), self.device.index()?);
        let local = Address { id: self.local_id, ip: self.local, port: self.local_port, flags, if_index };
        let remote = Address { ip: self.remote, port: self.remote_port, ..Address::default() };
        let given = |address: Address| (address != Address::default()).then_some(address);
        let token = Some(self.connection.token);
        Ok(Arguments { token, local: given(local), remote: given(remote), ..Arguments::default() })
    }
}

/// A request to the kernel.
pub(super) struct Request {
    /// What it is asked to do, in words.
    pub attempt: &'static str,
    pub operation: Operation,
    pub arguments: Arguments,
}

impl Verb {
    /// The request, or that there is no such interface.
    pub(super) fn request(&self) -> Result<Request> {
        let request = |attempt, operation, arguments| Ok(Request { attempt, operation, arguments });
        match self {
            Verb::Announce { address, connection, id, port, device, flags } => {
                let (flags, if_index) = (flags.bits(), device.index()?);
                let local = Some(Address { id: Some(*id), ip: Some(*address), port: *port, flags, if_index });
                let arguments = Arguments { token: Some(connection.token), local, ..Arguments::default() };
                request("announce an address", Operation::Announce, arguments)
            }
            Verb::Withdraw { connection, id } => {
                let (token, local_id) = (Some(connection.token), Some(*id));
                let arguments = Arguments { token, local_id, ..Arguments::default() };
                request("withdraw an address", Operation::Remove, arguments)
            }
            Verb::Create(subflow) => request("open a subflow", Operation::CreateSubflow, subflow.arguments()?),
            Verb::Destroy(subflow) => request("close a subflow", Operation::DestroySubflow, subflow.arguments()?),
            Verb::Priority(subflow) => request("change a priority", Operation::SetFlags, subflow.arguments()?),
            Verb::Endpoint(endpoint) => endpoint.request(),
            Verb::Limits(LimitsCommand::Get) => {
                request("report the limits", Operation::GetLimits, Arguments::default())
            }
            Verb::Limits(LimitsCommand::Set { subflows, add_addr_accepted }) => {
                let limits = Limits { subflows: *subflows, add_addr_accepted: *add_addr_accepted };
                request("set the limits", Operation::SetLimits, Arguments { limits, ..Arguments::default() })
            }
        }
    }
}

impl Endpoint {
    fn request(&self) -> Result<Request> {
        let none = Address::default();
        let (attempt, operation, local, token) = match self {
            Endpoint::Add { address, id, port, device, flags } => {
                let (flags, if_index) = (flags.bits(), device.index()?);
                let local = Address { id: *id, ip: Some(*address), port: *port, flags, if_index };
                ("add an endpoint", Operation::AddAddress, Some(local), None)
            }
            Endpoint::Set { address, id, port, flags } => {
                let local = Address { id: *id, ip: *address, port: *port, flags: flags.bits(), if_index: 0 };
                ("change an endpoint", Operation::SetFlags, Some(local), None)
            }
            Endpoint::Delete { id, address } => {
                let local = Address { id: Some(*id), ip: *address, ..none };
                ("delete an endpoint", Operation::DeleteAddress, Some(local), None)
            }
            Endpoint::Get { id, token } => {
                ("report an address", Operation::GetAddress, Some(Address { id: Some(*id), ..none }), *token)
            }
            Endpoint::List { token } => ("list the addresses", Operation::ListAddresses, None, *token),
            Endpoint::Flush => ("delete all endpoints", Operation::FlushAddresses, None, None),
        };
        Ok(Request { attempt, operation, arguments: Arguments { token, local, ..Arguments::default() } })
    }
}

fn token(text: &str) -> Result<u32, String> {
    number(text).ok_or_else(|| format!("{text:?} is no token; write 1733624498 or 0x6754f2f2"))
}

fn flag(text: &str) -> Result<u32, String> {
    let named = |name: &str| FLAGS.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit);
    let is_off = text.strip_prefix("no").is_some_and(|name| named(name).is_some());
    let bits = if is_off { Some(0) } else { named(text).or_else(|| number(text)) };
    bits.ok_or_else(|| {
        let names: Vec<_> = FLAGS.iter().map(|(name, _)| *name).collect();
        format!("there is no flag {text:?}; write one of {}, with `no` before it, or bits as 0x40", names.join(", "))
    })
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
