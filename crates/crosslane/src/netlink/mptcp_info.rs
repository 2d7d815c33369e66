//! MPTCP information of `sock_diag`: a subflow's part in its connection, and a
//! connection's token.
//!
//! Source: Linux `include/uapi/linux/mptcp.h`, `net/mptcp/diag.c`.

use crosslane_core::mptcp::Token;

use super::message::{Attribute, DecodeError, attributes};

/// The MPTCP part of a TCP socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MptcpInfo {
    /// Our token of the connection, as in events.
    pub token_local: u32,
    /// The peer's token; 0 unless this endpoint opened the subflow by MP_JOIN.
    pub token_remote: u32,
    /// Id of our address.
    pub local_id: u8,
    /// Id of the peer's address.
    pub remote_id: u8,
    /// `MPTCP_SUBFLOW_FLAG_*`.
    pub flags: u32,
}

/// Bits of [`MptcpInfo::flags`].
mod flag {
    pub const CAPABLE_REMOTE: u32 = 1 << 0;
    pub const CAPABLE_LOCAL: u32 = 1 << 1;
    pub const JOIN_REMOTE: u32 = 1 << 2;
    pub const JOIN_LOCAL: u32 = 1 << 3;
    pub const BACKUP_REMOTE: u32 = 1 << 4;
    pub const BACKUP_LOCAL: u32 = 1 << 5;
    pub const CONNECTED: u32 = 1 << 7;
}

impl MptcpInfo {
    /// True if it joined a connection, false if it is the connection's first.
    pub fn joined(&self) -> bool {
        self.flags & (flag::JOIN_LOCAL | flag::JOIN_REMOTE) != 0
    }

    /// True if this endpoint opened it.
    pub fn opened_here(&self) -> bool {
        self.flags & (flag::CAPABLE_LOCAL | flag::JOIN_LOCAL) != 0
    }

    /// True if this endpoint requested backup priority for it.
    pub fn backup_local(&self) -> bool {
        self.flags & flag::BACKUP_LOCAL != 0
    }

    /// True if the peer requested backup priority for it.
    pub fn backup_remote(&self) -> bool {
        self.flags & flag::BACKUP_REMOTE != 0
    }

    /// True if this endpoint opened it as a connection's first, and it is connected as plain TCP: the answer had no
    /// MP_CAPABLE.
    pub fn fell_back(&self) -> bool {
        let is_connected =
            self.flags & (flag::CAPABLE_LOCAL | flag::CONNECTED) == flag::CAPABLE_LOCAL | flag::CONNECTED;
        is_connected && self.flags & flag::CAPABLE_REMOTE == 0 && !self.joined()
    }
}

/// Token in a `struct mptcp_info` (Linux `include/uapi/linux/mptcp.h`), `None`
/// after a fallback to TCP.
pub(super) fn live_token(info: &[u8]) -> Result<Option<Token>, DecodeError> {
    const FALLBACK: u32 = 1;
    let word = |offset| info.get(offset..).and_then(<[u8]>::first_chunk).map(|word| u32::from_ne_bytes(*word));
    match (word(8), word(12)) {
        (Some(flags), Some(token)) => Ok((flags & FALLBACK == 0).then_some(Token(token))),
        _ => Err(DecodeError::Length { message: "struct mptcp_info", attribute: "INET_DIAG_INFO", length: info.len() }),
    }
}

/// `INET_DIAG_ULP_INFO`: the MPTCP part, `None` for another protocol.
pub(super) fn upper_layer(bytes: &[u8]) -> Result<Option<MptcpInfo>, DecodeError> {
    const INET_ULP_INFO_MPTCP: u16 = 3;
    for attribute in attributes("INET_DIAG_ULP_INFO", bytes) {
        let attribute = attribute?;
        if attribute.kind == INET_ULP_INFO_MPTCP {
            return MptcpInfo::decode(attribute.value).map(Some);
        }
    }
    Ok(None)
}

impl MptcpInfo {
    fn decode(bytes: &[u8]) -> Result<MptcpInfo, DecodeError> {
        let mut info = MptcpInfo::default();
        for attribute in attributes("INET_ULP_INFO_MPTCP", bytes) {
            info.apply(attribute?)?;
        }
        Ok(info)
    }

    fn apply(&mut self, attribute: Attribute<'_>) -> Result<(), DecodeError> {
        match attribute.kind {
            1 => self.token_remote = attribute.u32("MPTCP_SUBFLOW_ATTR_TOKEN_REM")?,
            2 => self.token_local = attribute.u32("MPTCP_SUBFLOW_ATTR_TOKEN_LOC")?,
            8 => self.flags = attribute.u32("MPTCP_SUBFLOW_ATTR_FLAGS")?,
            9 => self.remote_id = attribute.u8("MPTCP_SUBFLOW_ATTR_ID_REM")?,
            10 => self.local_id = attribute.u8("MPTCP_SUBFLOW_ATTR_ID_LOC")?,
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Captured from Linux 6.18: name, then attributes of a subflow opened here.
    const JOINED: [u8; 100] = [
        0x0a, 0, 1, 0, 0x6d, 0x70, 0x74, 0x63, 0x70, 0, 0, 0, 0x58, 0, 3, 0, 8, 0, 1, 0, 0x67, 0x3c, 0xd7, 0xc1, 8, 0,
        2, 0, 0xa2, 0x9a, 0x35, 0x66, 8, 0, 8, 0, 0xcc, 0, 0, 0, 5, 0, 9, 0, 0, 0, 0, 0, 5, 0, 0x0a, 0, 7, 0, 0, 0, 8,
        0, 3, 0, 1, 0, 0, 0, 0x0c, 0, 4, 0, 0x7f, 0x7f, 0xc3, 0x75, 0x97, 0x1f, 0x58, 0xab, 8, 0, 5, 0, 0, 0, 0, 0, 8,
        0, 6, 0, 0xb8, 0xe1, 0xea, 0x5f, 6, 0, 7, 0, 0, 0, 0, 0,
    ];

    fn with_flags(flags: u32) -> MptcpInfo {
        MptcpInfo { flags, ..MptcpInfo::default() }
    }

    #[test]
    fn a_captured_description_is_read() {
        let info = upper_layer(&JOINED).unwrap().unwrap();
        assert_eq!((info.token_local, info.token_remote), (0x6635_9aa2, 0xc1d7_3c67));
        assert_eq!((info.local_id, info.remote_id), (7, 0));
        assert!(info.joined() && info.opened_here());
        assert!(!info.backup_local() && !info.backup_remote());
    }

    #[test]
    fn flags_show_which_endpoint_opened_the_connection() {
        // As observed at the client and the server, on the first subflow and a joined one.
        for (flags, joined, opened_here) in
            [(0xc3, false, true), (0xc1, false, false), (0xcc, true, true), (0xc4, true, false)]
        {
            assert_eq!((with_flags(flags).joined(), with_flags(flags).opened_here()), (joined, opened_here));
        }
        assert!(with_flags(0xec).backup_local() && !with_flags(0xec).backup_remote());
    }

    #[test]
    fn another_upper_layer_protocol_is_ignored() {
        assert_eq!(upper_layer(&[8, 0, 1, 0, b't', b'l', b's', 0]), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(raw in prop::collection::vec(any::<u8>(), 0..128)) {
            let _ = upper_layer(&raw);
            let _ = live_token(&raw);
        }
    }
}
