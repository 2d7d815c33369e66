//! Who may tell demands: root, the agent's own user, and a group that the
//! configuration names. The kernel says who is at the other end.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::unistd::geteuid;
use tokio::net::UnixStream;

/// Groups that a sender is asked for; one in more of them is not found in the rest.
const MAX_GROUPS: usize = 1024;

/// The user of a sender that is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownUser(pub Option<u32>);

/// Whether the sender may tell demands.
///
/// # Errors
/// Who it is instead, as far as the kernel says.
pub fn check(stream: &UnixStream, group: Option<u32>) -> Result<(), UnknownUser> {
    let who = stream.peer_cred().map_err(|_| UnknownUser(None))?;
    let own = [0, geteuid().as_raw()].contains(&who.uid());
    let in_group = |group: u32| who.gid() == group || groups(stream).is_ok_and(|groups| groups.contains(&group));
    if own || group.is_some_and(in_group) { Ok(()) } else { Err(UnknownUser(Some(who.uid()))) }
}

/// The supplementary groups of the other end when it connected.
fn groups(stream: &impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; MAX_GROUPS];
    let mut bytes = size_of_val(groups.as_slice()) as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `stream` is borrowed, and the kernel writes at most `bytes` bytes.
    let asked = unsafe {
        let place = groups.as_mut_ptr().cast();
        libc::getsockopt(stream.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, place, &raw mut bytes)
    };
    if asked < 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(bytes as usize / size_of::<u32>());
    Ok(groups)
}
