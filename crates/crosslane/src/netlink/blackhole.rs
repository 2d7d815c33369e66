//! Blackhole rules: the kernel drops what a subflow over a lost path would still send.
//!
//! A rule matches the addresses and ports of one subflow (Linux 4.17), so nothing else is dropped. It has our protocol
//! number, by which it is found again after a restart.

use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleHeader, RuleMessage, RulePortRange};
use netlink_packet_route::{AddressFamily, IpProtocol, RouteNetlinkMessage};

use super::Wiring;
use super::path_routes::PROTOCOL;
use crate::error::Result;

/// Priority of the rules: next after the local table's (0), before every rule that has a route for the subflow.
const PRIORITY: u32 = 1;

impl Wiring {
    /// Drops the packets that a subflow sends.
    ///
    /// # Errors
    /// The kernel rejects it: it is older than Linux 4.17, or has no rules.
    pub fn add_blackhole(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<()> {
        let attempt = format!("dropping the packets from {local} to {remote}");
        self.change(attempt, RouteNetlinkMessage::NewRule(rule(local, remote)), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Lets the packets of a subflow pass again.
    ///
    /// # Errors
    /// There is no such rule.
    pub fn remove_blackhole(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<()> {
        let attempt = format!("passing the packets from {local} to {remote}");
        self.change(attempt, RouteNetlinkMessage::DelRule(rule(local, remote)), 0)
    }

    /// Removes all blackhole rules of ours, also those that a killed agent left.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn remove_blackholes(&mut self) -> Result<()> {
        let query = RouteNetlinkMessage::GetRule(RuleMessage::default());
        let ours = self.dump("listing the rules", query, |message| match message {
            RouteNetlinkMessage::NewRule(rule) => is_ours(&rule).then_some(rule),
            _ => None,
        })?;
        ours.into_iter().try_for_each(|rule| {
            self.change("removing a blackhole rule".into(), RouteNetlinkMessage::DelRule(rule), 0)
        })
    }
}

fn rule(local: SocketAddr, remote: SocketAddr) -> RuleMessage {
    let (source, destination) = (local.ip().to_canonical(), remote.ip().to_canonical());
    let (family, length) = match source {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    let only = |port| RulePortRange { start: port, end: port };
    let mut message = RuleMessage::default();
    message.header = RuleHeader {
        family,
        src_len: length,
        dst_len: length,
        action: RuleAction::Blackhole,
        ..RuleHeader::default()
    };
    message.attributes = vec![
        RuleAttribute::Source(source),
        RuleAttribute::Destination(destination),
        RuleAttribute::IpProtocol(IpProtocol::Tcp),
        RuleAttribute::SourcePortRange(only(local.port())),
        RuleAttribute::DestinationPortRange(only(remote.port())),
        RuleAttribute::Priority(PRIORITY),
        RuleAttribute::Protocol(PROTOCOL),
    ];
    message
}

fn is_ours(rule: &RuleMessage) -> bool {
    rule.header.action == RuleAction::Blackhole && rule.attributes.contains(&RuleAttribute::Protocol(PROTOCOL))
}
