//! The generic netlink family `mptcp_pm`: its ids on this kernel, and its messages.
//!
//! Source: Linux `Documentation/netlink/specs/mptcp_pm.yaml` and
//! `include/uapi/linux/mptcp_pm.h`.

use std::net::IpAddr;

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED, NLM_F_ACK, NetlinkMessage, NetlinkPayload};
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use nix::errno::Errno;

use super::message::{DecodeError, Message, attributes, frame};
use super::socket::{CallError, Channel, OpenError};

const NAME: &str = "mptcp_pm";
const EVENTS: &str = "mptcp_pm_events";
/// Length of the generic netlink header in bytes.
pub(super) const GENERIC_HEADER_LEN: usize = 4;

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

/// A request of the family: a command and its attributes.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub command: u8,
    pub attributes: Vec<DefaultNla>,
}

impl GenlFamily for Request {
    fn family_name() -> &'static str {
        NAME
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Request {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl Request {
    /// The request as a message for the family with the id `family` on this kernel.
    pub fn message(self, family: u16) -> GenlMessage<Request> {
        let mut message = GenlMessage::from_payload(self);
        message.set_resolved_family_id(family);
        message
    }
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

/// A 16-bit attribute in host order.
pub(super) fn u16_attribute(kind: u16, value: u16) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

/// A 32-bit attribute in host order.
pub(super) fn u32_attribute(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

/// A socket for requests to the family.
pub(super) struct Family {
    channel: Channel,
    id: u16,
    events: Option<u32>,
}

impl Family {
    /// Opens a socket and looks up the ids of the family and of its group.
    pub fn open() -> Result<Family, OpenError> {
        let (mut channel, mut id, mut events) = (Channel::open(NETLINK_GENERIC)?, 0, None);
        let query = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![GenlCtrlAttrs::FamilyName(NAME.to_owned())] };
        let result = channel.call(GenlMessage::from_payload(query), NLM_F_ACK, |message| {
            for attribute in control_attributes(message)? {
                match attribute {
                    GenlCtrlAttrs::FamilyId(found) => id = found,
                    GenlCtrlAttrs::McastGroups(groups) => {
                        events = groups.iter().find_map(|group| events_group(group)).or(events);
                    }
                    _ => {}
                }
            }
            Ok(())
        });
        match result {
            Err(cause) if cause.errno() == Some(Errno::ENOENT) => {
                return Err(OpenError::Absent("the generic netlink family mptcp_pm"));
            }
            other => other?,
        }
        Ok(Family { channel, id, events })
    }

    /// Id of the multicast group for events.
    pub fn events(&self) -> Result<u32, OpenError> {
        self.events.ok_or(OpenError::Absent("the multicast group mptcp_pm_events"))
    }

    /// Sends a request; `flags` are `NLM_F_ACK` or `NLM_F_DUMP`. `on_reply`
    /// receives the attributes of each reply.
    pub fn call(
        &mut self,
        request: Request,
        flags: u16,
        mut on_reply: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), CallError> {
        self.channel.call(request.message(self.id), flags, |message| {
            on_reply(message.payload().get(GENERIC_HEADER_LEN..).unwrap_or_default())
        })
    }
}

fn control_attributes(message: Message<'_>) -> Result<Vec<GenlCtrlAttrs>, DecodeError> {
    let parsed = NetlinkMessage::<GenlMessage<GenlCtrl>>::deserialize(message.bytes)
        .map_err(|cause| frame("the description of mptcp_pm", message.bytes, cause))?;
    match parsed.payload {
        NetlinkPayload::InnerMessage(inner) => Ok(inner.payload.nlas),
        _ => Ok(Vec::new()),
    }
}

fn events_group(group: &[McastGrpAttrs]) -> Option<u32> {
    let named = group.iter().any(|attribute| matches!(attribute, McastGrpAttrs::Name(name) if name == EVENTS));
    group.iter().find_map(|attribute| match attribute {
        McastGrpAttrs::Id(id) if named => Some(*id),
        _ => None,
    })
}
