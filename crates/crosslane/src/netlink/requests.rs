//! Every request and event of `mptcp_pm` as the kernel has it: all attributes, no check, no retry.
//!
//! Source: Linux `Documentation/netlink/specs/mptcp_pm.yaml` and `include/uapi/linux/mptcp.h`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{DefaultNla, NLM_F_ACK, NLM_F_DUMP};
use netlink_sys::protocols::NETLINK_GENERIC;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

pub use super::family::Address;
use super::family::{MPTCP_PM, attribute, flag};
use super::generic::{Family, GENERIC_HEADER_LEN, Request, u32_attribute};
use super::message::{DecodeError, FIRST_PROTOCOL_TYPE, Message, attributes, frame};
use super::socket::{CallError, OpenError};
use super::subscription::Subscription;

/// Addresses read from one answer: ids are 8 bits wide.
const MAX_ADDRESSES: usize = 256;

/// Names of the flags of an address, in the order in which they are printed. `unknown` is the bit that the kernel's
/// selftests use as one that no kernel has.
pub const FLAGS: [(&str, u32); 7] = [
    ("signal", flag::SIGNAL),
    ("subflow", flag::SUBFLOW),
    ("laminar", flag::LAMINAR),
    ("backup", flag::BACKUP),
    ("fullmesh", flag::FULLMESH),
    ("implicit", flag::IMPLICIT),
    ("unknown", 1 << 7),
];

/// A request, by its number in `enum mptcp_pm_cmd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Add an endpoint.
    AddAddress = 1,
    /// Delete an endpoint.
    DeleteAddress = 2,
    /// Report an endpoint, or an address of a connection.
    GetAddress = 3,
    /// Delete all endpoints.
    FlushAddresses = 4,
    /// Set the limits of the in-kernel path manager.
    SetLimits = 5,
    /// Report these limits.
    GetLimits = 6,
    /// Change flags of an endpoint, or the priority of a subflow.
    SetFlags = 7,
    /// Announce an address (ADD_ADDR).
    Announce = 8,
    /// Withdraw an address (REMOVE_ADDR).
    Remove = 9,
    /// Open a subflow.
    CreateSubflow = 10,
    /// Close a subflow.
    DestroySubflow = 11,
    /// Report all endpoints, or with a token all addresses of that connection: `GetAddress` as a dump.
    ListAddresses,
}

/// The attributes of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// Token of the connection.
    pub token: Option<u32>,
    /// Address id outside an address.
    pub local_id: Option<u8>,
    /// The local address, or the endpoint.
    pub local: Option<Address>,
    /// The peer's address.
    pub remote: Option<Address>,
    /// The limits to set.
    pub limits: Limits,
}

/// Limits of the in-kernel path manager; `None` keeps one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Number of the peer's announced addresses that it accepts.
    pub add_addr_accepted: Option<u32>,
    /// Further subflows in addition to the first one.
    pub subflows: Option<u32>,
}

/// What the kernel answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Addresses, in the kernel's order.
    pub addresses: Vec<Address>,
    /// The limits.
    pub limits: Limits,
}

/// A socket for requests. The kernel requires CAP_NET_ADMIN in its network namespace for most of them.
pub struct RequestSocket {
    family: Family,
}

impl RequestSocket {
    /// Opens a socket in the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel has no MPTCP.
    pub fn open() -> Result<RequestSocket, OpenError> {
        Ok(RequestSocket { family: Family::open(MPTCP_PM)? })
    }

    /// Sends a request and waits for the kernel's answer and acknowledgement.
    ///
    /// # Errors
    /// The kernel's refusal as it is.
    pub fn send(&mut self, operation: Operation, arguments: &Arguments) -> Result<Answer, CallError> {
        let (command, flags) = match operation {
            Operation::ListAddresses => (Operation::GetAddress as u8, NLM_F_DUMP),
            other => (other as u8, NLM_F_ACK),
        };
        let mut answer = Answer::default();
        let request = Request { command, attributes: arguments.attributes() };
        self.family.call(request, flags, |bytes| answer.read(bytes))?;
        Ok(answer)
    }
}

impl Arguments {
    fn attributes(&self) -> Vec<DefaultNla> {
        let number = |kind, value: Option<u32>| value.map(|value| u32_attribute(kind, value));
        let given = [
            self.local.map(|address| address.nested(attribute::ADDR)),
            number(attribute::RCV_ADD_ADDRS, self.limits.add_addr_accepted),
            number(attribute::SUBFLOWS, self.limits.subflows),
            number(attribute::TOKEN, self.token),
            self.local_id.map(|id| DefaultNla::new(attribute::LOC_ID, vec![id])),
            self.remote.map(|address| address.nested(attribute::ADDR_REMOTE)),
        ];
        given.into_iter().flatten().collect()
    }
}

impl Answer {
    fn read(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        for attribute in attributes("an answer of mptcp_pm", bytes) {
            let attribute = attribute?;
            match attribute.kind {
                attribute::ADDR if self.addresses.len() < MAX_ADDRESSES => {
                    self.addresses.push(Address::decode(attribute.value)?);
                }
                attribute::RCV_ADD_ADDRS => {
                    self.limits.add_addr_accepted = Some(attribute.u32("MPTCP_PM_ATTR_RCV_ADD_ADDRS")?);
                }
                attribute::SUBFLOWS => self.limits.subflows = Some(attribute.u32("MPTCP_PM_ATTR_SUBFLOWS")?),
                _ => {}
            }
        }
        Ok(())
    }
}

