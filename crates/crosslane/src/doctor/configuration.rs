//! What a configuration names: interfaces, addresses, routes, keys, devices, ports.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use toml::Spanned;

use super::Finding;
use crate::agent::config::{Config, PathConfig};
use crate::agent::{machine, unit, unit_probe};
use crate::control::running_agent;
use crate::netlink::links::{self, Notice};
use crate::netlink::{Wiring, interface_towards};
use crate::tun;

/// Least MTU of IPv6 (RFC 8200 §5), and of what we expect of a path.
const MIN_MTU: u32 = 1280;
/// A destination beyond every network here (TEST-NET-1, RFC 5737), to see where packets would leave.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The faults.
pub fn examine(config: &Config) -> Vec<Finding> {
    let interfaces = interfaces();
    let paths = config.paths.iter().map(Spanned::get_ref);
    let mut findings: Vec<Finding> = paths.flat_map(|path| examine_path(config, path, &interfaces)).collect();
    findings.extend(keys(config));
    findings.extend(probes(config));
    findings.extend(devices(config));
    findings
}

/// Whether it is up, and its addresses, by name.
type Interfaces = BTreeMap<String, (bool, Vec<IpAddr>)>;

fn interfaces() -> Interfaces {
    let (mut names, mut found) = (BTreeMap::new(), Interfaces::new());
    for notice in links::snapshot().unwrap_or_default() {
        match notice {
            Notice::Link(link) => {
                found.insert(link.name.clone(), (link.up, Vec::new()));
                names.insert(link.if_index, link.name);
            }
            Notice::Address(event) => {
                let interface = names.get(&event.if_index).and_then(|name| found.get_mut(name));
                interface.into_iter().for_each(|(_, addresses)| addresses.push(event.address));
            }
        }
    }
    found
}

/// The address that a path uses, if it has one now.
pub fn address_of(path: &PathConfig) -> Option<IpAddr> {
    let interfaces = interfaces();
    let (_, addresses) = interfaces.get(path.interface())?;
    usable(path, addresses)
}

fn usable(path: &PathConfig, addresses: &[IpAddr]) -> Option<IpAddr> {
    match path.address {
        Some(address) => Some(address).filter(|address| addresses.contains(address)),
        None => addresses.iter().find(|address| address.is_ipv4()).or(addresses.first()).copied(),
    }
}

/// Units are probed by ping sockets, which send the echo requests over paths too.
fn probes(config: &Config) -> Option<Finding> {
    let why = match (&config.roadside, &config.echo) {
        (Some(_), _) => "units are not probed: whoever sends CAMs in a unit's name takes its slot",
        (None, Some(_)) => "no echo requests are sent: a dead path in reserve counts as good",
        (None, None) => return None,
    };
    unit_probe::check().err()?;
    let what = "this group may not open ping sockets (net.ipv4.ping_group_range)";
    Some(Finding::warning("probes.denied", what, why, unit_probe::PERMIT))
}

fn examine_path(config: &Config, path: &PathConfig, interfaces: &Interfaces) -> Vec<Finding> {
    let (name, interface) = (&path.name, path.interface());
    let why = "the path carries nothing until then";
    let Some((up, addresses)) = interfaces.get(interface) else {
        let what = format!("path {name:?}: there is no interface {interface:?}");
        let fix = "correct `interface` of the path (`ip link` lists the interfaces), or start its modem";
        return vec![Finding::broken("interface.absent", what, why, fix)];
    };
    if !up {
        let what = format!("path {name:?}: the interface {interface:?} is down");
        return vec![Finding::broken("interface.down", what, why, format!("ip link set {interface} up"))];
    }
    let Some(address) = usable(path, addresses) else {
        let (kind, what) = match path.address {
            Some(address) => ("address.other", format!("path {name:?}: {interface:?} has no address {address}")),
            None => ("address.none", format!("path {name:?}: {interface:?} has no address")),
        };
        let fix = format!("networkctl renew {interface}, or ip address add ADDRESS/PREFIX dev {interface}");
        return vec![Finding::broken(kind, what, why, fix)];
    };
    let mut findings: Vec<Finding> = route(path, address).into_iter().chain(mtu(config, path)).collect();
    findings.extend(strict_filter(config, path));
    findings
}

