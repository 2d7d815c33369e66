//! MPTCP path management: events and commands of the kernel, and the state machine
//! between them. The netlink driver encodes and decodes the bytes.
//!
//! Source of names and fields: Linux `Documentation/netlink/specs/mptcp_pm.yaml`
//! and RFC 8684.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use crate::path::PathId;

pub mod manager;

/// Time after which a driver resets what the kernel keeps of a destroyed subflow. Until then what is in flight can
/// arrive. It is less than the shortest retransmission timeout of Linux (200 ms), so nothing is retransmitted over a path
/// that is gone.
pub const RESET_AFTER: Duration = Duration::from_millis(150);

/// Rule of the notice that a network lets MPTCP pass again.
pub const NETWORK_PASSES: &str = "network.passes";

/// A connection, by its local token (RFC 8684 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

/// Identifier of an address within a connection (RFC 8684 §3.4.1); 0 is the
/// address of the first subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressId(pub u8);

/// A subflow as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subflow {
    /// Local address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Id of the local address.
    pub local_id: AddressId,
    /// Id of the peer's address.
    pub remote_id: AddressId,
    /// True if the subflow is a backup.
    pub backup: bool,
}

/// A subflow whose transport statistics describe its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredSubflow {
    /// Its connection.
    pub token: Token,
    /// Its path.
    pub path: PathId,
    /// Local address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// True if this endpoint accepted the connection.
    pub accepted: bool,
}

/// A connection as found in the kernel's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSnapshot {
    /// The connection.
    pub token: Token,
    /// Local address when the connection began.
    pub local: SocketAddr,
    /// The peer's address, even if no subflow is left.
    pub remote: SocketAddr,
    /// True if this endpoint accepted the connection.
    pub server_side: bool,
    /// Its subflows.
    pub subflows: Vec<Subflow>,
    /// Subflows that this endpoint is opening and the peer has not answered yet.
    pub opening: Vec<Subflow>,
}

/// Events of the kernel (generic netlink family `mptcp_pm`, group `mptcp_pm_events`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection begins; its first subflow is not yet usable.
    Created {
        /// The connection.
        token: Token,
        /// Its first subflow.
        subflow: Subflow,
        /// True if this endpoint accepted the connection.
        server_side: bool,
    },
    /// The connection accepts further subflows.
    Established {
        /// The connection.
        token: Token,
        /// Its first subflow.
        subflow: Subflow,
        /// True if this endpoint accepted the connection.
        server_side: bool,
    },
    /// The connection is gone.
    Closed {
        /// The connection.
        token: Token,
    },
    /// The peer announced an address (ADD_ADDR).
    Announced {
        /// The connection.
        token: Token,
        /// Id assigned by the peer.
        remote_id: AddressId,
        /// The address; port 0 if the announcement had none.
        remote: SocketAddr,
    },
    /// The peer withdrew an address (REMOVE_ADDR).
    Removed {
        /// The connection.
        token: Token,
        /// Id of the address withdrawn.
        remote_id: AddressId,
    },
    /// A further subflow is established.
    SubflowEstablished {
        /// The connection.
        token: Token,
        /// The subflow.
        subflow: Subflow,
    },
    /// A subflow is gone.
    SubflowClosed {
        /// The connection.
        token: Token,
        /// The subflow.
        subflow: Subflow,
        /// `errno` of the subflow's socket, 0 after an orderly close.
        error: u8,
    },
    /// The peer changed a subflow's priority (MP_PRIO).
    SubflowPriority {
        /// The connection.
        token: Token,
        /// The subflow, with the new flag.
        subflow: Subflow,
    },
    /// A socket listens for MPTCP connections.
    ListenerCreated {
        /// Where it listens.
        local: SocketAddr,
    },
    /// A listening socket is gone.
    ListenerClosed {
        /// Where it listened.
        local: SocketAddr,
    },
}