/// An event with every attribute that the kernel sent. Its text is one line, as `type:3,event:closed,token:17`; as
/// JSON it is an object with the same keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEvent {
    /// Number in `enum mptcp_event_type`.
    pub number: u8,
    /// Name and value of each attribute, in the kernel's order, then what its flags mean.
    pub attributes: Vec<(String, Value)>,
}

/// Value of an attribute of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number; a port in host order.
    Number(u32),
    /// An address.
    Ip(IpAddr),
    /// An attribute of another kind or length.
    Bytes(Vec<u8>),
}

/// Subscribes to all events of this thread's network namespace. Needs CAP_NET_ADMIN there.
///
/// # Errors
/// The kernel has no MPTCP, or denies it.
pub fn events() -> Result<Subscription<NamedEvent>, OpenError> {
    let group = Family::open(MPTCP_PM)?.events()?;
    Ok(Subscription::open(NETLINK_GENERIC, &[group], decode)?)
}

/// The event in one netlink message; `None` if it is a control message. Reads any bytes without panic.
///
/// # Errors
/// Headers or attributes do not fit into the bytes.
pub fn decode(bytes: &[u8]) -> Result<Option<NamedEvent>, DecodeError> {
    let message = Message::parse(bytes)?;
    if message.kind < FIRST_PROTOCOL_TYPE {
        return Ok(None);
    }
    let payload = message.payload();
    let Some((header, rest)) = payload.split_at_checked(GENERIC_HEADER_LEN) else {
        return Err(frame("an mptcp_pm event", payload, "no generic netlink header"));
    };
    let mut event = NamedEvent { number: header[0], attributes: Vec::new() };
    for attribute in attributes("an mptcp_pm event", rest) {
        let attribute = attribute?;
        event.attributes.push((attribute_name(attribute.kind), Value::read(attribute.kind, attribute.value)));
    }
    event.explain_flags();
    Ok(Some(event))
}

impl NamedEvent {
    /// Its name, as `sub_established`; `None` if the number is unknown.
    pub fn name(&self) -> Option<&'static str> {
        Some(match self.number {
            1 => "created",
            2 => "established",
            3 => "closed",
            6 => "announced",
            7 => "removed",
            10 => "sub_established",
            11 => "sub_closed",
            13 => "sub_priority",
            15 => "listener_created",
            16 => "listener_closed",
            _ => return None,
        })
    }

    /// Value of an attribute.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Adds what the bits of `MPTCP_ATTR_FLAGS` mean (`MPTCP_PM_EV_FLAG_…`). Which endpoint accepted the connection
    /// is an attribute of older kernels and a bit of newer ones; the key is the same for both.
    fn explain_flags(&mut self) {
        let bits = match self.get("flags") {
            Some(Value::Number(bits)) => *bits,
            _ => 0,
        };
        if bits & 1 != 0 {
            self.attributes.push(("deny_join_id0".into(), Value::Number(1)));
        }
        let begins = matches!(self.number, 1 | 2);
        if (begins || bits & 2 != 0) && self.get("server_side").is_none() {
            self.attributes.push(("server_side".into(), Value::Number(u32::from(bits & 2 != 0))));
        }
    }
}

/// Name of an attribute: that of `enum mptcp_event_attr`, in lower case without `MPTCP_ATTR_`.
fn attribute_name(kind: u16) -> String {
    const NAMES: [&str; 18] = [
        "token",
        "family",
        "loc_id",
        "rem_id",
        "saddr4",
        "saddr6",
        "daddr4",
        "daddr6",
        "sport",
        "dport",
        "backup",
        "error",
        "flags",
        "timeout",
        "if_idx",
        "reset_reason",
        "reset_flags",
        "server_side",
    ];
    let known = usize::from(kind).checked_sub(1).and_then(|place| NAMES.get(place));
    known.map_or_else(|| format!("attribute_{kind}"), |name| (*name).to_owned())
}

impl Value {
    fn read(kind: u16, bytes: &[u8]) -> Value {
        let is_port = matches!(kind, 9 | 10);
        match (kind, bytes) {
            (5 | 7, &[a, b, c, d]) => Value::Ip(Ipv4Addr::new(a, b, c, d).into()),
            (6 | 8, _) => match <[u8; 16]>::try_from(bytes) {
                Ok(octets) => Value::Ip(Ipv6Addr::from(octets).into()),
                Err(_) => Value::Bytes(bytes.to_vec()),
            },
            (1..=18, &[a]) => Value::Number(a.into()),
            (1..=18, &[a, b]) if is_port => Value::Number(u16::from_be_bytes([a, b]).into()),
            (1..=18, &[a, b]) => Value::Number(u16::from_ne_bytes([a, b]).into()),
            (1..=18, &[a, b, c, d]) => Value::Number(u32::from_ne_bytes([a, b, c, d])),
            _ => Value::Bytes(bytes.to_vec()),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Ip(ip) => ip.fmt(f),
            Value::Bytes(bytes) => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Number(number) => number.serialize(serializer),
            other => serializer.collect_str(other),
        }
    }
}

impl fmt::Display for NamedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "type:{}", self.number)?;
        if let Some(name) = self.name() {
            write!(f, ",event:{name}")?;
        }
        self.attributes.iter().try_for_each(|(name, value)| write!(f, ",{name}:{value}"))
    }
}

impl Serialize for NamedEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &self.number)?;
        map.serialize_entry("event", &self.name())?;
        for (name, value) in &self.attributes {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests;
