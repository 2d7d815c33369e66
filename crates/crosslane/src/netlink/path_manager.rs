//! The user-space path manager: events and commands of the kernel's
//! interface.
//!
//! Both work only for connections that began while `net.mptcp.path_manager`
//! of their network namespace was `userspace` ([`super::probe()`]).
//!
//! Source: Linux `Documentation/netlink/specs/mptcp_pm.yaml`,
//! `net/mptcp/pm_netlink.c` and `net/mptcp/pm_userspace.c`.

use std::net::{IpAddr, SocketAddr};

use crosslane_core::mptcp::{AddressId, Command, Event, Refusal, Subflow, Token};
use netlink_packet_core::{DefaultNla, NLM_F_ACK};
use netlink_sys::protocols::NETLINK_GENERIC;
use nix::errno::Errno;

use super::family::{Address, MPTCP_PM, attribute, flag};
use super::generic::{Family, GENERIC_HEADER_LEN, Request, u32_attribute};
use super::message::{Attribute, DecodeError, FIRST_PROTOCOL_TYPE, Message, attributes, frame};
use super::socket::{CallError, CommandError, OpenError};
use super::subscription::Subscription;

/// Subscribes to the events of all connections of this thread's network
/// namespace. Needs CAP_NET_ADMIN there.
pub fn events() -> Result<Subscription<Event>, OpenError> {
    let group = Family::open(MPTCP_PM)?.events()?;
    Ok(Subscription::open(NETLINK_GENERIC, &[group], decode)?)
}

/// A socket for commands. Needs CAP_NET_ADMIN in its network namespace.
pub struct CommandSocket {
    family: Family,
}

impl CommandSocket {
    /// Opens a socket in the network namespace of this thread.
    pub fn open() -> Result<CommandSocket, OpenError> {
        Ok(CommandSocket { family: Family::open(MPTCP_PM)? })
    }

    /// Sends `command` and waits for the kernel's acknowledgement, not for
    /// its effect (events report that).
    ///
    /// A subflow of a dual-stack socket has its IPv4 addresses mapped into
    /// IPv6, which an event does not show; closing one takes a second attempt.
    ///
    /// Errors: `ESRCH`, the connection or the subflow is gone; `EINVAL` with
    /// "userspace PM not selected", it belongs to the in-kernel path manager.
    pub fn send(&mut self, command: &Command) -> Result<(), CommandError> {
        let outcome = match (self.call(command), mapped(command)) {
            (Err(cause), Some(other)) if cause.errno() == Some(Errno::ESRCH) => self.call(&other),
            (outcome, _) => outcome,
        };
        outcome.map_err(CommandError::while_asked_to(attempt(command)))
    }

    fn call(&mut self, command: &Command) -> Result<(), CallError> {
        self.family.call(request(command), NLM_F_ACK, |_| Ok(()))
    }
}

/// Why the kernel refused a command. Nearly all errors are `EINVAL` and distinguished
/// by the kernel's text (measured on Linux 6.18); without a text the result
/// is [`Refusal::Other`].
pub fn refusal(error: &CommandError) -> Refusal {
    let CallError::Refused(refused) = &error.cause else { return Refusal::Other(0) };
    let text = refused.text.as_deref().unwrap_or_default();
    match refused.errno {
        Errno::EINVAL if text.contains("invalid token") => Refusal::UnknownConnection,
        Errno::EINVAL if text.contains("userspace PM not selected") => Refusal::NotOurs,
        Errno::EINVAL if text.contains("did not match address and id") => Refusal::IdTaken,
        Errno::EINVAL if text.contains("not found") => Refusal::UnknownSubflow,
        Errno::ESRCH | Errno::ENOENT => Refusal::UnknownSubflow,
        other => Refusal::Other(other as i32),
    }
}

/// The event in one netlink message; `None` if its kind is unknown.
/// Unknown attributes are ignored. Reads any bytes without panic.
///
/// `backup` is the peer's request, not this endpoint's: a caller that opens a
/// subflow as backup or sends `SetBackup` must store that, or query
/// [`super::diag`]. An `Announced` address without port has that of the
/// subflow on which it arrived.
pub fn decode(bytes: &[u8]) -> Result<Option<Event>, DecodeError> {
    let message = Message::parse(bytes)?;
    if message.kind < FIRST_PROTOCOL_TYPE {
        return Ok(None);
    }
    let payload = message.payload();
    let Some((header, rest)) = payload.split_at_checked(GENERIC_HEADER_LEN) else {
        return Err(frame("an mptcp_pm event", payload, "no generic netlink header"));
    };
    let event = match header[0] {
        1 => "MPTCP_EVENT_CREATED",
        2 => "MPTCP_EVENT_ESTABLISHED",
        3 => "MPTCP_EVENT_CLOSED",
        6 => "MPTCP_EVENT_ANNOUNCED",
        7 => "MPTCP_EVENT_REMOVED",
        10 => "MPTCP_EVENT_SUB_ESTABLISHED",
        11 => "MPTCP_EVENT_SUB_CLOSED",
        13 => "MPTCP_EVENT_SUB_PRIORITY",
        15 => "MPTCP_EVENT_LISTENER_CREATED",
        16 => "MPTCP_EVENT_LISTENER_CLOSED",
        _ => return Ok(None),
    };
    Fields::read(event, rest)?.event(header[0])
}

