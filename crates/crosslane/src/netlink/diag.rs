//! What the kernel knows of TCP sockets and MPTCP subflows, without owning
//! them: `sock_diag` with `tcp_info` and the MPTCP part of `INET_DIAG_ULP_INFO`.
//!
//! Source: Linux `include/uapi/linux/inet_diag.h`, `net/mptcp/diag.c`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crosslane_core::mptcp::{AddressId, Subflow, Token};
use netlink_packet_core::{
    DefaultNla, Emitable, NLM_F_ACK, NLM_F_DUMP, NetlinkPayload, NetlinkSerializable, Parseable,
};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags};
use netlink_packet_sock_diag::{SOCK_DIAG_BY_FAMILY, SockDiagMessage};
use netlink_sys::protocols::{NETLINK_ROUTE, NETLINK_SOCK_DIAG};
use nix::errno::Errno;

use super::links;
use super::message::{DecodeError, Message, attributes, frame, request};
pub use super::mptcp_info::MptcpInfo;
use super::mptcp_info::{live_token, upper_layer};
use super::socket::{CallError, Channel, CommandError, OpenError};
use super::tcp_info::TcpInfo;

/// Sockets that one list holds at most; further ones are left out.
pub const MAX_SOCKETS: usize = 65_536;
/// Local addresses of which the interface is remembered.
const MAX_INTERFACES: usize = 64;
/// Length of `struct inet_diag_msg` in bytes.
const RESPONSE_LEN: usize = 72;
/// What messages are called in errors.
const SOCKET: &str = "a socket's description";
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_ULP_INFO: u16 = 19;
/// A socket is asked for by its addresses, not by its cookie.
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// One TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketInfo {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// Index of the interface that it is bound to; 0: of none.
    pub if_index: u32,
    /// How it fares.
    pub tcp: TcpInfo,
    /// What makes it a subflow; `None` for plain TCP, for MPTCP fallen back to
    /// it, and without CAP_NET_ADMIN.
    pub mptcp: Option<MptcpInfo>,
}

/// One MPTCP subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubflowInfo {
    /// The subflow; a backup if either end wants it to be.
    pub subflow: Subflow,
    /// Our token of the connection, as in events.
    pub token_local: Token,
    /// The peer's token; 0 unless this end opened the subflow by MP_JOIN.
    pub token_remote: Token,
    /// Index of the interface that it is bound to, as those are that a path
    /// manager opened; 0: of none.
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
    /// Our end as the connection began.
    pub local: SocketAddr,
    /// The peer's end as the connection began: where to open subflows to.
    pub remote: SocketAddr,
    /// True if this end accepted it; `None` if its first subflow is gone, for
    /// only that one tells. On a vehicle one may take `None` for false.
    pub server_side: Option<bool>,
    /// Its subflows, in the kernel's order, without those that this end has
    /// closed; there may be none.
    pub subflows: Vec<SubflowInfo>,
}

/// A socket for questions about sockets.
pub struct Diag {
    channel: Channel,
    addresses: Channel,
    interfaces: BTreeMap<IpAddr, u32>,
}

impl Diag {
    /// Opens a socket in the network namespace of this thread.
    pub fn open() -> Result<Diag, OpenError> {
        let (channel, addresses) = (Channel::open(NETLINK_SOCK_DIAG)?, Channel::open(NETLINK_ROUTE)?);
        Ok(Diag { channel, addresses, interfaces: BTreeMap::new() })
    }

    /// All connected TCP sockets, subflows among them, [`MAX_SOCKETS`] at most.
    pub fn sockets(&mut self) -> Result<Vec<SocketInfo>, CommandError> {
        let mut found = self.list(true)?;
        found.append(&mut self.list(false)?);
        Ok(found)
    }

    /// The same, only sockets of IPv4 or only those of IPv6, which may carry IPv4
    /// as well. It takes as long as many questions about one socket each, however
    /// few sockets there are: the kernel goes through the table of all namespaces.
    pub fn list(&mut self, ipv4: bool) -> Result<Vec<SocketInfo>, CommandError> {
        let mut found = Vec::new();
        let any = if ipv4 { SocketId::new_v4() } else { SocketId::new_v6() };
        self.ask(any, NLM_F_DUMP, &mut found).map_err(CommandError::while_asked_to("list its TCP sockets"))?;
        Ok(found)
    }

