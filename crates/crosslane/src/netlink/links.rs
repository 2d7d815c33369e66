//! Changes of interfaces and addresses, by rtnetlink.
//!
//! Only the needed parts of a message are decoded, so an attribute newer than any
//! library loses no event. Source: Linux `include/uapi/linux/rtnetlink.h`.

use std::net::IpAddr;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;

use super::message::{DecodeError, Message, attributes, frame};
use super::socket::{CallError, Channel, OpenError};
use super::subscription::Subscription;
use super::tcp_info::u32_at;

/// Maximum number of messages in one snapshot; further ones are dropped.
pub const MAX_NOTICES: usize = 4096;

/// A present state; a repeated notice changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Of an interface.
    Link(LinkEvent),
    /// Of an address.
    Address(AddressEvent),
}

/// The state of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEvent {
    /// Its index, never 0.
    pub if_index: u32,
    /// Its name.
    pub name: String,
    /// True if it can carry packets: switched on, and with carrier.
    pub up: bool,
    /// False if it no longer exists.
    pub present: bool,
}

/// The state of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressEvent {
    /// The interface that has it.
    pub if_index: u32,
    /// The address.
    pub address: IpAddr,
    /// Length of its network's prefix in bits.
    pub prefix_len: u8,
    /// True if it exists and is usable (an IPv6 address under duplicate
    /// detection is not).
    pub usable: bool,
}

/// Subscribes to the events of this thread's network namespace and returns the
/// present state: links, then addresses. Changes meanwhile appear in both.
pub fn monitor() -> Result<(Vec<Notice>, Subscription<Notice>), OpenError> {
    let groups = [libc::RTNLGRP_LINK, libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_IPV6_IFADDR];
    let socket = Subscription::open(NETLINK_ROUTE, &groups, decode)?;
    Ok((snapshot()?, socket))
}

/// The present state of this thread's network namespace: links, then
/// addresses. For use after lost events ([`super::EventError::Overrun`]).
pub fn snapshot() -> Result<Vec<Notice>, OpenError> {
    let mut channel = Channel::open(NETLINK_ROUTE)?;
    let mut found = Vec::new();
    let mut keep = |notice| {
        if found.len() < MAX_NOTICES {
            found.push(notice);
        }
    };
    each(&mut channel, RouteNetlinkMessage::GetLink(LinkMessage::default()), &mut keep)?;
    each(&mut channel, RouteNetlinkMessage::GetAddress(AddressMessage::default()), &mut keep)?;
    Ok(found)
}

/// Index of the interface that has `address`, if any.
pub(super) fn interface_of(channel: &mut Channel, address: IpAddr) -> Result<Option<u32>, CallError> {
    let mut found = None;
    each(channel, RouteNetlinkMessage::GetAddress(AddressMessage::default()), |notice| match notice {
        Notice::Address(event) if event.address == address => found = Some(event.if_index),
        _ => {}
    })?;
    Ok(found)
}

fn each(channel: &mut Channel, query: RouteNetlinkMessage, mut on_notice: impl FnMut(Notice)) -> Result<(), CallError> {
    channel.call(query, NLM_F_DUMP, |message| {
        decode(message.bytes)?.into_iter().for_each(&mut on_notice);
        Ok(())
    })
}

/// The notice in one netlink message; `None` if it has another subject.
/// Reads any bytes without panic.
pub fn decode(bytes: &[u8]) -> Result<Option<Notice>, DecodeError> {
    let message = Message::parse(bytes)?;
    match message.kind {
        libc::RTM_NEWLINK => link(message.payload(), true).map(Some),
        libc::RTM_DELLINK => link(message.payload(), false).map(Some),
        libc::RTM_NEWADDR => address(message.payload(), true),
        libc::RTM_DELADDR => address(message.payload(), false),
        _ => Ok(None),
    }
}

