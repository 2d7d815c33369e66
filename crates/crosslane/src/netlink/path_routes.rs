//! Source routing: packets from an address of a path leave over its interface, whatever the other routes are.
//!
//! Each path has a table with the main table's routes over its interface, and a rule for each of its addresses. All
//! of it has our protocol number, by which it is found again after a restart.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Nla};
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleHeader, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;

use super::Wiring;
use super::message::{DecodeError, Message};
use super::socket::{CallError, OpenError};
use super::subscription::Subscription;
use crate::error::{Error, Result};

/// Protocol number of the rules and routes, which no other program registers (rtnetlink.h).
const PROTOCOL: RouteProtocol = RouteProtocol::Other(69);
/// The routing tables, one for each path of an agent.
const TABLES: RangeInclusive<u32> = 0x4352_5320..=0x4352_532f;
/// Priority of the rules: every rule of the administrator that precedes the main table's (32766) precedes them.
const PRIORITY: u32 = 32765;
/// Maximum number of routes copied for a path; further ones are left out.
const MAX_ROUTES: usize = 256;

/// A path whose packets are to leave over its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedPath {
    /// Its place among the paths (0 to 15).
    pub place: u8,
    /// Index of its interface.
    pub interface: u32,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

impl RoutedPath {
    fn table(&self) -> u32 {
        TABLES.start() + u32::from(self.place)
    }
}

/// Subscribes to what requires that the rules and routes are set again: a route of the main table appeared, or any
/// route or rule was removed.
///
/// # Errors
/// The socket cannot be opened.
pub fn events() -> Result<Subscription<()>, OpenError> {
    let groups = [libc::RTNLGRP_IPV4_ROUTE, libc::RTNLGRP_IPV6_ROUTE, libc::RTNLGRP_IPV4_RULE, libc::RTNLGRP_IPV6_RULE];
    Ok(Subscription::open(NETLINK_ROUTE, &groups, decode)?)
}

/// Whether a message is such an event. Reads any bytes without panic.
///
/// # Errors
/// The message is malformed.
pub fn decode(bytes: &[u8]) -> Result<Option<()>, DecodeError> {
    // The fifth byte of `struct rtmsg` is the table.
    let message = Message::parse(bytes)?;
    let is_main = message.payload().get(4) == Some(&RouteHeader::RT_TABLE_MAIN);
    let is_event = match message.kind {
        libc::RTM_NEWROUTE => is_main,
        libc::RTM_DELROUTE | libc::RTM_DELRULE => true,
        _ => false,
    };
    Ok(is_event.then_some(()))
}

impl Wiring {
    /// Sets the rules and routes of these paths and removes all others of ours, also those that a killed agent left;
    /// what is as wanted is not touched. Returns how many rules and routes were set or removed.
    ///
    /// # Errors
    /// The kernel rejects it; what could be set is.
    pub fn set_path_routes(&mut self, paths: &[RoutedPath]) -> Result<usize> {
        let all =
            self.dump("listing the routes", RouteNetlinkMessage::GetRoute(RouteMessage::default()), |message| {
                match message {
                    RouteNetlinkMessage::NewRoute(route) if is_relevant(&route) => Some(route),
                    _ => None,
                }
            })?;
        let (present, main): (Vec<RouteMessage>, Vec<RouteMessage>) =
            all.into_iter().partition(|route| TABLES.contains(&table(route)));
        let present: Vec<RouteMessage> = present.iter().map(|route| copy(route, table(route))).collect();
        let over = |path: &RoutedPath| {
            let interface = RouteAttribute::Oif(path.interface);
            let (table, main) = (path.table(), &main);
            let routes = main.iter().filter(move |route| route.attributes.contains(&interface));
            routes.map(move |route| copy(route, table)).take(MAX_ROUTES).collect::<Vec<_>>()
        };
        let mut wanted: Vec<RouteMessage> = paths.iter().flat_map(over).collect();
        // A next hop must be on a link.
        wanted.sort_by_key(|route| route.attributes.iter().any(|one| matches!(one, RouteAttribute::Gateway(_))));
        let add = wanted.iter().filter(|route| !present.contains(route));
        let remove = present.iter().filter(|route| !wanted.contains(route));
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        let add = add.map(|route| ("setting a route", RouteNetlinkMessage::NewRoute(route.clone()), flags));
        let remove = remove.map(|route| ("removing a route", RouteNetlinkMessage::DelRoute(route.clone()), 0));
        let routes: Vec<_> = add.chain(remove).collect();
        let rules = self.changed_rules(paths)?;
        let mut outcome = Ok(routes.len() + rules.len());
        for (attempt, message, flags) in routes.into_iter().chain(rules) {
            let done: Result<(), CallError> = self.channel.call(message, NLM_F_ACK | flags, |_| Ok(()));
            match done.map_err(|cause| (cause.errno(), cause)) {
                // Removed, set or replaced by others meanwhile.
                Ok(()) | Err((Some(Errno::ESRCH | Errno::ENOENT | Errno::EEXIST), _)) => {}
                Err((_, cause)) => outcome = outcome.and(Err(Error::failure(format!("{attempt} of a path"), cause))),
            }
        }
        outcome
    }

