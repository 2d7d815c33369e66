//! Source routing: packets from an address of a path leave over its interface, whatever the other routes are.
//!
//! Each path has a table with the main table's routes over its interface, and a rule for each of its addresses. Packets
//! of programs that choose no address follow the main table, but one path may take the place of its default route. All of
//! it has our protocol number, by which it is found again after a restart.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, Nla};
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;

use super::Wiring;
use super::message::{DecodeError, Message};
use super::path_rules::{self, PROTOCOL, Rule, RuleChange};
use super::socket::{CallError, OpenError};
use super::subscription::Subscription;
use crate::error::{Error, Result};

/// The routing tables, one for each path of an agent.
const TABLES: RangeInclusive<u32> = 0x4352_5320..=0x4352_532f;
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
        table_of(self.place)
    }
}

/// The routing table of the path at this place (0 to 15).
pub fn table_of(place: u8) -> u32 {
    TABLES.start() + u32::from(place)
}

/// Where packets of this machine's programs go that have no address of a path, in place of the main table's default
/// route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unbound {
    /// Index of the interface of their path.
    pub interface: u32,
    /// Routing table of their path.
    pub table: u32,
    /// Indices of the interfaces of all paths: a default route over another one, as of a VPN, stays.
    pub paths: Vec<u32>,
}

impl Unbound {
    /// The rules for each IP version in which the main table leads them to another path.
    fn rules(&self, main: &[RouteMessage]) -> Vec<Rule> {
        let families = [AddressFamily::Inet, AddressFamily::Inet6].into_iter();
        let replaced = families.filter(|family| self.replaces(main, *family));
        replaced.flat_map(|family| Rule::in_place_of_default(family, self.table)).collect()
    }

    fn replaces(&self, main: &[RouteMessage], family: AddressFamily) -> bool {
        let is_default = |route: &&RouteMessage| {
            let RouteHeader { address_family, destination_prefix_length, source_prefix_length, .. } = route.header;
            address_family == family && destination_prefix_length == 0 && source_prefix_length == 0
        };
        let defaults: Vec<&RouteMessage> = main.iter().filter(is_default).collect();
        let best = defaults.iter().map(|route| metric(route)).min();
        let best: Vec<Option<u32>> =
            defaults.iter().filter(|route| Some(metric(route)) == best).map(|route| interface(route)).collect();
        best.iter().all(|interface| interface.is_some_and(|interface| self.paths.contains(&interface)))
            && best.iter().any(|interface| *interface != Some(self.interface))
            && defaults.iter().any(|route| is_unicast(route) && interface(route) == Some(self.interface))
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
    /// Sets the rules and routes of these paths, and the rules for packets without an address of a path, and removes all
    /// others of ours, also those that a killed agent left; what is as wanted is not touched. Returns how many rules and
    /// routes were set or removed.
    ///
    /// # Errors
    /// The kernel rejects it; what could be set is.
    pub fn set_path_routes(&mut self, paths: &[RoutedPath], unbound: Option<&Unbound>) -> Result<usize> {
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
            let routes = main.iter().filter(move |route| is_unicast(route) && route.attributes.contains(&interface));
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
        let last = unbound.map(|unbound| unbound.rules(&main)).unwrap_or_default();
        let rules = self.changed_rules(paths, last)?;
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

    fn changed_rules(&mut self, paths: &[RoutedPath], last: Vec<Rule>) -> Result<Vec<RuleChange>> {
        let query = RouteNetlinkMessage::GetRule(RuleMessage::default());
        let present = self.dump("listing the rules", query, |message| match message {
            RouteNetlinkMessage::NewRule(rule) => Rule::read(&rule),
            _ => None,
        })?;
        let mut tables = BTreeMap::new();
        for (path, address) in paths.iter().flat_map(|path| path.addresses.iter().map(move |address| (path, *address)))
        {
            tables.entry(address).or_insert_with(|| path.table());
        }
        let wanted = tables.into_iter().map(|(address, table)| Rule::from_source(address, table));
        Ok(path_rules::changes(&present, &wanted.chain(last).collect::<Vec<_>>()))
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

fn metric(route: &RouteMessage) -> u32 {
    let metric = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    });
    metric.unwrap_or_default()
}

/// Its interface; `None` of a route over several.
fn interface(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(interface) => Some(*interface),
        _ => None,
    })
}

/// False of one that rejects the packets.
fn is_unicast(route: &RouteMessage) -> bool {
    route.header.kind == RouteType::Unicast
}

/// A route of the main table or of ours.
fn is_relevant(route: &RouteMessage) -> bool {
    let is_ours = || TABLES.contains(&table(route)) && route.header.protocol == PROTOCOL;
    let is_main = || table(route) == u32::from(RouteHeader::RT_TABLE_MAIN);
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

    /// A default route of the main table over an interface, with a metric.
    fn default_route(interface: u32, metric: u32) -> RouteMessage {
        let mut route = RouteMessage::default();
        (route.header.address_family, route.header.kind) = (AddressFamily::Inet, RouteType::Unicast);
        route.attributes = vec![RouteAttribute::Oif(interface), RouteAttribute::Priority(metric)];
        route
    }

    #[test]
    fn only_a_default_route_over_another_path_is_replaced() {
        let unbound = Unbound { interface: 2, table: 7, paths: vec![1, 2] };
        let is_replaced =
            |main: &[RouteMessage]| unbound.rules(main) == Rule::in_place_of_default(AddressFamily::Inet, 7);
        assert!(is_replaced(&[default_route(1, 10), default_route(2, 20)]));
        let kept = |main: &[RouteMessage]| unbound.rules(main).is_empty();
        assert!(kept(&[default_route(1, 20), default_route(2, 10)]), "it leads there itself");
        assert!(kept(&[default_route(1, 10)]), "the path has none");
        assert!(kept(&[default_route(9, 5), default_route(1, 10), default_route(2, 20)]), "of a VPN");
        assert!(kept(&[default_route(1, 5), default_route(9, 5), default_route(2, 20)]), "of a VPN too");
        assert!(kept(&[]), "nothing is reached");
        let mut rejecting = default_route(0, 5);
        (rejecting.header.kind, rejecting.attributes) = (RouteType::Unreachable, vec![RouteAttribute::Priority(5)]);
        assert!(kept(&[rejecting, default_route(1, 10), default_route(2, 20)]), "nothing is to be reached");
        let mut closer = default_route(1, 0);
        closer.header.destination_prefix_length = 8;
        assert!(kept(&[closer, default_route(2, 10)]), "no default route");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&bytes);
        }
    }
}
