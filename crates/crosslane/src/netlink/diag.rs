//! The kernel's information about TCP sockets and MPTCP subflows, also of other
//! programs: `sock_diag` with `tcp_info` and the MPTCP part of `INET_DIAG_ULP_INFO`.
//!
//! Source: Linux `include/uapi/linux/inet_diag.h`, `net/mptcp/diag.c`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crosslane_core::mptcp::{AddressId, Subflow, Token};
use netlink_packet_core::{DefaultNla, Emitable, NLM_F_ACK, NLM_F_DUMP, NetlinkSerializable, Parseable};
use netlink_packet_sock_diag::SOCK_DIAG_BY_FAMILY;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags};
use netlink_sys::protocols::{NETLINK_ROUTE, NETLINK_SOCK_DIAG};
use nix::errno::Errno;

use super::message::{DecodeError, Message, attributes, frame};
pub use super::mptcp_info::MptcpInfo;
use super::mptcp_info::{live_token, upper_layer};
pub use super::owner::Owner;
use super::socket::{CallError, Channel, CommandError, OpenError};
use super::tcp_info::TcpInfo;
use super::{is_linux, links};

mod list;
mod reset;

pub use list::SocketList;

/// Maximum number of sockets in one list; further ones are dropped.
pub const MAX_SOCKETS: usize = 65_536;
/// Maximum number of local addresses whose interface is cached.
const MAX_INTERFACES: usize = 64;
/// Length of `struct inet_diag_msg` in bytes.
const RESPONSE_LEN: usize = 72;
/// Name of the messages in errors.
const SOCKET: &str = "a socket's description";
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_ULP_INFO: u16 = 19;
/// `include/uapi/linux/sock_diag.h`: the socket is closed with a reset.
const SOCK_DESTROY: u16 = 21;
/// A socket is identified by its addresses, not by its cookie.
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// One TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketInfo {
    /// Local address.
    pub local: SocketAddr,
    /// Remote address.
    pub remote: SocketAddr,
    /// Index of the interface that it is bound to; 0 if none.
    pub if_index: u32,
    /// Its program's part.
    pub owner: Owner,
    /// Its TCP statistics.
    pub tcp: TcpInfo,
    /// Its MPTCP part; `None` for plain TCP, and without CAP_NET_ADMIN.
    pub mptcp: Option<MptcpInfo>,
}

/// One MPTCP subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubflowInfo {
    /// The subflow; a backup if either endpoint requests it.
    pub subflow: Subflow,
    /// Our token of the connection, as in events.
    pub token_local: Token,
    /// The peer's token; 0 unless this endpoint opened the subflow by MP_JOIN.
    pub token_remote: Token,
    /// Index of the interface that it is bound to, as subflows of a path manager
    /// are; 0 if none.
    pub if_index: u32,
    /// MPTCP's part.
    pub mptcp: MptcpInfo,
    /// TCP's part.
    pub tcp: TcpInfo,
}

/// One MPTCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The connection.
    pub token: Token,
    /// Local address at the start of the connection.
    pub local: SocketAddr,
    /// Remote address at the start of the connection: the destination of further subflows.
    pub remote: SocketAddr,
    /// True if this endpoint accepted it; `None` if its first subflow is gone, as
    /// only that one shows it. On a vehicle, `None` may count as false.
    pub server_side: Option<bool>,
    /// Its program's part.
    pub owner: Owner,
    /// Its subflows, in the kernel's order, without those that this endpoint has
    /// closed; there may be none.
    pub subflows: Vec<SubflowInfo>,
}

/// A netlink socket for queries about sockets.
pub struct Diag {
    channel: Channel,
    addresses: Channel,
    interfaces: BTreeMap<IpAddr, u32>,
    /// Whether the kernel resets sockets without an owner.
    resets_orphans: bool,
}

impl Diag {
    /// Opens a socket in the network namespace of this thread.
    pub fn open() -> Result<Diag, OpenError> {
        let (channel, addresses) = (Channel::open(NETLINK_SOCK_DIAG)?, Channel::open(NETLINK_ROUTE)?);
        Ok(Diag { channel, addresses, interfaces: BTreeMap::new(), resets_orphans: is_linux(6, 12) })
    }

    /// All connected TCP sockets, subflows among them, [`MAX_SOCKETS`] at most.
    pub fn sockets(&mut self) -> Result<Vec<SocketInfo>, CommandError> {
        let mut found = self.list(true)?;
        found.append(&mut self.list(false)?);
        Ok(found)
    }

    /// As [`Diag::sockets`], for IPv4 sockets only or IPv6 sockets only (which may carry IPv4 too).
    fn list(&mut self, ipv4: bool) -> Result<Vec<SocketInfo>, CommandError> {
        let mut found = Vec::new();
        self.query(any_socket(ipv4), NLM_F_DUMP, &mut found)
            .map_err(CommandError::while_asked_to("list its TCP sockets"))?;
        Ok(found)
    }

