//! Access control for demand: root, the agent's own user, and a group that the
//! configuration names. The kernel reports the peer's credentials.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::unistd::geteuid;
use tokio::net::UnixStream;

/// Maximum number of a sender's groups that are checked.
const MAX_GROUPS: usize = 1024;

/// The user of a sender that is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownUser(pub Option<u32>);

/// Checks that the sender may send demand.
///
/// # Errors
/// The sender's user, if the kernel reports it.
pub fn check(stream: &UnixStream, group: Option<u32>) -> Result<(), UnknownUser> {
    let peer = stream.peer_cred().map_err(|_| UnknownUser(None))?;
    let own = [0, geteuid().as_raw()].contains(&peer.uid());
    let in_group = |group: u32| peer.gid() == group || groups(stream).is_ok_and(|groups| groups.contains(&group));
    if own || group.is_some_and(in_group) { Ok(()) } else { Err(UnknownUser(Some(peer.uid()))) }
}

/// The supplementary groups of the peer when it connected.
fn groups(stream: &impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; MAX_GROUPS];
    let mut bytes = size_of_val(groups.as_slice()) as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `stream` is borrowed, and the kernel writes at most `bytes` bytes.
    let result = unsafe {
        let place = groups.as_mut_ptr().cast();
        libc::getsockopt(stream.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, place, &raw mut bytes)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(bytes as usize / size_of::<u32>());
    Ok(groups)
}