    /// The TCP socket between `local` and `remote`; `None` if there is none.
    ///
    /// A socket bound to an interface is found only by the index of it, any
    /// other by any index: the one that has `local` serves for both.
    pub fn socket(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<Option<SocketInfo>, CommandError> {
        let known = self.interfaces.get(&local.ip()).copied().unwrap_or(0);
        let mut found = self.exact(local, remote, known);
        if matches!(found, Ok(None))
            && let Some(now) = self.learn_interface(local.ip()).filter(|now| *now != known)
        {
            found = self.exact(local, remote, now);
        }
        found.map_err(CommandError::while_asked_to("describe a TCP socket"))
    }

    /// All MPTCP subflows. Needs CAP_NET_ADMIN: without, there are none.
    pub fn subflows(&mut self) -> Result<Vec<SubflowInfo>, CommandError> {
        Ok(self.sockets()?.into_iter().filter_map(SocketInfo::subflow).collect())
    }

    /// The MPTCP subflow between `local` and `remote`; `None` if there is none.
    pub fn subflow(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<Option<SubflowInfo>, CommandError> {
        Ok(self.socket(local, remote)?.and_then(SocketInfo::subflow))
    }

    /// All MPTCP connections with their subflows, by token: what an agent
    /// begins with, and returns to when events were lost. One that has lost
    /// its last subflow is among them, one that fell back to TCP is not.
    pub fn connections(&mut self) -> Result<Vec<Connection>, CommandError> {
        let mut found = BTreeMap::new();
        for any in [SocketId::new_v4(), SocketId::new_v6()] {
            self.ask_connections(any, &mut found)
                .map_err(CommandError::while_asked_to("list its MPTCP connections"))?;
        }
        for subflow in self.subflows()? {
            if let Some(connection) = found.get_mut(&subflow.token_local) {
                connection.take(subflow);
            }
        }
        Ok(found.into_values().collect())
    }

    /// Resets what is left of a subflow that this end has destroyed. Of the first
    /// subflow of a connection the kernel keeps the socket: it acknowledges what
    /// the peer sends and never reads it, so the peer may wait for ever (measured
    /// on Linux 6.18). Whatever else was destroyed belongs to nobody any more and
    /// resets by itself. Needs CAP_NET_ADMIN, and a kernel with
    /// CONFIG_INET_DIAG_DESTROY.
    pub fn reset_destroyed(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), CommandError> {
        let id = exact(local, remote, 0);
        let mut is_owned = false;
        let asked = self.channel.call(
            |sequence| request(SockDiagMessage::InetRequest(question(id.clone())), NLM_F_ACK, sequence),
            |message| {
                is_owned = header(message.payload())?.0.inode != 0;
                Ok(())
            },
        );
        let outcome = match asked {
            Ok(()) if is_owned => {
                self.channel.call(|sequence| request(Reset(question(id)), NLM_F_ACK, sequence), |_| Ok(()))
            }
            other => other,
        };
        match outcome {
            Err(cause) if cause.errno() == Some(Errno::ENOENT) => Ok(()),
            other => other.map_err(CommandError::while_asked_to("reset a destroyed subflow")),
        }
    }

    fn ask_connections(&mut self, id: SocketId, found: &mut BTreeMap<Token, Connection>) -> Result<(), CallError> {
        self.channel.call(
            |sequence| request(MptcpQuestion(question(id)), NLM_F_DUMP, sequence),
            |message| {
                if found.len() < MAX_SOCKETS {
                    found.extend(Connection::decode(message)?.map(|connection| (connection.token, connection)));
                }
                Ok(())
            },
        )
    }

    fn exact(&mut self, local: SocketAddr, remote: SocketAddr, if_index: u32) -> Result<Option<SocketInfo>, CallError> {
        let mut found = Vec::new();
        match self.ask(exact(local, remote, if_index), NLM_F_ACK, &mut found) {
            Err(cause) if cause.errno() == Some(Errno::ENOENT) => Ok(None),
            Err(cause) => Err(cause),
            Ok(()) => Ok(found.pop()),
        }
    }

    /// Which interface has `address` now.
    fn learn_interface(&mut self, address: IpAddr) -> Option<u32> {
        let if_index = links::interface_of(&mut self.addresses, address).ok().flatten()?;
        if self.interfaces.len() >= MAX_INTERFACES {
            self.interfaces.clear();
        }
        self.interfaces.insert(address, if_index);
        Some(if_index)
    }

    fn ask(&mut self, id: SocketId, flags: u16, found: &mut Vec<SocketInfo>) -> Result<(), CallError> {
        let question = question(id);
        self.channel.call(
            |sequence| request(SockDiagMessage::InetRequest(question), flags, sequence),
            |message| {
                if found.len() < MAX_SOCKETS {
                    found.push(SocketInfo::decode(message)?);
                }
                Ok(())
            },
        )
    }
}

/// The socket and the connection that one netlink message describes, for tests
/// that feed it anything.
#[doc(hidden)]
pub fn decode(bytes: &[u8]) -> Result<(SocketInfo, Option<Connection>), DecodeError> {
    let message = Message::parse(bytes)?;
    Ok((SocketInfo::decode(message)?, Connection::decode(message)?))
}

impl Connection {
    fn take(&mut self, subflow: SubflowInfo) {
        if !subflow.mptcp.joined() {
            self.server_side = Some(!subflow.mptcp.opened_here());
        }
        if !subflow.tcp.state.closed_here() {
            self.subflows.push(subflow);
        }
    }

    /// `None` for one that fell back to TCP.
    fn decode(message: Message<'_>) -> Result<Option<Connection>, DecodeError> {
        let (header, rest) = header(message.payload())?;
        let mut found = None;
        for attribute in attributes(SOCKET, rest) {
            let attribute = attribute?;
            if attribute.kind == INET_DIAG_INFO {
                found = live_token(attribute.value)?;
            }
        }
        Ok(found.map(|token| {
            let (local, remote) = ends(&header);
            Connection { token, local, remote, server_side: None, subflows: Vec::new() }
        }))
    }
}

impl SocketInfo {
    /// The socket as a subflow; `None` if it is plain TCP.
    pub fn subflow(self) -> Option<SubflowInfo> {
        let mptcp = self.mptcp?;
        Some(SubflowInfo {
            subflow: Subflow {
                local: self.local,
                remote: self.remote,
                local_id: AddressId(mptcp.local_id),
                remote_id: AddressId(mptcp.remote_id),
                backup: mptcp.backup_local() || mptcp.backup_remote(),
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
        let (local, remote) = ends(&header);
        let (if_index, tcp) = (header.socket_id.interface_id, TcpInfo::parse(&[header.state]));
        let mut socket = SocketInfo { local, remote, if_index, tcp, mptcp: None };
        for attribute in attributes(SOCKET, rest) {
            let attribute = attribute?;
            match attribute.kind {
                INET_DIAG_INFO => socket.tcp = TcpInfo::parse(attribute.value),
                INET_DIAG_ULP_INFO => socket.mptcp = upper_layer(attribute.value)?,
                _ => {}
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

fn ends(header: &InetResponseHeader) -> (SocketAddr, SocketAddr) {
    let id = &header.socket_id;
    (
        SocketAddr::new(id.source_address.to_canonical(), id.source_port),
        SocketAddr::new(id.destination_address.to_canonical(), id.destination_port),
    )
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

/// Sockets that have or seek a peer.
fn question(id: SocketId) -> InetRequest {
    let family = if id.source_address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    InetRequest {
        family: family as u8,
        protocol: libc::IPPROTO_TCP as u8,
        extensions: ExtensionFlags::INFO,
        states: StateFlags::all() - StateFlags::LISTEN - StateFlags::TIME_WAIT - StateFlags::CLOSE,
        socket_id: id,
    }
}

/// The same question about MPTCP's own sockets, whose protocol number does not
/// fit into the request and follows it as `INET_DIAG_REQ_PROTOCOL`.
struct MptcpQuestion(InetRequest);

impl MptcpQuestion {
    fn protocol() -> DefaultNla {
        DefaultNla::new(3, (libc::IPPROTO_MPTCP as u32).to_ne_bytes().to_vec())
    }
}

impl NetlinkSerializable for MptcpQuestion {
    fn message_type(&self) -> u16 {
        SOCK_DIAG_BY_FAMILY
    }

    fn buffer_len(&self) -> usize {
        self.0.buffer_len() + MptcpQuestion::protocol().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (request, protocol) = buffer.split_at_mut(self.0.buffer_len());
        self.0.emit(request);
        MptcpQuestion::protocol().emit(protocol);
    }
}

impl From<MptcpQuestion> for NetlinkPayload<MptcpQuestion> {
    fn from(question: MptcpQuestion) -> Self {
        NetlinkPayload::InnerMessage(question)
    }
}

/// `SOCK_DESTROY`: the socket is to end with a reset.
struct Reset(InetRequest);

impl NetlinkSerializable for Reset {
    fn message_type(&self) -> u16 {
        /// `include/uapi/linux/sock_diag.h`
        const SOCK_DESTROY: u16 = 21;
        SOCK_DESTROY
    }

    fn buffer_len(&self) -> usize {
        self.0.buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        self.0.emit(buffer);
    }
}

impl From<Reset> for NetlinkPayload<Reset> {
    fn from(reset: Reset) -> Self {
        NetlinkPayload::InnerMessage(reset)
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
