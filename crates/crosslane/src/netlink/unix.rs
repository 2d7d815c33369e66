//! Users of the programs that listen on UNIX sockets, also where the queue of connections is full.
//!
//! Source: Linux `include/uapi/linux/unix_diag.h`; `UNIX_DIAG_UID` since 5.3.

use std::collections::BTreeMap;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::UNIX_DIAG_NAME;
use netlink_packet_sock_diag::unix::{ShowFlags, StateFlags, UnixRequest};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use super::message::{DecodeError, attributes, frame};
use super::socket::{Channel, CommandError};

/// Maximum number of names; further ones are dropped.
const MAX_NAMES: usize = 65_536;
const SOCKET: &str = "a UNIX socket's description";
const UNIX_DIAG_UID: u16 = 7;
const UDIAG_SHOW_UID: u32 = 0x40;

/// The user id of each stream socket that listens at an abstract name of this thread's network namespace; names are
/// without the zero byte at their beginning.
///
/// # Errors
/// The kernel does not report them.
pub fn listeners() -> Result<BTreeMap<Vec<u8>, u32>, CommandError> {
    let asked = CommandError::while_asked_to("list UNIX sockets");
    let mut found = BTreeMap::new();
    let listed = Channel::open(NETLINK_SOCK_DIAG).map_err(Into::into).and_then(|mut channel| {
        let show_flags = ShowFlags::NAME | ShowFlags::from_bits_retain(UDIAG_SHOW_UID);
        let request = UnixRequest { state_flags: StateFlags::LISTEN, inode: 0, show_flags, cookie: [0xff; 8] };
        channel.call(SockDiagMessage::UnixRequest(request), NLM_F_DUMP, |message| {
            if found.len() < MAX_NAMES {
                found.extend(listener(message.payload())?);
            }
            Ok(())
        })
    });
    listed.map(|()| found).map_err(asked)
}

/// `struct unix_diag_msg`: family, type, state (a byte each), padding, inode, cookie; then attributes.
fn listener(payload: &[u8]) -> Result<Option<(Vec<u8>, u32)>, DecodeError> {
    let Some((header, rest)) = payload.split_first_chunk::<16>() else {
        return Err(frame(SOCKET, payload, "shorter than struct unix_diag_msg"));
    };
    let (mut name, mut user) = (None, None);
    for attribute in attributes(SOCKET, rest) {
        let attribute = attribute?;
        match attribute.kind {
            // The name of a file has no zero byte at its beginning.
            UNIX_DIAG_NAME => name = attribute.value.strip_prefix(&[0]).map(<[u8]>::to_vec),
            UNIX_DIAG_UID => user = Some(attribute.u32("a socket's user")?),
            _ => {}
        }
    }
    // A socket of another type may have the same name.
    Ok(name.zip(user).filter(|_| i32::from(header[1]) == libc::SOCK_STREAM))
}
