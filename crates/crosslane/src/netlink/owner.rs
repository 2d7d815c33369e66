//! Which program a socket belongs to.

/// The program's part of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// User id of the program.
    pub user: u32,
    /// The socket's mark (SO_MARK); 0 if it has none, and without CAP_NET_ADMIN.
    pub mark: u32,
}