/// The attributes of an event.
#[derive(Default)]
struct Fields {
    event: &'static str,
    token: Option<u32>,
    local_id: Option<u8>,
    remote_id: Option<u8>,
    local_ip: Option<IpAddr>,
    remote_ip: Option<IpAddr>,
    local_port: Option<u16>,
    remote_port: Option<u16>,
    backup: bool,
    error: u8,
    server_side: bool,
}

/// Bit of `MPTCP_ATTR_FLAGS`: this endpoint accepted the connection (Linux 6.18;
/// before that a separate attribute).
const FLAG_SERVER_SIDE: u16 = 1 << 1;

impl Fields {
    fn read(event: &'static str, bytes: &[u8]) -> Result<Fields, DecodeError> {
        let mut fields = Fields { event, ..Fields::default() };
        for attribute in attributes(event, bytes) {
            fields.apply(attribute?)?;
        }
        Ok(fields)
    }

    fn apply(&mut self, attribute: Attribute<'_>) -> Result<(), DecodeError> {
        match attribute.kind {
            1 => self.token = Some(attribute.u32("MPTCP_ATTR_TOKEN")?),
            3 => self.local_id = Some(attribute.u8("MPTCP_ATTR_LOC_ID")?),
            4 => self.remote_id = Some(attribute.u8("MPTCP_ATTR_REM_ID")?),
            5 => self.local_ip = Some(attribute.ipv4("MPTCP_ATTR_SADDR4")?),
            6 => self.local_ip = Some(attribute.ipv6("MPTCP_ATTR_SADDR6")?),
            7 => self.remote_ip = Some(attribute.ipv4("MPTCP_ATTR_DADDR4")?),
            8 => self.remote_ip = Some(attribute.ipv6("MPTCP_ATTR_DADDR6")?),
            9 => self.local_port = Some(attribute.be16("MPTCP_ATTR_SPORT")?),
            10 => self.remote_port = Some(attribute.be16("MPTCP_ATTR_DPORT")?),
            11 => self.backup = attribute.u8("MPTCP_ATTR_BACKUP")? != 0,
            12 => self.error = attribute.u8("MPTCP_ATTR_ERROR")?,
            13 => self.server_side |= attribute.u16("MPTCP_ATTR_FLAGS")? & FLAG_SERVER_SIDE != 0,
            18 => self.server_side |= attribute.u8("MPTCP_ATTR_SERVER_SIDE")? != 0,
            _ => {}
        }
        Ok(())
    }

    /// The event of this number; `None` if it is unknown.
    fn event(&self, number: u8) -> Result<Option<Event>, DecodeError> {
        let server_side = self.server_side;
        Ok(Some(match number {
            1 => Event::Created { token: self.token()?, subflow: self.first_subflow()?, server_side },
            2 => Event::Established { token: self.token()?, subflow: self.first_subflow()?, server_side },
            3 => Event::Closed { token: self.token()? },
            6 => {
                let ip = self.need(self.remote_ip, "MPTCP_ATTR_DADDR4")?;
                let remote = SocketAddr::new(ip, self.remote_port.unwrap_or(0));
                Event::Announced { token: self.token()?, remote_id: self.remote_id()?, remote }
            }
            7 => Event::Removed { token: self.token()?, remote_id: self.remote_id()? },
            10 => Event::SubflowEstablished { token: self.token()?, subflow: self.subflow()? },
            11 => Event::SubflowClosed { token: self.token()?, subflow: self.subflow()?, error: self.error },
            13 => Event::SubflowPriority { token: self.token()?, subflow: self.subflow()? },
            15 => Event::ListenerCreated { local: self.local()? },
            16 => Event::ListenerClosed { local: self.local()? },
            _ => return Ok(None),
        }))
    }

    /// The first subflow, whose ids are 0 (RFC 8684 §3.4.1) and not reported.
    fn first_subflow(&self) -> Result<Subflow, DecodeError> {
        self.subflow_with(self.local_id.unwrap_or(0), self.remote_id.unwrap_or(0))
    }

