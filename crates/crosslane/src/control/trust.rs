//! Access control of the control socket: root and the agent's own user, and a group that the
//! configuration names. The kernel reports the peer's credentials.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;

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

/// The user of the peer.
pub(super) fn user(peer: &impl AsFd) -> Option<u32> {
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

/// Root may use any agent, other users their own.
fn is_owner(user: u32) -> bool {
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