    fn changed_rules(&mut self, paths: &[RoutedPath]) -> Result<Vec<(&'static str, RouteNetlinkMessage, u16)>> {
        let query = RouteNetlinkMessage::GetRule(RuleMessage::default());
        let present = self.dump("listing the rules", query, |message| match message {
            RouteNetlinkMessage::NewRule(rule) => our_rule(&rule),
            _ => None,
        })?;
        let mut wanted = BTreeMap::new();
        for (path, address) in paths.iter().flat_map(|path| path.addresses.iter().map(move |address| (path, *address)))
        {
            wanted.entry(address).or_insert_with(|| path.table());
        }
        let message = |(address, table): (&IpAddr, &u32)| rule(*address, *table);
        let is_present = |(address, table): &(&IpAddr, &u32)| present.contains(&(**address, **table));
        let add = wanted.iter().filter(|one| !is_present(one)).map(message);
        let remove = present.iter().filter(|(address, table)| wanted.get(address) != Some(table));
        let remove = remove.map(|(address, table)| rule(*address, *table));
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let add = add.map(|rule| ("setting a rule", RouteNetlinkMessage::NewRule(rule), flags));
        let remove = remove.map(|rule| ("removing a rule", RouteNetlinkMessage::DelRule(rule), 0));
        Ok(add.chain(remove).collect())
    }
}

/// The table, as the attribute has it: the header has only 8 bits for it.
fn table(route: &RouteMessage) -> u32 {
    let table = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    table.unwrap_or_else(|| route.header.table.into())
}

/// A route of the main table or of ours.
fn is_relevant(route: &RouteMessage) -> bool {
    let is_ours = || TABLES.contains(&table(route)) && route.header.protocol == PROTOCOL;
    let is_main = || table(route) == u32::from(RouteHeader::RT_TABLE_MAIN) && route.header.kind == RouteType::Unicast;
    let is_ip = matches!(route.header.address_family, AddressFamily::Inet | AddressFamily::Inet6);
    is_ip && !route.header.flags.contains(RouteFlags::Cloned) && (is_main() || is_ours())
}

/// The route in another table, as ours: destinations, next hop, metric and the like.
fn copy(route: &RouteMessage, table: u32) -> RouteMessage {
    let mut copy = RouteMessage::default();
    copy.header = RouteHeader {
        table: RouteHeader::RT_TABLE_UNSPEC,
        protocol: PROTOCOL,
        flags: route.header.flags & RouteFlags::Onlink,
        ..route.header.clone()
    };
    let is_kept = |attribute: &&RouteAttribute| {
        use RouteAttribute::{Destination, Gateway, Metrics, Oif, PrefSource, Priority, Via};
        matches!(attribute, Destination(_) | Gateway(_) | Via(_) | Oif(_) | PrefSource(_) | Priority(_) | Metrics(_))
    };
    copy.attributes = route.attributes.iter().filter(is_kept).cloned().collect();
    copy.attributes.push(RouteAttribute::Table(table));
    copy.attributes.sort_by_key(Nla::kind);
    copy
}

fn rule(source: IpAddr, table: u32) -> RuleMessage {
    let (family, src_len) = match source {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    let mut message = RuleMessage::default();
    message.header = RuleHeader { family, src_len, action: RuleAction::ToTable, ..RuleHeader::default() };
    message.attributes = vec![
        RuleAttribute::Source(source),
        RuleAttribute::Priority(PRIORITY),
        RuleAttribute::Table(table),
        RuleAttribute::Protocol(PROTOCOL),
    ];
    message
}

/// Source address and table of a rule of ours.
fn our_rule(rule: &RuleMessage) -> Option<(IpAddr, u32)> {
    let (mut source, mut table, mut is_ours) = (None, None, false);
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Source(address) => source = Some(*address),
            RuleAttribute::Table(number) => table = Some(*number),
            RuleAttribute::Protocol(protocol) => is_ours = *protocol == PROTOCOL,
            _ => {}
        }
    }
    source.zip(table).filter(|(_, table)| is_ours && TABLES.contains(table))
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::route::RouteScope;
    use proptest::prelude::*;

    use super::*;

    fn event(kind: u16, table: u8) -> Vec<u8> {
        let mut raw = 28_u32.to_ne_bytes().to_vec();
        raw.extend(kind.to_ne_bytes());
        raw.extend([0; 10]);
        raw.extend([2, 0, 0, 0, table, 3, 0, 1, 0, 0, 0, 0]);
        raw
    }

    #[test]
    fn a_new_route_of_the_main_table_is_an_event_and_so_is_every_removal() {
        let is_event = |kind, table| decode(&event(kind, table)) == Ok(Some(()));
        assert!(is_event(libc::RTM_NEWROUTE, 254));
        assert!(!is_event(libc::RTM_NEWROUTE, 252), "ours: its number does not fit into the header");
        assert!(is_event(libc::RTM_DELROUTE, 252) && is_event(libc::RTM_DELRULE, 252));
        assert!(!is_event(libc::RTM_NEWRULE, 252) && !is_event(libc::RTM_NEWLINK, 254));
    }

    #[test]
    fn a_copy_of_a_copy_is_the_same_route() {
        let mut route = RouteMessage::default();
        route.header.scope = RouteScope::Link;
        route.header.flags = RouteFlags::Onlink | RouteFlags::Linkdown;
        let attributes = [RouteAttribute::Table(254), RouteAttribute::Priority(7), RouteAttribute::Oif(3)];
        route.attributes = [&attributes[..], &[RouteAttribute::Uid(1)]].concat();
        let once = copy(&route, *TABLES.start());
        assert_eq!((table(&once), once.header.flags), (*TABLES.start(), RouteFlags::Onlink));
        assert_eq!((once.attributes.len(), once.header.scope), (3, RouteScope::Link));
        assert_eq!(copy(&once, *TABLES.start()), once);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&bytes);
        }
    }
}
