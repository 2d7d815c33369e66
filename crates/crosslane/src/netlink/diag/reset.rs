//! Sockets of subflows that are reset (decision 34).

use std::net::{IpAddr, SocketAddr};

use crosslane_core::mptcp::Token;
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, SocketId, StateFlags};
use nix::errno::Errno;

use super::super::message::KernelError;
use super::super::socket::{CallError, CommandError};
use super::{Diag, Request, SOCK_DESTROY, SocketInfo, exact, header, inet_request, query};

/// Maximum number of subflows whose opening is ended at once; the next attempt ends further ones.
const MAX_CANCELLED: usize = 1024;

impl Diag {
    /// Aborts a subflow: it sends a RST and nothing more, and its data is retransmitted over others (decision 34). Needs
    /// CAP_NET_ADMIN, and a kernel with CONFIG_INET_DIAG_DESTROY.
    ///
    /// # Errors
    /// The kernel has no such socket, or cannot abort it.
    pub fn abort(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), CommandError> {
        let id = self.id(local, remote);
        self.destroy(id).map_err(CommandError::while_asked_to("abort a subflow"))
    }

    /// Ends the opening of all subflows of a connection from `local` to `remote` that have no answer: the kernel sends no
    /// further SYN (decision 80). Needs CAP_NET_ADMIN, and a kernel with CONFIG_INET_DIAG_DESTROY.
    ///
    /// # Errors
    /// The kernel has none (`ENOENT`), cannot list such sockets, or cannot abort one.
    pub fn cancel_join(&mut self, token: Token, local: IpAddr, remote: SocketAddr) -> Result<(), CommandError> {
        self.cancel(token, local, remote).map_err(CommandError::while_asked_to("end the opening of a subflow"))
    }

    fn cancel(&mut self, token: Token, local: IpAddr, remote: SocketAddr) -> Result<(), CallError> {
        let any = if local.is_ipv4() { SocketId::new_v4() } else { SocketId::new_v6() };
        let opening = inet_request(libc::IPPROTO_TCP, ExtensionFlags::INFO, StateFlags::SYN_SENT, any);
        let mut found = Vec::new();
        self.channel.call(opening, NLM_F_DUMP, |message| {
            let socket = SocketInfo::decode(message)?;
            if socket.local.ip() == local && socket.remote == remote && found.len() < MAX_CANCELLED {
                found.push(socket);
            }
            Ok(())
        })?;
        let is_join = |socket: &SocketInfo| socket.mptcp.is_some_and(|mptcp| mptcp.token_local == token.0);
        let nothing = KernelError { errno: Errno::ENOENT, text: None, offset: None, missing: None };
        let mut outcome = Err(nothing.into());
        for socket in found.into_iter().filter(is_join) {
            match self.destroy(exact(socket.local, socket.remote, socket.if_index)) {
                Err(cause) if cause.errno() == Some(Errno::ENOENT) => {}
                ended => outcome = Ok(ended?),
            }
        }
        outcome
    }

    fn destroy(&mut self, id: SocketId) -> Result<(), CallError> {
        self.channel.call(Request { kind: SOCK_DESTROY, ..query(id) }, NLM_F_ACK, |_| Ok(()))
    }

    /// A socket, with the interface that it is bound to.
    fn id(&mut self, local: SocketAddr, remote: SocketAddr) -> SocketId {
        let known = self.interfaces.get(&local.ip()).copied();
        exact(local, remote, self.look_up_interface(local.ip()).or(known).unwrap_or(0))
    }

    /// Resets the remains of a subflow that this endpoint has destroyed (decision 34): the socket of a connection's first
    /// subflow, which the kernel keeps, and that of any other, which sends its data again for a minute where nothing
    /// acknowledges it. Needs CAP_NET_ADMIN, and a kernel with CONFIG_INET_DIAG_DESTROY. Before Linux 6.12 only a first
    /// subflow is reset: a socket without an owner would stay forever ("tcp: fix forever orphan socket caused by
    /// tcp_abort").
    pub fn reset_destroyed(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), CommandError> {
        let id = self.id(local, remote);
        let mut is_reset = self.resets_orphans;
        let asked = if is_reset {
            Ok(())
        } else {
            self.channel.call(query(id.clone()), NLM_F_ACK, |message| {
                is_reset = header(message.payload())?.0.inode != 0;
                Ok(())
            })
        };
        let outcome = match asked {
            Ok(()) if is_reset => self.destroy(id),
            other => other,
        };
        match outcome {
            Err(cause) if cause.errno() == Some(Errno::ENOENT) => Ok(()),
            other => other.map_err(CommandError::while_asked_to("reset a destroyed subflow")),
        }
    }
}
