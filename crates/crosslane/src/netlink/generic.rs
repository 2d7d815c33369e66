//! Families of generic netlink: their ids on this kernel, and requests to them.

use netlink_packet_core::{DefaultNla, Emitable, NLM_F_ACK, NetlinkMessage, NetlinkPayload};
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use nix::errno::Errno;

use super::message::{DecodeError, Message, frame};
use super::socket::{CallError, Channel, OpenError};

/// Length of the generic netlink header in bytes.
pub(super) const GENERIC_HEADER_LEN: usize = 4;

/// The name of a family.
#[derive(Clone, Copy)]
pub(super) struct Name {
    pub family: &'static str,
    /// The multicast group of its events.
    pub events: &'static str,
    /// What a kernel must have to offer it.
    pub needs: &'static str,
}

impl Name {
    fn absent(&self, what: &str, name: &str) -> OpenError {
        OpenError::Absent { what: format!("the {what} {name}"), needs: self.needs }
    }
}

/// A request of a family: a command and its attributes.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub command: u8,
    pub attributes: Vec<DefaultNla>,
}

impl GenlFamily for Request {
    /// Not used: [`Family::open`] looks the id up.
    fn family_name() -> &'static str {
        ""
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

/// A 16-bit attribute in host order.
pub(super) fn u16_attribute(kind: u16, value: u16) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

/// A 32-bit attribute in host order.
pub(super) fn u32_attribute(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

/// A socket for requests to a family.
pub(super) struct Family {
    name: Name,
    channel: Channel,
    id: u16,
    events: Option<u32>,
}

impl Family {
    /// Opens a socket and looks up the ids of the family and of its group.
    pub fn open(name: Name) -> Result<Family, OpenError> {
        let (mut channel, mut id, mut events) = (Channel::open(NETLINK_GENERIC)?, 0, None);
        let nlas = vec![GenlCtrlAttrs::FamilyName(name.family.to_owned())];
        let query = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas };
        let result = channel.call(GenlMessage::from_payload(query), NLM_F_ACK, |message| {
            for attribute in control_attributes(message)? {
                match attribute {
                    GenlCtrlAttrs::FamilyId(found) => id = found,
                    GenlCtrlAttrs::McastGroups(groups) => {
                        events = groups.iter().find_map(|group| group_id(group, name.events)).or(events);
                    }
                    _ => {}
                }
            }
            Ok(())
        });
        match result {
            Err(cause) if cause.errno() == Some(Errno::ENOENT) => {
                return Err(name.absent("generic netlink family", name.family));
            }
            other => other?,
        }
        Ok(Family { name, channel, id, events })
    }

    /// Id of the multicast group for events.
    pub fn events(&self) -> Result<u32, OpenError> {
        self.events.ok_or_else(|| self.name.absent("multicast group", self.name.events))
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
        .map_err(|cause| frame("the description of a family", message.bytes, cause))?;
    match parsed.payload {
        NetlinkPayload::InnerMessage(inner) => Ok(inner.payload.nlas),
        _ => Ok(Vec::new()),
    }
}

/// The id of a multicast group, if it has this name.
fn group_id(group: &[McastGrpAttrs], name: &str) -> Option<u32> {
    let named = group.iter().any(|attribute| matches!(attribute, McastGrpAttrs::Name(found) if found == name));
    group.iter().find_map(|attribute| match attribute {
        McastGrpAttrs::Id(id) if named => Some(*id),
        _ => None,
    })
}
