//! The generic netlink family `mptcp_pm`: its name, and its messages.
//!
//! Source: Linux `Documentation/netlink/specs/mptcp_pm.yaml` and
//! `include/uapi/linux/mptcp_pm.h`.

use std::net::IpAddr;

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED};

use super::generic::{Name, u16_attribute, u32_attribute};
use super::message::{DecodeError, attributes};

/// The family, and the group of its events.
pub(super) const MPTCP_PM: Name =
    Name { family: "mptcp_pm", events: "mptcp_pm_events", needs: "it needs Linux 5.19 or newer with CONFIG_MPTCP" };

pub(super) mod attribute {
    pub const ADDR: u16 = 1;
    pub const RCV_ADD_ADDRS: u16 = 2;
    pub const SUBFLOWS: u16 = 3;
    pub const TOKEN: u16 = 4;
    pub const LOC_ID: u16 = 5;
    pub const ADDR_REMOTE: u16 = 6;
}

/// Attributes within `ADDR` and `ADDR_REMOTE`.
pub(super) mod address {
    pub const FAMILY: u16 = 1;
    pub const ID: u16 = 2;
    pub const ADDR4: u16 = 3;
    pub const ADDR6: u16 = 4;
    pub const PORT: u16 = 5;
    pub const FLAGS: u16 = 6;
    pub const IF_IDX: u16 = 7;
}

/// Bits of `address::FLAGS`.
pub(super) mod flag {
    pub const SIGNAL: u32 = 1 << 0;
    pub const SUBFLOW: u32 = 1 << 1;
    pub const BACKUP: u32 = 1 << 2;
    pub const FULLMESH: u32 = 1 << 3;
    pub const IMPLICIT: u32 = 1 << 4;
    pub const LAMINAR: u32 = 1 << 5;
}

/// An address within a request or its answer, with every attribute that `mptcp_pm` has for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Its address id (RFC 8684 §3.2).
    pub id: Option<u8>,
    /// The address; an IPv4 address that is mapped into IPv6 stays so.
    pub ip: Option<IpAddr>,
    /// The port, 0 for none; unlike in events the kernel has it in host order here.
    pub port: u16,
    /// Bits of `MPTCP_PM_ADDR_FLAG_…`.
    pub flags: Option<u32>,
    /// The interface, 0 for any.
    pub if_index: u32,
}

impl Address {
    /// The address in the value of the attribute `ADDR`.
    pub(super) fn decode(bytes: &[u8]) -> Result<Address, DecodeError> {
        let mut found = Address::default();
        for attribute in attributes("MPTCP_PM_ATTR_ADDR", bytes) {
            let attribute = attribute?;
            match attribute.kind {
                address::ID => found.id = Some(attribute.u8("MPTCP_PM_ADDR_ATTR_ID")?),
                address::ADDR4 => found.ip = Some(attribute.ipv4("MPTCP_PM_ADDR_ATTR_ADDR4")?),
                address::ADDR6 => found.ip = Some(attribute.ipv6_as_sent("MPTCP_PM_ADDR_ATTR_ADDR6")?),
                address::PORT => found.port = attribute.u16("MPTCP_PM_ADDR_ATTR_PORT")?,
                address::FLAGS => found.flags = Some(attribute.u32("MPTCP_PM_ADDR_ATTR_FLAGS")?),
                address::IF_IDX => found.if_index = attribute.u32("MPTCP_PM_ADDR_ATTR_IF_IDX")?,
                _ => {}
            }
        }
        Ok(found)
    }

    /// The address as the nested attribute `kind`.
    pub(super) fn nested(self, kind: u16) -> DefaultNla {
        let mut nested = Vec::new();
        if let Some(ip) = self.ip {
            let (family, kind, octets) = match ip {
                IpAddr::V4(ip) => (libc::AF_INET, address::ADDR4, ip.octets().to_vec()),
                IpAddr::V6(ip) => (libc::AF_INET6, address::ADDR6, ip.octets().to_vec()),
            };
            nested.push(u16_attribute(address::FAMILY, family as u16));
            nested.push(DefaultNla::new(kind, octets));
        }
        nested.extend(self.id.map(|id| DefaultNla::new(address::ID, vec![id])));
        nested.extend((self.port != 0).then(|| u16_attribute(address::PORT, self.port)));
        nested.extend(self.flags.map(|flags| u32_attribute(address::FLAGS, flags)));
        nested.extend((self.if_index != 0).then(|| u32_attribute(address::IF_IDX, self.if_index)));
        let mut value = vec![0; nested.as_slice().buffer_len()];
        nested.as_slice().emit(&mut value);
        DefaultNla::new(kind | NLA_F_NESTED, value)
    }
}
