//! Tells whoever started the agent that it is ready, as systemd asks of a
//! service of `Type=notify` (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Name of the variable that says where to tell it.
pub const VARIABLE: &str = "NOTIFY_SOCKET";

/// The message.
pub const READY: &[u8] = b"READY=1";

/// Tells it, if anybody asked. A failure is the asker's to notice.
pub fn tell() {
    let Some(name) = std::env::var_os(VARIABLE) else { return };
    let name = name.as_encoded_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::path::Path::new(&*String::from_utf8_lossy(name))),
    };
    let told = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(READY, &address));
    drop(told);
}