/// Commands to the kernel, for one connection (user-space path manager).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Open a subflow (`SUBFLOW_CREATE`).
    CreateSubflow {
        /// The connection.
        token: Token,
        /// Id for the local address: the one already in use for it, if any.
        local_id: AddressId,
        /// Local address.
        local: IpAddr,
        /// Interface to send from, 0 for any.
        if_index: u32,
        /// The peer's address and port.
        remote: SocketAddr,
        /// Open it as a backup.
        backup: bool,
    },
    /// End the opening of a subflow that the peer has not answered: the kernel would repeat its SYN for two minutes
    /// (`SOCK_DESTROY` of the socket in SYN_SENT, decision 80).
    CancelJoin {
        /// The connection.
        token: Token,
        /// Local address; the port is the kernel's choice.
        local: IpAddr,
        /// The peer's address and port.
        remote: SocketAddr,
    },
    /// Close a subflow; its data is retransmitted over others (`SUBFLOW_DESTROY`).
    DestroySubflow {
        /// The connection.
        token: Token,
        /// Local address and port.
        local: SocketAddr,
        /// The peer's address and port.
        remote: SocketAddr,
        /// True if its path is lost: what it would still send cannot arrive, and delays what others send.
        lost: bool,
    },
    /// Set or clear the backup flag, here and at the peer (`SET_FLAGS`, sends
    /// MP_PRIO).
    SetBackup {
        /// The connection.
        token: Token,
        /// Local address and port.
        local: SocketAddr,
        /// The peer's address and port.
        remote: SocketAddr,
        /// The flag.
        backup: bool,
    },
    /// Announce a local address (`ANNOUNCE`, sends ADD_ADDR).
    Announce {
        /// The connection.
        token: Token,
        /// Id for the address.
        local_id: AddressId,
        /// The address; port 0 to announce none.
        local: SocketAddr,
    },
    /// Withdraw an announced address (`REMOVE`, sends REMOVE_ADDR).
    Withdraw {
        /// The connection.
        token: Token,
        /// Id of the address.
        local_id: AddressId,
    },
}

impl Command {
    /// The connection.
    pub const fn token(&self) -> Token {
        match *self {
            Command::CreateSubflow { token, .. }
            | Command::CancelJoin { token, .. }
            | Command::DestroySubflow { token, .. }
            | Command::SetBackup { token, .. }
            | Command::Announce { token, .. }
            | Command::Withdraw { token, .. } => token,
        }
    }
}

/// Why the kernel refused a command (Linux `net/mptcp/pm_userspace.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel has no such connection: it has ended.
    UnknownConnection,
    /// The in-kernel path manager manages the connection, e.g. because it began while
    /// `net.mptcp.path_manager` was `kernel`.
    NotOurs,
    /// The connection has no such subflow, or no address of this id.
    UnknownSubflow,
    /// The kernel has another id for the address, or another address for the id.
    IdTaken,
    /// Anything else, by its `errno`; 0 if the kernel gave none.
    Other(i32),
}

/// The kernel's counters of handshakes with MP_CAPABLE (`MPTcpExt` in `/proc/net/netstat`, of a network namespace, since it exists).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandshakeCounters {
    /// SYN/ACKs with MP_CAPABLE (`MPCapableSYNACKRX`).
    pub answered: u64,
    /// Connections whose SYN/ACK had none (`MPCapableFallbackSYNACK`).
    pub fallbacks: u64,
    /// Times that SYNs with MP_CAPABLE were found to be dropped (`Blackhole`).
    pub blackholes: u64,
    /// Connections that began without MP_CAPABLE for that reason (`MPCapableSYNTXDisabled`).
    pub disabled: u64,
}

/// A connection that requested MPTCP and is plain TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainConnection {
    /// Its path, by its local address.
    pub path: PathId,
    /// The peer's address.
    pub peer: IpAddr,
}

/// A notice of the path manager to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Connections are left to the in-kernel path manager; reported for the first.
    NotOurs {
        /// The connection.
        token: Token,
    },
    /// A peer accepts no more subflows than there are.
    PeerLimit {
        /// Its address.
        peer: IpAddr,
        /// Subflows beyond the first that it accepts.
        subflows: u8,
    },
    /// More commands are due than the rate limit allows.
    Waiting {
        /// Connections whose commands are delayed.
        connections: usize,
    },
    /// There are more connections than the path manager manages.
    TooMany,
    /// What the network of a path does to MPTCP, or of all paths.
    Network {
        /// The path; `None`: it is not known, or concerns all.
        path: Option<PathId>,
        /// The rule that found it.
        rule: &'static str,
        /// One sentence.
        text: String,
    },
}

impl Notice {
    /// A short name for records.
    pub const fn name(&self) -> &'static str {
        match self {
            Notice::NotOurs { .. } => "not_ours",
            Notice::PeerLimit { .. } => "peer_limit",
            Notice::Waiting { .. } => "waiting",
            Notice::TooMany => "too_many",
            Notice::Network { rule, .. } => rule,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::NotOurs { .. } => f.write_str(
                "connections that began under the in-kernel path manager are left to it; set net.mptcp.path_manager to \
                 `userspace` before programs connect",
            ),
            Notice::PeerLimit { peer, subflows } => write!(
                f,
                "the peer {peer} accepts {subflows} additional subflows; raise its limit (`ip mptcp limits set \
                 subflows`) to use more paths"
            ),
            Notice::Waiting { connections } => {
                write!(f, "commands for {connections} connections are delayed by the limit of commands a second")
            }
            Notice::Network { text, .. } => f.write_str(text),
            Notice::TooMany => write!(
                f,
                "there are more than {} connections; further ones are not managed and keep their subflows",
                manager::MAX_CONNECTIONS
            ),
        }
    }
}
