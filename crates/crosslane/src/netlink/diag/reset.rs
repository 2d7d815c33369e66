//! Sockets of subflows that are reset (decision 34).

use std::net::SocketAddr;

use netlink_packet_core::NLM_F_ACK;
use netlink_packet_sock_diag::inet::SocketId;
use nix::errno::Errno;

use super::super::socket::{CallError, CommandError};
use super::{Diag, Request, SOCK_DESTROY, exact, header, query};

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
