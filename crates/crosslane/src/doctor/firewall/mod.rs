//! Whether the rules of nftables, or a translation of addresses, are in the way of what an agent sends and receives.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use nix::net::if_::if_nametoindex;
use toml::Spanned;

use self::packet::{Direction, Fate, Packet, Place, fate};
use super::Finding;
use super::configuration::address_of;
use crate::agent::config::{Config, PathConfig};
use crate::netlink::nftables::{self, Ruleset};

mod packet;

/// The faults. Rules that cannot be read are no fault: without CAP_NET_ADMIN there is a finding already.
pub fn examine(config: &Config) -> Vec<Finding> {
    let rules = nftables::ruleset().unwrap_or_default();
    let gateway = config.tunnel.as_ref().and_then(|tunnel| tunnel.get_ref().gateway_address().ok().flatten());
    let mut findings = Vec::new();
    for path in config.paths.iter().map(Spanned::get_ref) {
        let Some(address) = address_of(path) else { continue };
        findings.extend(of_path(&rules, path, address, gateway));
    }
    findings.extend(of_listener(&rules, config));
    findings.extend(gateway.into_iter().flat_map(|gateway| keepalives(config, gateway)));
    findings
}

fn of_path(rules: &Ruleset, path: &PathConfig, address: IpAddr, gateway: Option<SocketAddr>) -> Vec<Finding> {
    let (name, interface) = (&path.name, path.interface());
    let interface = (interface.to_owned(), if_nametoindex(interface).unwrap_or(0));
    let syn = fate(rules, &Packet::syn(address, interface.clone()));
    let accept = format!("oifname {:?} meta l4proto tcp", interface.0);
    let mut findings: Vec<Finding> =
        syn.into_iter().map(|(fate, place)| of_mptcp(name, fate, &place, &accept)).collect();
    let Some(gateway) = gateway.filter(|gateway| gateway.is_ipv4() == address.is_ipv4()) else { return findings };
    let datagrams = Packet::datagrams(address, gateway, Some(interface));
    findings.extend(datagrams.iter().find_map(|packet| {
        let (fate, place) = fate(rules, packet)?;
        let (what, accept) = match packet.direction {
            Direction::Out => (format!("path {name:?}: datagrams to the gateway {gateway}"), "dport"),
            Direction::In => (format!("path {name:?}: datagrams from the gateway {gateway}"), "sport"),
        };
        Some(of_tunnel(&what, fate, &place, &format!("udp {accept} {}", gateway.port())))
    }));
    findings
}

/// What vehicles send to this gateway, and its answers to them.
fn of_listener(rules: &Ruleset, config: &Config) -> Option<Finding> {
    let listen = *config.tunnel.as_ref()?.get_ref().listen.as_ref()?.get_ref();
    let local = Some(listen.ip()).filter(|address| !address.is_unspecified());
    let datagram = Packet {
        direction: Direction::In,
        interface: None,
        is_udp: true,
        is_ipv4: listen.is_ipv4(),
        source: None,
        destination: local,
        source_port: None,
        destination_port: Some(listen.port()),
        is_reply: false,
    };
    let (fate, place) = fate(rules, &datagram)?;
    let what = format!("datagrams of vehicles to port {}", listen.port());
    Some(of_tunnel(&what, fate, &place, &format!("udp dport {}", listen.port())))
}

fn of_tunnel(what: &str, fate: Fate, place: &Place, accept: &str) -> Finding {
    match fate {
        Fate::Dropped | Fate::Stripped => {
            let what = format!("{what} are dropped by {}", spoken(place));
            Finding::broken("firewall.tunnel", what, "the tunnel carries nothing over this path", open(place, accept))
        }
        Fate::Translated => translated(what, place),
    }
}

fn of_mptcp(path: &str, fate: Fate, place: &Place, accept: &str) -> Finding {
    let what = format!("path {path:?}: TCP connections with MPTCP");
    match fate {
        Fate::Dropped => {
            let what = format!("{what} are dropped by {}", spoken(place));
            Finding::broken("firewall.mptcp", what, "no subflow is opened over this path", open(place, accept))
        }
        Fate::Stripped => {
            let what = format!("{what} lose its option by {}", spoken(place));
            let why = "connections over this path fall back to TCP, and use one path";
            Finding::broken("firewall.strips", what, why, open(place, accept))
        }
        Fate::Translated => translated(&what, place),
    }
}

fn translated(what: &str, place: &Place) -> Finding {
    let what = format!("{what} get another address by {}", spoken(place));
    let why = "they do not leave with the address of their path, or do not reach whom they are sent to";
    Finding::broken("nat.translated", what, why, open(place, ""))
}

/// As `nft -a list ruleset` has it.
fn spoken(place: &Place) -> String {
    match place.rule {
        Some(handle) => format!("rule {handle} of the chain {:?}", place.chain),
        None => format!("the policy of the chain {:?}", place.chain),
    }
}

/// The command that lets the packets pass.
fn open(place: &Place, accept: &str) -> String {
    match place.rule {
        Some(handle) => format!("nft delete rule {} handle {handle} (`nft -a list ruleset` shows it)", place.chain),
        None => format!("nft insert rule {} {accept} accept", place.chain),
    }
}

/// Keepalives too rare for the NAT that is between a private address and a public gateway.
fn keepalives(config: &Config, gateway: SocketAddr) -> Vec<Finding> {
    let is_behind_nat =
        |path: &PathConfig| address_of(path).is_some_and(|address| is_private(address) && !is_private(gateway.ip()));
    if !config.paths.iter().any(|path| is_behind_nat(path.get_ref())) {
        return Vec::new();
    }
    let finding = |sentence: String| {
        let why =
            "a path of this host has a private address and the gateway a public one, so there is a NAT between them";
        Finding::warning("nat.keepalive", sentence, why, "set keepalive_s = 25 in the [[path]], or remove it")
    };
    config.rare_keepalives().map(finding).collect()
}

/// Whether it is not routed in the Internet: RFC 1918, 6598 and 4193, link-local and loopback.
fn is_private(address: IpAddr) -> bool {
    /// 100.64.0.0/10, between providers and their customers.
    fn is_shared(address: Ipv4Addr) -> bool {
        address.octets()[0] == 100 && address.octets()[1] & 0xc0 == 64
    }
    match address {
        IpAddr::V4(address) => {
            address.is_private() || is_shared(address) || address.is_link_local() || address.is_loopback()
        }
        IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local() || address.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_recognized() {
        for (text, expected) in [
            ("10.1.2.3", true),
            ("100.64.0.1", true),
            ("100.128.0.1", false),
            ("198.51.100.1", false),
            ("fd77::1", true),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_private(text.parse().expect("an address")), expected, "{text}");
        }
    }
}