/// Packets with the path's address must leave over its interface, which a rule and a table of their own decide.
fn route(path: &PathConfig, address: IpAddr) -> Option<Finding> {
    let IpAddr::V4(source) = address else { return None };
    let (name, interface) = (&path.name, path.interface());
    let index = Wiring::open().ok()?.index(interface).ok()?;
    let why = "the network drops packets with an address of another path, so its subflows fail";
    let fix = format!(
        "ip route add default via GATEWAY dev {interface} metric 200, if no route leads over it, and start the agent, which sets rule and table by it unless service.routes is false; or: ip rule add from {source} table 100; ip route add default via GATEWAY dev {interface} table 100 (a table for each path)"
    );
    match interface_towards(source.into(), ELSEWHERE.into()) {
        Ok(Some(found)) if found == index => None,
        Ok(None) => {
            Some(Finding::broken("route.none", format!("path {name:?}: packets from {source} have no route"), why, fix))
        }
        Ok(Some(_)) => {
            let what = format!("path {name:?}: packets from {source} leave over another interface than {interface:?}");
            Some(Finding::broken("route.other", what, why, fix))
        }
        Err(_) => None,
    }
}

fn mtu(config: &Config, path: &PathConfig) -> Option<Finding> {
    let (name, interface) = (&path.name, path.interface());
    let mtu = Wiring::open().ok()?.mtu(interface).ok()?;
    if mtu < MIN_MTU {
        let what = format!("path {name:?}: the MTU of {interface:?} is {mtu} bytes");
        let why = "IPv6 needs 1280 bytes, and the header overhead of MPTCP and tunnel grows";
        return Some(Finding::warning("mtu.small", what, why, format!("ip link set {interface} mtu 1500")));
    }
    // By default the tunnel finds what each path carries.
    let configured = Some(&config.tunnel.as_ref()?.get_ref().mtu).filter(|mtu| !mtu.span().is_empty())?;
    let tunnel = *configured.get_ref();
    let what = format!("path {name:?}: the MTU of {interface:?} is {mtu} bytes, [tunnel] mtu is {tunnel}");
    let why = "the tunnel probes for packets that the interface cannot carry";
    let fix = format!("set `mtu = {mtu}` in [tunnel], or ip link set {interface} mtu {tunnel}");
    (tunnel > mtu).then(|| Finding::warning("mtu.tunnel", what, why, fix))
}

/// Reverse-path filter of an interface (ip-sysctl.rst): the greater value of `all` and its own.
fn strict_filter(config: &Config, path: &PathConfig) -> Option<Finding> {
    let interface = path.interface();
    let value = |conf: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{conf}/rp_filter")).unwrap_or_default();
        text.trim().parse::<u8>().unwrap_or(0)
    };
    let is_strict = value("all").max(value(interface)) == 1 && config.paths.len() > 1;
    let what = format!("path {:?}: the reverse-path filter of {interface:?} is strict", path.name);
    let why = "a packet that arrives while its route back leads over another path is dropped";
    let fix = format!("sysctl -w net.ipv4.conf.{interface}.rp_filter=2");
    is_strict.then(|| Finding::warning("rp-filter.strict", what, why, fix))
}

/// A key that is missing, open to others or no key.
fn keys(config: &Config) -> Option<Finding> {
    let fault = machine::refusal(config)?.to_string();
    let (fault, fix) = fault.rsplit_once("; ").unwrap_or((&fault, "crosslane keygen --out FILE"));
    Some(Finding::broken("key.unusable", fault, "`crosslane agent` does not start without its keys", fix))
}

fn devices(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let tunnel = config.tunnel.as_ref().map(Spanned::get_ref);
    if let (Some(_), Err(fault)) = (tunnel, tun::open_device()) {
        let why = "the tunnel's interface cannot be created";
        findings.push(Finding::broken("tun.unusable", fault, why, "modprobe tun; chmod 0666 /dev/net/tun"));
    }
    if let Some(address) = tunnel.and_then(|tunnel| tunnel.listen.as_ref()).map(Spanned::get_ref)
        && running_agent::all().is_empty()
        && let Err(cause) = UdpSocket::bind(address)
    {
        let what = format!("the gateway cannot listen on {address}: {cause}");
        let fix = format!("ss -ulpn 'sport = {}' shows what has the port; end it or change `listen`", address.port());
        findings.push(Finding::broken("listen.taken", what, "vehicles do not reach this gateway", fix));
    }
    if config.unit.is_some() && unit::forwards() == Some(false) {
        let why = "the roadside unit forwards no packet between vehicles and their home network";
        let fix = "sysctl -w net.ipv4.ip_forward=1";
        findings.push(Finding::broken("forwarding.off", "net.ipv4.ip_forward is 0", why, fix));
    }
    if let Some(fault) = machine::unwritable_events(config) {
        let why = "events of the agent are lost";
        findings.push(Finding::warning(
            "log.unwritable",
            fault,
            why,
            "name another file in log.events, or change its owner",
        ));
    }
    findings
}
