//! Owners of the UDP sockets bound to a port: UDP carries no credentials, but the
//! kernel knows the owner of the socket that sent a datagram of this machine.

use std::io;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_sock_diag::inet::{ExtensionFlags, SocketId, StateFlags};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use super::diag::{header, inet_request};
use super::socket::{CallError, Channel, CommandError};

/// Maximum number of owners of one port; further ones are dropped.
const MAX_OWNERS: usize = 64;

/// A netlink socket for queries about UDP sockets.
pub struct UdpOwners {
    channel: Channel,
}

impl UdpOwners {
    /// Opens a socket in the network namespace of this thread.
    ///
    /// # Errors
    /// The system's.
    pub fn open() -> io::Result<UdpOwners> {
        Ok(UdpOwners { channel: Channel::open(NETLINK_SOCK_DIAG)? })
    }

    /// User ids of all sockets of IPv4 and IPv6 that are bound to `port`.
    ///
    /// # Errors
    /// The kernel does not report them.
    pub fn of(&mut self, port: u16) -> Result<Vec<u32>, CommandError> {
        let mut found = Vec::new();
        for mut any in [SocketId::new_v4(), SocketId::new_v6()] {
            any.source_port = port;
            self.query(any, &mut found).map_err(CommandError::while_asked_to("list UDP sockets"))?;
        }
        Ok(found)
    }

    fn query(&mut self, id: SocketId, found: &mut Vec<u32>) -> Result<(), CallError> {
        let query = inet_request(libc::IPPROTO_UDP, ExtensionFlags::empty(), StateFlags::all(), id);
        self.channel.call(query, NLM_F_DUMP, |message| {
            let (header, _) = header(message.payload())?;
            if found.len() < MAX_OWNERS {
                found.push(header.uid);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn the_owner_of_a_port_is_found_and_none_of_a_free_one() {
        let mut owners = UdpOwners::open().unwrap();
        let own = nix::unistd::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let socket = UdpSocket::bind(address).unwrap();
            let port = socket.local_addr().unwrap().port();
            assert_eq!(owners.of(port).unwrap(), [own]);
            drop(socket);
            assert_eq!(owners.of(port).unwrap(), [] as [u32; 0]);
        }
    }
}
