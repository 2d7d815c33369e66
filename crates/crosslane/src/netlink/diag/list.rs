//! A list of sockets in parts, for a caller that does other work in between.

use netlink_packet_core::NLM_F_DUMP;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use super::super::socket::{CallError, Channel, OpenError};
use super::{SocketInfo, any_socket, query};

/// Length of a part in bytes: some 16 sockets.
const PART_LEN: usize = 8 * 1024;

/// Connected TCP sockets, of IPv4 or IPv6 (which may carry IPv4 too). The list costs as much as many queries of single
/// sockets, even with few sockets: the kernel scans the table of all namespaces.
///
/// The kernel prepares a part while the one before is read: a part is as old as the previous call.
pub struct SocketList {
    channel: Channel,
}

impl SocketList {
    /// Begins a list, on a separate netlink socket in the network namespace of this thread. Dropping it ends the list.
    pub fn begin(ipv4: bool) -> Result<SocketList, OpenError> {
        let mut channel = Channel::with_buffer(NETLINK_SOCK_DIAG, PART_LEN)?;
        channel.request(query(any_socket(ipv4)), NLM_F_DUMP)?;
        Ok(SocketList { channel })
    }

    /// Passes the sockets of the next part, those that can be decoded; false after the last one.
    ///
    /// # Errors
    /// The list cannot be continued.
    pub fn next_part(&mut self, mut on_socket: impl FnMut(SocketInfo)) -> Result<bool, CallError> {
        self.channel.next_part(|message| {
            if let Ok(socket) = SocketInfo::decode(message) {
                on_socket(socket);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_parts_of_a_list_have_every_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap());
        let connections: Vec<_> = (0..60).map(|_| connect()).collect();
        let (mut list, mut found, mut parts) = (SocketList::begin(true).unwrap(), BTreeSet::new(), 1);
        let mut keep = |socket: SocketInfo| found.extend([(socket.local, socket.remote)]);
        while list.next_part(&mut keep).unwrap() {
            parts += 1;
        }
        assert!(parts > 5, "{parts} parts");
        for (client, _) in &connections {
            let (client, server) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
            assert!(found.contains(&(client, server)) && found.contains(&(server, client)));
        }
    }
}
