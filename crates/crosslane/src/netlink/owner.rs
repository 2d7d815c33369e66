//! Which program a socket belongs to.
//!
//! Source: Linux `include/uapi/linux/inet_diag.h`.

use super::message::{Attribute, DecodeError};

const INET_DIAG_MARK: u16 = 15;
const INET_DIAG_CGROUP_ID: u16 = 21;

/// The program's part of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// User id of the program.
    pub user: u32,
    /// The socket's mark (SO_MARK); 0 if it has none, and without CAP_NET_ADMIN.
    pub mark: u32,
    /// Id of its control group (version 2): the inode of the group's folder; 0 if the kernel does not report it.
    pub cgroup: u64,
}

impl Owner {
    /// A program of which only the user is known.
    pub(super) fn of(user: u32) -> Owner {
        Owner { user, ..Owner::default() }
    }

    /// Takes what an attribute of a socket states of its program.
    pub(super) fn apply(&mut self, attribute: Attribute<'_>) -> Result<(), DecodeError> {
        match attribute.kind {
            INET_DIAG_MARK => self.mark = attribute.u32("a socket's mark")?,
            INET_DIAG_CGROUP_ID => self.cgroup = attribute.u64("a socket's control group")?,
            _ => {}
        }
        Ok(())
    }
}
