//! Home addresses of vehicles, and the routes that lead them: replaced in place, and found again
//! by label or protocol number after a restart.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use nix::errno::Errno;
use rtnetlink::{AddressMessageBuilder, RouteMessageBuilder};

use super::{CallError, Wiring};
use crate::error::{Error, Result};

/// Metric of a route with a next hop: a route of the administrator without a metric precedes it,
/// and is not replaced.
const METRIC: u32 = 1000;
/// Metric of an unreachable destination: any other route precedes it.
const UNREACHABLE_METRIC: u32 = u32::MAX;

/// Interface of home addresses.
const LOOPBACK: &str = "lo";
/// Label of home addresses (`ip address` shows it).
const LABEL: &str = "lo:crosslane";

/// Who maintains a route: its protocol number, which no other program registers (rtnetlink.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The controller, at the gateway.
    Controller = 67,
    /// The agent, on a vehicle or a roadside unit.
    Agent = 68,
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeRoute {
    /// The destinations.
    pub to: Ipv4Net,
    /// The next hop; `None`: the destinations are unreachable.
    pub hop: Option<Hop>,
    /// The routing table; `None`: the main one.
    pub table: Option<u32>,
}

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its address.
    pub via: Ipv4Addr,
    /// Index of the interface; `None`: the one whose network contains the address.
    pub interface: Option<u32>,
}

impl HomeRoute {
    fn builder(&self, owner: Owner) -> RouteMessageBuilder<Ipv4Addr> {
        let builder = RouteMessageBuilder::<Ipv4Addr>::new().protocol(RouteProtocol::from(owner as u8));
        let builder = builder.destination_prefix(self.to.addr(), self.to.prefix_len());
        match self.table {
            Some(table) => builder.table_id(table),
            None => builder,
        }
    }
}

impl Wiring {
    /// Adds a home address to the loopback interface, which is always there, with a label by which
    /// [`remove_home_addresses`](Self::remove_home_addresses) finds it.
    ///
    /// # Errors
    /// The kernel rejects it, as when the interface has the address.
    pub fn add_home_address(&mut self, home: Ipv4Addr) -> Result<()> {
        let loopback = self.index(LOOPBACK)?;
        let mut message = AddressMessageBuilder::<Ipv4Addr>::new().index(loopback).address(home, 32).build();
        message.attributes.push(AddressAttribute::Label(LABEL.into()));
        let attempt = format!("adding the home address {home} to {LOOPBACK}");
        self.change(attempt, RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Removes the home addresses of this host; returns their number.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn remove_home_addresses(&mut self) -> Result<usize> {
        let query = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let is_label =
            |attribute: &AddressAttribute| matches!(attribute, AddressAttribute::Label(label) if label == LABEL);
        let found = self.dump("listing the addresses", query, |message| match message {
            RouteNetlinkMessage::NewAddress(address) if address.attributes.iter().any(is_label) => Some(address),
            _ => None,
        })?;
        let count = found.len();
        for address in found {
            self.change("removing a home address".into(), RouteNetlinkMessage::DelAddress(address), 0)?;
        }
        Ok(count)
    }

    /// Adds a route, or replaces the one to the same destinations in one step: no packet finds none.
    ///
    /// # Errors
    /// The kernel rejects it, as when the next hop is on no network of this host.
    pub fn replace_home_route(&mut self, owner: Owner, route: &HomeRoute) -> Result<()> {
        let builder = route.builder(owner);
        let (builder, towards) = match route.hop {
            Some(Hop { via, interface }) => {
                let builder = builder.gateway(via).priority(METRIC);
                let builder = interface.into_iter().fold(builder, RouteMessageBuilder::output_interface);
                (builder, format!(" over {via}"))
            }
            None => (builder.kind(RouteType::Unreachable).priority(UNREACHABLE_METRIC), String::new()),
        };
        let attempt = format!("setting the route to {}{towards}", route.to);
        self.change(attempt, RouteNetlinkMessage::NewRoute(builder.build()), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Removes the route of this owner to the same destinations in the same table, which has a next hop, whatever
    /// it is, or is unreachable; false if there is none.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn remove_home_route(&mut self, owner: Owner, route: &HomeRoute) -> Result<bool> {
        let metric = if route.hop.is_some() { METRIC } else { UNREACHABLE_METRIC };
        let builder = route.builder(owner).priority(metric);
        let message = builder.scope(RouteScope::NoWhere).kind(RouteType::Unspec).build();
        let result: Result<(), CallError> =
            self.channel.call(RouteNetlinkMessage::DelRoute(message), NLM_F_ACK, |_| Ok(()));
        match result {
            Ok(()) => Ok(true),
            Err(cause) if cause.errno() == Some(Errno::ESRCH) => Ok(false),
            Err(cause) => Err(Error::failure(format!("removing the route to {}", route.to), cause)),
        }
    }

    /// Removes all routes of this owner; returns their number.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn remove_home_routes(&mut self, owner: Owner) -> Result<usize> {
        let found = self.home_routes(owner)?;
        found.iter().try_for_each(|route| self.remove_home_route(owner, route).map(drop))?;
        Ok(found.len())
    }

    /// The routes of this owner, in all tables.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn home_routes(&mut self, owner: Owner) -> Result<Vec<HomeRoute>> {
        let query = RouteMessageBuilder::<Ipv4Addr>::new().build();
        self.dump("listing the routes", RouteNetlinkMessage::GetRoute(query), |message| match message {
            RouteNetlinkMessage::NewRoute(route) if u8::from(route.header.protocol) == owner as u8 => read(&route),
            _ => None,
        })
    }
}

fn read(route: &RouteMessage) -> Option<HomeRoute> {
    let (mut to, mut via, mut interface) = (Ipv4Addr::UNSPECIFIED, None, None);
    let mut table = u32::from(route.header.table);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => to = *address,
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => via = Some(*address),
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Table(number) => table = *number,
            _ => {}
        }
    }
    let is_main = table == u32::from(RouteHeader::RT_TABLE_MAIN);
    Some(HomeRoute {
        to: Ipv4Net::new(to, route.header.destination_prefix_length).ok()?,
        hop: via.map(|via| Hop { via, interface }),
        table: (!is_main).then_some(table),
    })
}