/// `struct ifinfomsg`: family, type (16 bits), index, flags, change.
fn link(payload: &[u8], present: bool) -> Result<Notice, DecodeError> {
    const LINK: &str = "an interface's description";
    let Some((header, rest)) = payload.split_at_checked(16) else {
        return Err(frame(LINK, payload, "shorter than struct ifinfomsg"));
    };
    let (if_index, flags) = (u32_at(header, 4), u32_at(header, 8));
    let running = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
    let mut name = String::new();
    for attribute in attributes(LINK, rest) {
        let attribute = attribute?;
        if attribute.kind == libc::IFLA_IFNAME {
            name = String::from_utf8_lossy(attribute.value).trim_end_matches('\0').to_owned();
        }
    }
    Ok(Notice::Link(LinkEvent { if_index, name, up: present && flags & running == running, present }))
}

/// `struct ifaddrmsg`: family, prefix length, flags, scope (a byte each), index.
fn address(payload: &[u8], present: bool) -> Result<Option<Notice>, DecodeError> {
    const ADDRESS: &str = "an address's description";
    let Some((header, rest)) = payload.split_first_chunk::<8>() else {
        return Err(frame(ADDRESS, payload, "shorter than struct ifaddrmsg"));
    };
    let [family, prefix_len, flags, _, index @ ..] = *header;
    let unsettled = (libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED) as u8;
    let (mut address, mut local) = (None, None);
    for attribute in attributes(ADDRESS, rest) {
        let attribute = attribute?;
        // On a point-to-point link IFA_ADDRESS is the peer's, IFA_LOCAL ours.
        let place = match attribute.kind {
            libc::IFA_ADDRESS => &mut address,
            libc::IFA_LOCAL => &mut local,
            _ => continue,
        };
        *place = match i32::from(family) {
            libc::AF_INET => Some(attribute.ipv4("IFA_ADDRESS")?),
            libc::AF_INET6 => Some(attribute.ipv6("IFA_ADDRESS")?),
            _ => return Ok(None),
        };
    }
    let if_index = u32::from_ne_bytes(index);
    let usable = present && flags & unsettled == 0;
    Ok(local.or(address).map(|address| Notice::Address(AddressEvent { if_index, address, prefix_len, usable })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A message of `kind` with `header` and attributes.
    fn raw(kind: u16, header: &[u8], attributes: &[u8]) -> Vec<u8> {
        let length = 16 + header.len() + attributes.len();
        let mut raw = (length as u32).to_ne_bytes().to_vec();
        raw.extend(kind.to_ne_bytes());
        raw.extend([0; 10]);
        raw.extend([header, attributes].concat());
        raw
    }

    fn interface(kind: u16, flags: i32) -> LinkEvent {
        let header = [[0; 4], 3u32.to_ne_bytes(), flags.to_ne_bytes(), [0; 4]].concat();
        match decode(&raw(kind, &header, &[9, 0, 3, 0, b'w', b'l', b'a', b'n', 0, 0, 0, 0])) {
            Ok(Some(Notice::Link(link))) => link,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_interface_is_up_only_with_carrier() {
        let (up, running) = (libc::IFF_UP, libc::IFF_RUNNING);
        let wlan = LinkEvent { if_index: 3, name: "wlan".into(), up: true, present: true };
        assert_eq!(interface(libc::RTM_NEWLINK, up | running), wlan);
        assert!(!interface(libc::RTM_NEWLINK, up).up);
        let gone = interface(libc::RTM_DELLINK, up | running);
        assert!(!gone.up && !gone.present);
    }

    #[test]
    fn an_address_under_duplicate_detection_is_not_usable() {
        let peer = [8, 0, 1, 0, 10, 0, 0, 2];
        let ours = [8, 0, 2, 0, 10, 0, 0, 1];
        for (flags, usable) in [(0, true), (libc::IFA_F_TENTATIVE as u8, false)] {
            let header = [2, 32, flags, 0, 3, 0, 0, 0];
            let address = "10.0.0.1".parse().unwrap();
            let event = AddressEvent { if_index: 3, address, prefix_len: 32, usable };
            let notice = decode(&raw(libc::RTM_NEWADDR, &header, &[peer, ours].concat()));
            assert_eq!(notice, Ok(Some(Notice::Address(event))));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(kind in 16u16..24, rest in prop::collection::vec(any::<u8>(), 0..128)) {
            let _ = decode(&raw(kind, &rest, &[]));
            let _ = decode(&rest);
        }
    }
}
