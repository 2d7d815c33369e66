//! Interfaces, addresses, routes and rules, by netlink.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::route::RouteScope;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use rtnetlink::{AddressMessageBuilder, LinkUnspec, LinkVxlan, RouteMessageBuilder};

use super::Channel;
use crate::error::{Error, Result};

/// VXLAN network identifier, and the port of RFC 7348.
const VXLAN_NETWORK: u32 = 1;
const VXLAN_PORT: u16 = 4789;

/// Configures the network namespace of the thread that opened it.
pub struct Wiring {
    channel: Channel,
}

/// A route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Destination; `None` for every destination.
    pub to: Option<Ipv4Addr>,
    /// Interface that sends the packets.
    pub interface: u32,
    /// Source address of packets whose sender chose none.
    pub source: Option<Ipv4Addr>,
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

    /// Creates a VXLAN interface (RFC 7348) between two addresses, with one
    /// network (1), the kernel's choice of checksums and no learning of
    /// stations: the peer is the only one.
    ///
    /// # Errors
    /// The kernel has no VXLAN, or the name is taken.
    pub fn add_vxlan(&mut self, name: &str, local: Ipv4Addr, remote: Ipv4Addr) -> Result<()> {
        let vxlan = LinkVxlan::new(name, VXLAN_NETWORK).local(local).remote(remote).port(VXLAN_PORT).learning(false);
        let (message, flags) = (RouteNetlinkMessage::NewLink(vxlan.build()), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL);
        let result = self.channel.call(message, flags, |_| Ok(()));
        let attempt = format!("creating the VXLAN interface {name}");
        result.map_err(|cause| match cause.errno() {
            Some(Errno::EOPNOTSUPP) => {
                Error::usage(attempt, cause, "the kernel needs CONFIG_VXLAN (`modprobe vxlan` may load it)")
            }
            _ => Error::failure(attempt, cause),
        })
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
        let builder = RouteMessageBuilder::<Ipv4Addr>::new();
        let mut builder = builder.output_interface(route.interface).priority(route.metric).scope(RouteScope::Link);
        if let Some(to) = route.to {
            builder = builder.destination_prefix(to, 32);
        }
        if let Some(source) = route.source {
            builder = builder.pref_source(source);
        }
        if let Some(table) = route.table {
            builder = builder.table_id(table);
        }
        let attempt = match route.to {
            Some(to) => format!("adding the route to {to}"),
            None => "adding a default route".to_owned(),
        };
        self.change(attempt, RouteNetlinkMessage::NewRoute(builder.build()), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Adds a rule: packets from `source` use the routes of `table`.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn add_rule(&mut self, source: Ipv4Addr, table: u32) -> Result<()> {
        let mut message = RuleMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.src_len = 32;
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![RuleAttribute::Source(source.into()), RuleAttribute::Table(table)];
        let attempt = format!("adding the rule for packets from {source}");
        self.change(attempt, RouteNetlinkMessage::NewRule(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    fn change(&mut self, attempt: String, message: RouteNetlinkMessage, flags: u16) -> Result<()> {
        let result = self.channel.call(message, NLM_F_ACK | flags, |_| Ok(()));
        result.map_err(|cause| Error::failure(attempt, cause))
    }
}

fn address_message(interface: u32, address: IpAddr, prefix_len: u8) -> AddressMessage {
    match address {
        IpAddr::V4(v4) => AddressMessageBuilder::<Ipv4Addr>::new().index(interface).address(v4, prefix_len).build(),
        IpAddr::V6(v6) => AddressMessageBuilder::<Ipv6Addr>::new().index(interface).address(v6, prefix_len).build(),
    }
}
