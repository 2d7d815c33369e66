//! A TCP segment with its MPTCP options, without the payload bytes.

use std::fmt;

use crosslane_core::path::PathId;
use crosslane_core::time::Instant;

use super::sack::Sack;

/// FIN, as on the wire.
pub const FIN: u8 = 1;
/// SYN, as on the wire.
pub const SYN: u8 = 2;
/// RST, as on the wire.
pub const RST: u8 = 4;
/// PSH, as on the wire.
pub const PSH: u8 = 8;
/// ACK, as on the wire.
pub const ACK: u8 = 16;

/// IPv4 and TCP headers with the timestamps option (RFC 7323), in bytes.
pub const HEADER_BYTES: u16 = 52;
/// A DSS option with mapping and data acknowledgement (RFC 8684 §3.3): what
/// Linux puts on every segment with data.
pub const MAPPING_BYTES: u16 = 24;
/// IP MTU of Ethernet, in bytes.
pub const MTU_BYTES: u16 = 1500;

/// A set of MPTCP options (RFC 8684 §3), by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MptcpOptions(u16);

impl MptcpOptions {
    /// MP_CAPABLE.
    pub const CAPABLE: MptcpOptions = MptcpOptions(1);
    /// MP_JOIN.
    pub const JOIN: MptcpOptions = MptcpOptions(1 << 1);
    /// DSS: mapping or data acknowledgement.
    pub const DSS: MptcpOptions = MptcpOptions(1 << 2);
    /// REMOVE_ADDR.
    pub const REMOVE_ADDR: MptcpOptions = MptcpOptions(1 << 4);
    /// MP_PRIO.
    pub const PRIO: MptcpOptions = MptcpOptions(1 << 5);

    /// Names in order of subtype.
    const NAMES: [&str; 9] =
        ["capable", "join", "dss", "add_addr", "remove_addr", "prio", "fail", "fastclose", "reset"];

    /// The option of this subtype (RFC 8684 §8); empty for unknown subtypes.
    pub fn of_subtype(subtype: u8) -> MptcpOptions {
        let known = usize::from(subtype) < Self::NAMES.len();
        MptcpOptions(if known { 1 << subtype } else { 0 })
    }

    /// True if every option of `other` is in the set.
    pub fn contains(self, other: MptcpOptions) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds the options of `other`.
    pub fn insert(&mut self, other: MptcpOptions) {
        self.0 |= other.0;
    }
}

/// Names joined by `+`; empty for the empty set.
impl fmt::Display for MptcpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = (0..).zip(Self::NAMES).filter(|(bit, _)| self.0 & (1 << bit) != 0);
        f.write_str(&set.map(|(_, name)| name).collect::<Vec<_>>().join("+"))
    }
}

/// A segment. Sequence numbers are relative to the initial ones (a SYN has 0,
/// the first byte 1) and do not wrap; data sequence numbers count from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Path.
    pub path: PathId,
    /// The vehicle's port; it identifies the subflow.
    pub port: u16,
    /// Index of the subflow, in order of the vehicle's SYNs, from 0.
    pub subflow: u16,
    /// TCP flags.
    pub flags: u8,
    /// Sequence number.
    pub seq: u64,
    /// Acknowledgement number.
    pub ack: u64,
    /// Length of the payload, in bytes.
    pub payload: u16,
    /// Data sequence number of the first payload byte.
    pub dsn: Option<u64>,
    /// Data acknowledgement.
    pub data_ack: Option<u64>,
    /// Receive window of this segment's sender, in bytes.
    pub window: u64,
    /// SACK blocks. MPTCP leaves space for one.
    pub sack: Sack,
    /// MPTCP options.
    pub options: MptcpOptions,
    /// Backup flag of MP_JOIN or MP_PRIO.
    pub backup: Option<bool>,
    /// Id of the sender's address in the SYN of MP_JOIN (RFC 8684 section 3.2).
    pub joins: Option<u8>,
    /// Id of the address that REMOVE_ADDR withdraws.
    pub removed: Option<u8>,
    /// Transmission time of the segment that the peer echoes (RFC 7323 §4.3).
    pub echo: Instant,
}

impl Segment {
    /// Length including the IP header, in bytes, as in Linux.
    pub fn ip_bytes(&self) -> u16 {
        let capable = self.options.contains(MptcpOptions::CAPABLE);
        let join = self.options.contains(MptcpOptions::JOIN);
        if self.flags & SYN != 0 {
            let option = match (capable, join, self.flags & ACK != 0) {
                (true, _, false) => 4,
                (true, _, true) | (_, true, false) => 12,
                (_, true, true) => 16,
                _ => 0,
            };
            return HEADER_BYTES + 8 + option;
        }
        let sack = match self.sack.blocks().len() as u16 {
            0 => 0,
            blocks => 4 + 8 * blocks,
        };
        let prio = if self.options.contains(MptcpOptions::PRIO) { 4 } else { 0 };
        let removed = if self.removed.is_some() { 4 } else { 0 };
        let option = match (self.payload > 0, capable, join) {
            (true, ..) => self.dsn.map_or(0, |_| MAPPING_BYTES),
            (_, true, _) => 20,
            (_, _, true) => 24,
            _ => self.data_ack.map_or(0, |ack| if ack == 0 { 8 } else { 12 }),
        };
        HEADER_BYTES + option + sack + prio + removed + self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_named_in_the_order_of_their_subtype() {
        let mut options = MptcpOptions::of_subtype(5);
        options.insert(MptcpOptions::DSS);
        assert_eq!(options.to_string(), "dss+prio");
        assert!(options.contains(MptcpOptions::PRIO));
        assert!(!options.contains(MptcpOptions::JOIN));
        assert_eq!(MptcpOptions::of_subtype(15).to_string(), "");
    }
}
