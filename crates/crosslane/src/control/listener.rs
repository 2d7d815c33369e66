//! The names at which an agent listens: files, and abstract names of the network namespace.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use std::task::{Context, Poll};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{UnixListener, UnixStream};

use super::protocol::{MAX_CLIENTS, RESERVED_CLIENTS, address};

/// Mode of the socket's file: access for the agent's user and the configured group.
const FILE_MODE: u32 = 0o660;

pub(super) struct Listener {
    socket: UnixListener,
    _file: File,
}

impl Listener {
    /// The next connection that waits.
    ///
    /// # Errors
    /// The system's, as for lack of a descriptor: the connection still waits, and nothing wakes the caller for it.
    pub(super) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        self.socket.poll_accept(context).map_ok(|(stream, _)| stream)
    }
}

/// The socket's file; removed when this is dropped.
struct File(Option<PathBuf>);

impl Drop for File {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            drop(fs::remove_file(file));
        }
    }
}

/// Checks that an agent could listen at this name; what is created for that is removed.
///
/// # Errors
/// The system's.
pub fn try_name(name: &str) -> io::Result<()> {
    bind(name).map(drop)
}

fn bind(name: &str) -> io::Result<(Socket, File)> {
    let address = address(name)?;
    let bind = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.bind(&address)?;
        Ok(socket)
    };
    let socket = bind().or_else(|cause: io::Error| {
        if cause.kind() != io::ErrorKind::AddrInUse {
            return Err(cause);
        }
        remove_stale(name, &address)?;
        bind()
    })?;
    Ok((socket, File((!name.starts_with('@')).then(|| name.into()))))
}

/// Listens at a name; `group` has access to its file.
pub(super) fn listen(name: &str, group: Option<u32>) -> io::Result<Listener> {
    let (socket, file) = bind(name)?;
    if let Some(path) = &file.0 {
        // No connection is possible before the socket listens, so none uses another mode.
        fs::set_permissions(path, Permissions::from_mode(FILE_MODE))?;
        if group.is_some() {
            std::os::unix::fs::chown(path, None, group)?;
        }
    }
    socket.listen((MAX_CLIENTS + RESERVED_CLIENTS) as i32)?;
    let socket = UnixListener::from_std(OwnedFd::from(socket).into())?;
    Ok(Listener { socket, _file: file })
}

/// Removes the file of a socket without a listener.
fn remove_stale(name: &str, address: &SockAddr) -> io::Result<()> {
    let taken = |cause| Err(io::Error::new(io::ErrorKind::AddrInUse, cause));
    if name.starts_with('@') {
        return taken("an agent listens there");
    }
    if !fs::symlink_metadata(name)?.file_type().is_socket() {
        return taken("this is a file, not a socket");
    }
    match Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?.connect(address) {
        Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(name),
        _ => taken("an agent listens there"),
    }
}
