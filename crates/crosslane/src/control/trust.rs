//! Access control of the control socket: root and the agent's own user, and a group that the
//! configuration names. The kernel reports the peer's credentials.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;
use socket2::{Domain, Socket, Type};

use super::protocol::address;
use crate::netlink::unix;

/// Maximum number of a client's groups that are checked.
const MAX_GROUPS: usize = 1024;

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Read.
    Viewer,
    /// Report demand, and read.
    Sender,
    /// Change the agent, too: root and the agent's own user.
    Owner,
}

/// The groups that the configuration names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Groups {
    /// May report demand, and read.
    pub senders: Option<u32>,
    /// May read.
    pub viewers: Option<u32>,
}

/// Tells whose program listens at a name, and waits for none of them.
#[derive(Default)]
pub struct Listeners {
    /// What the kernel lists, once a queue was full.
    listed: Option<BTreeMap<Vec<u8>, u32>>,
}

impl Listeners {
    /// The user of the program that listens at an abstract name; `None`: none does, or its queue is full and the kernel
    /// does not tell whose it is.
    pub fn user(&mut self, name: &str) -> Option<u32> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).ok()?;
        match socket.connect(&address(name).ok()?) {
            Ok(()) => user(&socket),
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
                let listed = self.listed.get_or_insert_with(|| unix::listeners().unwrap_or_default());
                listed.get(name.strip_prefix('@')?.as_bytes()).copied()
            }
            Err(_) => None,
        }
    }
}

/// The user of the peer.
fn user(peer: &impl AsFd) -> Option<u32> {
    getsockopt(peer, sockopt::PeerCredentials).ok().map(|credentials| credentials.uid())
}

/// What the peer may do.
///
/// # Errors
/// It is neither root, nor of this process's user, nor of one of `groups`: who it is.
pub(super) fn trust(peer: &impl AsFd, groups: Groups) -> Result<Trust, String> {
    let credentials = getsockopt(peer, sockopt::PeerCredentials).map_err(|_| "this user")?;
    let in_group = |group: &u32| credentials.gid() == *group || all_groups(peer).is_ok_and(|all| all.contains(group));
    match credentials.uid() {
        user if is_owner(user) => Ok(Trust::Owner),
        _ if groups.senders.as_ref().is_some_and(in_group) => Ok(Trust::Sender),
        _ if groups.viewers.as_ref().is_some_and(in_group) => Ok(Trust::Viewer),
        user => Err(format!("user {user}")),
    }
}

/// Whether a client believes the server: root's or its own user's, and root any, since an agent may run as a user of its
/// service.
///
/// # Errors
/// It does not: who it is.
pub(super) fn believe(server: &impl AsFd) -> Result<(), String> {
    match user(server) {
        Some(user) if is_owner(user) || geteuid().is_root() => Ok(()),
        Some(user) => Err(format!("user {user}")),
        None => Err("another user".into()),
    }
}

/// Root may use any agent, other users their own.
pub(super) fn is_owner(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// The supplementary groups of the peer when it connected.
fn all_groups(peer: &impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; MAX_GROUPS];
    let mut bytes = size_of_val(groups.as_slice()) as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `peer` is borrowed, and the kernel writes at most `bytes` bytes.
    let result = unsafe {
        let place = groups.as_mut_ptr().cast();
        libc::getsockopt(peer.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, place, &raw mut bytes)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(bytes as usize / size_of::<u32>());
    Ok(groups)
}
