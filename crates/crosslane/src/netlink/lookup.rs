//! Where the kernel would send a packet: its rules and routes, asked as for a packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_ACK, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteAttribute;
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use rtnetlink::RouteMessageBuilder;

use super::socket::{CallError, Channel};

/// Index of the interface over which a packet with this source address leaves for `destination`; `None` without a
/// route.
///
/// # Errors
/// The kernel rejects the question.
pub fn interface_towards(source: IpAddr, destination: IpAddr) -> Result<Option<u32>, CallError> {
    let query = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let query = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(destination, 32);
            query.source_prefix(source, 32).build()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let query = RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(destination, 128);
            query.source_prefix(source, 128).build()
        }
        _ => return Ok(None),
    };
    let mut found = None;
    let result = Channel::open(NETLINK_ROUTE)?.call(RouteNetlinkMessage::GetRoute(query), NLM_F_ACK, |reply| {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(reply.bytes).map(|message| message.payload);
        if let Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route))) = message {
            found = route.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Oif(index) => Some(*index),
                _ => None,
            });
        }
        Ok(())
    });
    match result {
        Err(cause) if cause.errno() == Some(Errno::ENETUNREACH) => Ok(None),
        other => other.map(|()| found),
    }
}