    fn subflow(&self) -> Result<Subflow, DecodeError> {
        self.subflow_with(self.need(self.local_id, "MPTCP_ATTR_LOC_ID")?, self.remote_id()?.0)
    }

    fn subflow_with(&self, local_id: u8, remote_id: u8) -> Result<Subflow, DecodeError> {
        let remote_ip = self.need(self.remote_ip, "MPTCP_ATTR_DADDR4")?;
        let remote_port = self.need(self.remote_port, "MPTCP_ATTR_DPORT")?;
        Ok(Subflow {
            local: self.local()?,
            remote: SocketAddr::new(remote_ip, remote_port),
            local_id: AddressId(local_id),
            remote_id: AddressId(remote_id),
            backup: self.backup,
        })
    }

    fn local(&self) -> Result<SocketAddr, DecodeError> {
        let ip = self.need(self.local_ip, "MPTCP_ATTR_SADDR4")?;
        Ok(SocketAddr::new(ip, self.need(self.local_port, "MPTCP_ATTR_SPORT")?))
    }

    fn token(&self) -> Result<Token, DecodeError> {
        self.need(self.token, "MPTCP_ATTR_TOKEN").map(Token)
    }

    fn remote_id(&self) -> Result<AddressId, DecodeError> {
        self.need(self.remote_id, "MPTCP_ATTR_REM_ID").map(AddressId)
    }

    fn need<T>(&self, field: Option<T>, attribute: &'static str) -> Result<T, DecodeError> {
        field.ok_or(DecodeError::Missing { message: self.event, attribute })
    }
}

fn request(command: &Command) -> Request {
    match *command {
        Command::CreateSubflow { token, local_id, local, if_index, remote, backup } => {
            let flags = Some(flag::SUBFLOW | backup_flag(backup));
            let ours = Address { id: Some(local_id.0), ip: Some(local), if_index, flags, ..Address::default() };
            per_connection(10, token, [ours.nested(attribute::ADDR), theirs(remote)])
        }
        // The path manager cannot close a subflow without its port, and refuses this; [`super::diag`] does it.
        Command::CancelJoin { token, local, remote } => {
            per_connection(11, token, [socket_address((local, 0).into()).nested(attribute::ADDR), theirs(remote)])
        }
        Command::DestroySubflow { token, local, remote, .. } => {
            per_connection(11, token, [socket_address(local).nested(attribute::ADDR), theirs(remote)])
        }
        Command::SetBackup { token, local, remote, backup } => {
            let ours = Address { flags: Some(backup_flag(backup)), ..socket_address(local) };
            per_connection(7, token, [ours.nested(attribute::ADDR), theirs(remote)])
        }
        Command::Announce { token, local_id, local } => {
            let ours = Address { id: Some(local_id.0), flags: Some(flag::SIGNAL), ..socket_address(local) };
            per_connection(8, token, [ours.nested(attribute::ADDR)])
        }
        Command::Withdraw { token, local_id } => {
            per_connection(9, token, [DefaultNla::new(attribute::LOC_ID, vec![local_id.0])])
        }
    }
}

fn per_connection<const N: usize>(command: u8, token: Token, rest: [DefaultNla; N]) -> Request {
    let mut attributes = vec![u32_attribute(attribute::TOKEN, token.0)];
    attributes.extend(rest);
    Request { command, attributes }
}

fn backup_flag(backup: bool) -> u32 {
    if backup { flag::BACKUP } else { 0 }
}

fn socket_address(address: SocketAddr) -> Address {
    Address { ip: Some(address.ip()), port: address.port(), ..Address::default() }
}

fn theirs(remote: SocketAddr) -> DefaultNla {
    socket_address(remote).nested(attribute::ADDR_REMOTE)
}

/// The same command for a subflow whose IPv4 addresses are mapped into IPv6;
/// the kernel distinguishes the two.
fn mapped(command: &Command) -> Option<Command> {
    match *command {
        Command::DestroySubflow { token, local: SocketAddr::V4(local), remote: SocketAddr::V4(remote), lost } => {
            Some(Command::DestroySubflow {
                token,
                local: (local.ip().to_ipv6_mapped(), local.port()).into(),
                remote: (remote.ip().to_ipv6_mapped(), remote.port()).into(),
                lost,
            })
        }
        _ => None,
    }
}

fn attempt(command: &Command) -> &'static str {
    match command {
        Command::CreateSubflow { .. } => "open a subflow",
        Command::CancelJoin { .. } => "end the opening of a subflow",
        Command::DestroySubflow { .. } => "close a subflow",
        Command::SetBackup { .. } => "change a subflow's priority",
        Command::Announce { .. } => "announce an address",
        Command::Withdraw { .. } => "withdraw an address",
    }
}

#[cfg(test)]
mod tests;
