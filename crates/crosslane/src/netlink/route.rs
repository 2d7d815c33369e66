//! Interfaces, addresses, routes and rules, by netlink.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use rtnetlink::{AddressMessageBuilder, LinkGre, LinkUnspec, LinkVxlan};

use super::{CallError, Channel};
use crate::error::{Error, Result};

/// UDP port of VXLAN (RFC 7348 §8.1).
pub const VXLAN_PORT: u16 = 4789;

/// Name and remedy of a kind of tunnel that the kernel may lack.
const VXLAN: (&str, &str) = ("VXLAN", "the kernel needs CONFIG_VXLAN (`modprobe vxlan` may load it)");

/// Configures the network namespace of the thread that opened it.
pub struct Wiring {
    pub(super) channel: Channel,
}

/// A route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Destination; `None` for every destination.
    pub to: Option<IpAddr>,
    /// Interface that sends the packets.
    pub interface: u32,
    /// Next hop; `None` if the destinations are on the link.
    pub via: Option<IpAddr>,
    /// Source address of packets whose sender chose none.
    pub source: Option<IpAddr>,
    /// Routing table; `None` for the main one.
    pub table: Option<u32>,
    /// Metric; lower values are preferred.
    pub metric: u32,
}

impl Wiring {
    /// Opens the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel can open no netlink socket.
    pub fn open() -> Result<Wiring> {
        let channel =
            Channel::open(NETLINK_ROUTE).map_err(|cause| Error::failure("opening a netlink socket", cause))?;
        Ok(Wiring { channel })
    }