    /// The TCP socket between `local` and `remote`; `None` if there is none.
    ///
    /// A socket bound to an interface is found only by that interface's index, any
    /// other by any index: the index of the interface with `local` works for both.
    pub fn socket(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<Option<SocketInfo>, CommandError> {
        let known = self.interfaces.get(&local.ip()).copied().unwrap_or(0);
        let mut found = self.exact(local, remote, known);
        if matches!(found, Ok(None))
            && let Some(now) = self.look_up_interface(local.ip()).filter(|now| *now != known)
        {
            found = self.exact(local, remote, now);
        }
        found.map_err(CommandError::while_asked_to("describe a TCP socket"))
    }

    /// All MPTCP subflows. Needs CAP_NET_ADMIN; without it the list is empty.
    pub fn subflows(&mut self) -> Result<Vec<SubflowInfo>, CommandError> {
        Ok(self.sockets()?.into_iter().filter_map(SocketInfo::subflow).collect())
    }

    /// The MPTCP subflow between `local` and `remote`; `None` if there is none.
    pub fn subflow(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<Option<SubflowInfo>, CommandError> {
        Ok(self.socket(local, remote)?.and_then(SocketInfo::subflow))
    }

    /// All MPTCP connections with their subflows, by token: for the start of an
    /// agent and after lost events. A connection that has lost its last subflow
    /// is included, one that fell back to TCP is not.
    pub fn connections(&mut self) -> Result<Vec<Connection>, CommandError> {
        let mut found = BTreeMap::new();
        for any in [any_socket(true), any_socket(false)] {
            self.query_connections(any, &mut found)
                .map_err(CommandError::while_asked_to("list its MPTCP connections"))?;
        }
        for subflow in self.subflows()? {
            if let Some(connection) = found.get_mut(&subflow.token_local) {
                connection.add(subflow);
            }
        }
        Ok(found.into_values().collect())
    }

    fn query_connections(&mut self, id: SocketId, found: &mut BTreeMap<Token, Connection>) -> Result<(), CallError> {
        // The protocol number does not fit into the request and follows it as `INET_DIAG_REQ_PROTOCOL`.
        let protocol = DefaultNla::new(3, (libc::IPPROTO_MPTCP as u32).to_ne_bytes().to_vec());
        self.channel.call(Request { attributes: vec![protocol], ..query(id) }, NLM_F_DUMP, |message| {
            if found.len() < MAX_SOCKETS {
                found.extend(Connection::decode(message)?.map(|connection| (connection.token, connection)));
            }
            Ok(())
        })
    }

    fn exact(&mut self, local: SocketAddr, remote: SocketAddr, if_index: u32) -> Result<Option<SocketInfo>, CallError> {
        let mut found = Vec::new();
        match self.query(exact(local, remote, if_index), NLM_F_ACK, &mut found) {
            Err(cause) if cause.errno() == Some(Errno::ENOENT) => Ok(None),
            Err(cause) => Err(cause),
            Ok(()) => Ok(found.pop()),
        }
    }

    /// The interface that has `address` now.
    fn look_up_interface(&mut self, address: IpAddr) -> Option<u32> {
        let if_index = links::interface_of(&mut self.addresses, address).ok().flatten()?;
        if self.interfaces.len() >= MAX_INTERFACES {
            self.interfaces.clear();
        }
        self.interfaces.insert(address, if_index);
        Some(if_index)
    }

    fn query(&mut self, id: SocketId, flags: u16, found: &mut Vec<SocketInfo>) -> Result<(), CallError> {
        self.channel.call(query(id), flags, |message| {
            if found.len() < MAX_SOCKETS {
                found.push(SocketInfo::decode(message)?);
            }
            Ok(())
        })
    }
}

/// The socket and the connection that one netlink message describes, for tests
/// with arbitrary bytes.
#[doc(hidden)]
pub fn decode(bytes: &[u8]) -> Result<(SocketInfo, Option<Connection>), DecodeError> {
    let message = Message::parse(bytes)?;
    Ok((SocketInfo::decode(message)?, Connection::decode(message)?))
}

impl Connection {
    fn add(&mut self, subflow: SubflowInfo) {
        if !subflow.mptcp.joined() {
            self.server_side = Some(!subflow.mptcp.opened_here());
        }
        if !subflow.tcp.state.closed_here() {
            self.subflows.push(subflow);
        }
    }

    /// `None` for a connection that fell back to TCP.
    fn decode(message: Message<'_>) -> Result<Option<Connection>, DecodeError> {
        let (header, rest) = header(message.payload())?;
        let (mut found, mut owner) = (None, Owner::of(header.uid));
        for attribute in attributes(SOCKET, rest) {
            let attribute = attribute?;
            match attribute.kind {
                INET_DIAG_INFO => found = live_token(attribute.value)?,
                _ => owner.apply(attribute)?,
            }
        }
        Ok(found.map(|token| {
            let (local, remote) = addresses(&header);
            Connection { token, local, remote, server_side: None, owner, subflows: Vec::new() }
        }))
    }
}

impl SocketInfo {
    /// Whether one of the endpoints has set the backup flag.
    pub fn is_backup(&self) -> bool {
        self.mptcp.is_some_and(|mptcp| mptcp.backup_local() || mptcp.backup_remote())
    }

    /// The socket as a subflow; `None` if it is plain TCP.
    pub fn subflow(self) -> Option<SubflowInfo> {
        let mptcp = self.mptcp?;
        Some(SubflowInfo {
            subflow: Subflow {
                local: self.local,
                remote: self.remote,
                local_id: AddressId(mptcp.local_id),
                remote_id: AddressId(mptcp.remote_id),
                backup: self.is_backup(),
            },
            token_local: Token(mptcp.token_local),
            token_remote: Token(mptcp.token_remote),
            if_index: self.if_index,
            mptcp,
            tcp: self.tcp,
        })
    }

    fn decode(message: Message<'_>) -> Result<SocketInfo, DecodeError> {
        let (header, rest) = header(message.payload())?;
        let (local, remote) = addresses(&header);
        let (if_index, tcp) = (header.socket_id.interface_id, TcpInfo::parse(&[header.state]));
        let owner = Owner::of(header.uid);
        let mut socket = SocketInfo { local, remote, if_index, owner, tcp, mptcp: None };
        for attribute in attributes(SOCKET, rest) {
            let attribute = attribute?;
            match attribute.kind {
                INET_DIAG_INFO => socket.tcp = TcpInfo::parse(attribute.value),
                INET_DIAG_ULP_INFO => socket.mptcp = upper_layer(attribute.value)?,
                _ => socket.owner.apply(attribute)?,
            }
        }
        Ok(socket)
    }
}

/// `struct inet_diag_msg`, and the attributes behind it.
pub(super) fn header(payload: &[u8]) -> Result<(InetResponseHeader, &[u8]), DecodeError> {
    let Some((header, rest)) = payload.split_at_checked(RESPONSE_LEN) else {
        return Err(frame(SOCKET, payload, "shorter than struct inet_diag_msg"));
    };
    match InetResponseHeader::parse(header) {
        Ok(header) => Ok((header, rest)),
        Err(cause) => Err(frame(SOCKET, payload, cause)),
    }
}

fn addresses(header: &InetResponseHeader) -> (SocketAddr, SocketAddr) {
    let id = &header.socket_id;
    (
        SocketAddr::new(id.source_address.to_canonical(), id.source_port),
        SocketAddr::new(id.destination_address.to_canonical(), id.destination_port),
    )
}

/// Any socket of IPv4, or of IPv6.
fn any_socket(ipv4: bool) -> SocketId {
    if ipv4 { SocketId::new_v4() } else { SocketId::new_v6() }
}

fn exact(local: SocketAddr, remote: SocketAddr, if_index: u32) -> SocketId {
    SocketId {
        source_port: local.port(),
        destination_port: remote.port(),
        source_address: local.ip(),
        destination_address: remote.ip(),
        interface_id: if_index,
        cookie: NO_COOKIE,
    }
}

/// A query for connected or connecting TCP sockets.
fn query(id: SocketId) -> Request {
    let states = StateFlags::all() - StateFlags::LISTEN - StateFlags::TIME_WAIT - StateFlags::CLOSE;
    inet_request(libc::IPPROTO_TCP, ExtensionFlags::INFO, states, id)
}

/// A query for sockets of one protocol in these states.
pub(super) fn inet_request(protocol: i32, extensions: ExtensionFlags, states: StateFlags, id: SocketId) -> Request {
    let family = if id.source_address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let inet = InetRequest { family: family as u8, protocol: protocol as u8, extensions, states, socket_id: id };
    Request { kind: SOCK_DIAG_BY_FAMILY, inet, attributes: Vec::new() }
}

/// A request about sockets: `struct inet_diag_req_v2` and attributes.
pub(super) struct Request {
    kind: u16,
    inet: InetRequest,
    attributes: Vec<DefaultNla>,
}

impl NetlinkSerializable for Request {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.inet.buffer_len() + self.attributes.as_slice().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (inet, attributes) = buffer.split_at_mut(self.inet.buffer_len());
        self.inet.emit(inet);
        self.attributes.as_slice().emit(attributes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            family in prop::sample::select(vec![0u8, 2, 10]),
            rest in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut raw = vec![0; 17];
            raw[0] = 17 + rest.len() as u8;
            raw[16] = family;
            raw.extend(rest);
            if let Ok(message) = Message::parse(&raw) {
                let _ = SocketInfo::decode(message);
                let _ = Connection::decode(message);
            }
        }
    }
}