    /// The index of an interface.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn index(&mut self, interface: &str) -> Result<u32> {
        Ok(self.interface(interface)?.header.index)
    }

    /// Whether there is an interface of this index.
    pub fn is_index(&mut self, index: u32) -> bool {
        let query = RouteNetlinkMessage::GetLink(LinkUnspec::new_with_index(index).build());
        self.channel.call(query, NLM_F_ACK, |_| Ok(())).is_ok()
    }

    /// Number of packets that an interface dropped on transmission.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn dropped(&mut self, interface: &str) -> Result<u64> {
        let message = self.interface(interface)?;
        let dropped = message.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(stats.tx_dropped),
            _ => None,
        });
        Ok(dropped.unwrap_or(0))
    }

    /// MTU of an interface, in bytes.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn mtu(&mut self, interface: &str) -> Result<u32> {
        let message = self.interface(interface)?;
        let mtu = message.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(*mtu),
            _ => None,
        });
        Ok(mtu.unwrap_or(1500))
    }

    /// The kernel's description of an interface.
    pub(crate) fn interface(&mut self, name: &str) -> Result<LinkMessage> {
        let attempt = format!("looking up the interface {name}");
        let mut found = None;
        let query = RouteNetlinkMessage::GetLink(LinkUnspec::new_with_name(name).build());
        let result = self.channel.call(query, NLM_F_ACK, |reply| {
            found = NetlinkMessage::<RouteNetlinkMessage>::deserialize(reply.bytes).ok();
            Ok(())
        });
        result.map_err(|cause| Error::failure(&attempt, cause))?;
        match found.map(|message| message.payload) {
            Some(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link))) => Ok(link),
            _ => Err(Error::failure(attempt, "the kernel's reply has another subject")),
        }
    }

    /// Creates a VXLAN interface (RFC 7348) of this network (24 bits) between two addresses,
    /// sent over the interface of index `over` if given, with the kernel's choice of checksums and no
    /// learning of stations: the peer is the only one.
    ///
    /// # Errors
    /// The kernel has no VXLAN, or the name or the network is taken.
    pub fn add_vxlan(
        &mut self,
        name: &str,
        network: u32,
        (local, remote): (Ipv4Addr, Ipv4Addr),
        over: Option<u32>,
    ) -> Result<()> {
        let vxlan = LinkVxlan::new(name, network).local(local).remote(remote).port(VXLAN_PORT).learning(false);
        let message = match over {
            Some(over) => vxlan.dev(over).build(),
            None => vxlan.build(),
        };
        self.add_tunnel(name, VXLAN, message)
    }

    /// Creates the end of a VXLAN (RFC 7348) that many hosts use: it learns their outer addresses from what
    /// arrives.
    ///
    /// # Errors
    /// As for [`add_vxlan`](Self::add_vxlan).
    pub fn add_learning_vxlan(&mut self, name: &str, network: u32, local: Ipv4Addr, over: u32) -> Result<()> {
        let vxlan = LinkVxlan::new(name, network).local(local).port(VXLAN_PORT).learning(true).dev(over);
        self.add_tunnel(name, VXLAN, vxlan.build())
    }

    /// Creates a GRE interface (RFC 2784) between two addresses, sent over the interface of
    /// index `over`.
    ///
    /// # Errors
    /// The kernel has no GRE, or the name or the pair of addresses is taken.
    pub fn add_gre(&mut self, name: &str, (local, remote): (Ipv4Addr, Ipv4Addr), over: u32) -> Result<()> {
        let message = LinkGre::new(name).local(local).remote(remote).dev(over).build();
        self.add_tunnel(name, ("GRE", "the kernel needs CONFIG_NET_IPGRE (`modprobe ip_gre` may load it)"), message)
    }

    /// `kind` is the name of the kind, and the remedy if the kernel lacks it.
    fn add_tunnel(&mut self, name: &str, (kind, remedy): (&str, &str), message: LinkMessage) -> Result<()> {
        let (message, flags) = (RouteNetlinkMessage::NewLink(message), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL);
        let result = self.channel.call(message, flags, |_| Ok(()));
        let attempt = format!("creating the {kind} interface {name}");
        result.map_err(|cause| match cause.errno() {
            Some(Errno::EOPNOTSUPP) => Error::usage(attempt, cause, remedy),
            Some(Errno::EEXIST) => Error::usage(attempt, cause, "remove the other interface, or choose another name"),
            _ => Error::failure(attempt, cause),
        })
    }

    /// Marks an interface (`ifalias`), for [`remove_marked`](Self::remove_marked).
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn mark(&mut self, interface: &str, mark: &str) -> Result<()> {
        let message = LinkUnspec::new_with_name(interface).alias(mark).build();
        self.change(format!("marking the interface {interface}"), RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Sets the Ethernet address of an interface that is down.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn set_ethernet_address(&mut self, interface: &str, address: [u8; 6]) -> Result<()> {
        let message = LinkUnspec::new_with_name(interface).address(address.to_vec()).build();
        self.change(format!("setting the Ethernet address of {interface}"), RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Removes an interface.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn remove_interface(&mut self, index: u32) -> Result<()> {
        let message = RouteNetlinkMessage::DelLink(LinkUnspec::new_with_index(index).build());
        self.change(format!("removing the interface of index {index}"), message, 0)
    }

    /// Removes all interfaces with this mark; returns their names.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn remove_marked(&mut self, mark: &str) -> Result<Vec<String>> {
        let query = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let found = self.dump("listing the interfaces", query, |message| match message {
            RouteNetlinkMessage::NewLink(link) => marked_name(&link, mark).map(|name| (link.header.index, name)),
            _ => None,
        })?;
        found.iter().try_for_each(|&(index, _)| self.remove_interface(index))?;
        Ok(found.into_iter().map(|(_, name)| name).collect())
    }

    /// Brings an interface up, with this MTU and send queue length.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn bring_up(&mut self, interface: &str, mtu: u32, queue_packets: u32) -> Result<()> {
        let message = LinkUnspec::new_with_name(interface).up().mtu(mtu).txqueuelen(queue_packets).build();
        self.change(format!("bringing the interface {interface} up"), RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Sets an interface up or down; when down, the kernel removes its routes.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn set_up(&mut self, interface: &str, up: bool) -> Result<()> {
        let message = LinkUnspec::new_with_name(interface);
        let (message, word) = if up { (message.up(), "up") } else { (message.down(), "down") };
        let attempt = format!("setting the interface {interface} {word}");
        self.change(attempt, RouteNetlinkMessage::SetLink(message.build()), 0)
    }

    /// Adds an address to an interface, usable at once.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn add_address(&mut self, interface: u32, address: impl Into<IpAddr>, prefix_len: u8) -> Result<()> {
        let address = address.into();
        let mut message = address_message(interface, address, prefix_len);
        // No duplicate detection: no other host can have the address on our interfaces, and
        // until the detection ends, a socket could not be bound to it.
        if address.is_ipv6() {
            message.header.flags |= AddressHeaderFlags::Nodad;
        }
        let attempt = format!("adding the address {address}/{prefix_len}");
        self.change(attempt, RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Removes an address from an interface.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn remove_address(&mut self, interface: u32, address: IpAddr, prefix_len: u8) -> Result<()> {
        let message = RouteNetlinkMessage::DelAddress(address_message(interface, address, prefix_len));
        self.change(format!("removing the address {address}/{prefix_len}"), message, 0)
    }

    /// Adds a route.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn add_route(&mut self, route: Route) -> Result<()> {
        let attempt = match route.to {
            Some(to) => format!("adding the route to {to}"),
            None => "adding a default route".to_owned(),
        };
        let message = RouteNetlinkMessage::NewRoute(route_message(route));
        self.change(attempt, message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Removes a route.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn remove_route(&mut self, route: Route) -> Result<()> {
        self.change("removing a route".into(), RouteNetlinkMessage::DelRoute(route_message(route)), 0)
    }

    /// Adds a rule: packets from `source` use the routes of `table`.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn add_rule(&mut self, source: IpAddr, table: u32) -> Result<()> {
        let message = rule_message(source, table);
        let attempt = format!("adding the rule for packets from {source}");
        self.change(attempt, RouteNetlinkMessage::NewRule(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Removes the rules whose table is one of these; returns their number.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn remove_rules(&mut self, tables: RangeInclusive<u32>) -> Result<usize> {
        let found = self.rules(tables)?;
        let count = found.len();
        for rule in found {
            self.change("removing a rule".into(), RouteNetlinkMessage::DelRule(rule), 0)?;
        }
        Ok(count)
    }

    /// The rules whose table is one of these.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn rules(&mut self, tables: RangeInclusive<u32>) -> Result<Vec<RuleMessage>> {
        let mut query = RuleMessage::default();
        query.header.family = AddressFamily::Inet;
        let of_table = |message| match message {
            RouteNetlinkMessage::NewRule(rule) => {
                let is_one = |attribute: &RuleAttribute| matches!(attribute, RuleAttribute::Table(table) if tables.contains(table));
                rule.attributes.iter().any(is_one).then_some(rule)
            }
            _ => None,
        };
        self.dump("listing the rules", RouteNetlinkMessage::GetRule(query), of_table)
    }

    /// What `wanted` finds among the kernel's replies; replies that do not decode are skipped.
    pub(super) fn dump<T>(
        &mut self,
        attempt: &str,
        query: RouteNetlinkMessage,
        wanted: impl Fn(RouteNetlinkMessage) -> Option<T>,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        let result: Result<(), CallError> = self.channel.call(query, NLM_F_DUMP, |reply| {
            let message =
                NetlinkMessage::<RouteNetlinkMessage>::deserialize(reply.bytes).map(|message| message.payload);
            if let Ok(NetlinkPayload::InnerMessage(message)) = message {
                found.extend(wanted(message));
            }
            Ok(())
        });
        result.map_err(|cause| Error::failure(attempt, cause))?;
        Ok(found)
    }

    pub(super) fn change(&mut self, attempt: String, message: RouteNetlinkMessage, flags: u16) -> Result<()> {
        let result = self.channel.call(message, NLM_F_ACK | flags, |_| Ok(()));
        result.map_err(|cause| Error::failure(attempt, cause))
    }
}

/// The name of an interface that has this mark.
fn marked_name(link: &LinkMessage, mark: &str) -> Option<String> {
    link.attributes.iter().find(|attribute| matches!(attribute, LinkAttribute::IfAlias(alias) if alias == mark))?;
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })
}

/// The message of a route, whose addresses are of one version.
fn route_message(route: Route) -> RouteMessage {
    let addresses = [route.to, route.via, route.source].into_iter().flatten();
    let is_v6 = addresses.last().is_some_and(|address| address.is_ipv6());
    let mut message = RouteMessage::default();
    message.header.address_family = if is_v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.protocol = RouteProtocol::Static;
    message.header.kind = RouteType::Unicast;
    message.header.scope = if route.via.is_some() { RouteScope::Universe } else { RouteScope::Link };
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    let attributes = &mut message.attributes;
    attributes.extend([RouteAttribute::Oif(route.interface), RouteAttribute::Priority(route.metric)]);
    if let Some(to) = route.to {
        message.header.destination_prefix_length = host_bits(to);
        attributes.push(RouteAttribute::Destination(to.into()));
    }
    attributes.extend(route.via.map(|via| RouteAttribute::Gateway(via.into())));
    attributes.extend(route.source.map(|source| RouteAttribute::PrefSource(source.into())));
    if let Some(table) = route.table {
        message.header.table = RouteHeader::RT_TABLE_UNSPEC;
        attributes.push(RouteAttribute::Table(table));
    }
    message
}

/// Length of an address, in bits.
fn host_bits(address: IpAddr) -> u8 {
    if address.is_ipv6() { 128 } else { 32 }
}

fn rule_message(source: IpAddr, table: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if source.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.src_len = host_bits(source);
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![RuleAttribute::Source(source), RuleAttribute::Table(table)];
    message
}

fn address_message(interface: u32, address: IpAddr, prefix_len: u8) -> AddressMessage {
    match address {
        IpAddr::V4(v4) => AddressMessageBuilder::<Ipv4Addr>::new().index(interface).address(v4, prefix_len).build(),
        IpAddr::V6(v6) => AddressMessageBuilder::<Ipv6Addr>::new().index(interface).address(v6, prefix_len).build(),
    }
}
