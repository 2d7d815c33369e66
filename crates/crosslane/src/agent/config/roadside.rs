//! The section `[roadside]`: units to which tunnels over one radio are built.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::OnceLock;

use crosslane_core::tunnel::{Encryption, Mode};
use ipnet::{IpNet, Ipv4Net};
use serde::Deserialize;
use toml::Spanned;

use super::checks::Complaint;
use super::{Config, MAX_PATHS, UNITS};
use crate::tun::check_name;
use crate::tunnel::config::{Prefix, TunnelConfig, extra_bytes, has_port, late_ms};
use crate::tunnel::security::PublicKey;

/// Maximum number of units.
const MAX_UNITS: usize = 1000;
/// Lengths of a prefix with an address for the unit and one for the vehicle.
pub(super) const PREFIX_LENGTHS: RangeInclusive<u8> = 1..=30;
/// MTUs of `[tunnel]`.
const TUNNEL_MTUS: (u32, u32) = (576, 9216);

/// The section.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoadsideConfig {
    /// Interface of the radio (at most 15 bytes); not used with `tunnel = "none"`.
    #[serde(default)]
    pub interface: String,
    /// How packets to the units are carried.
    pub tunnel: TunnelKind,
    /// Maximum number of units with a tunnel at the same time (1 to 16, with the paths).
    #[serde(default = "slots")]
    pub slots: Spanned<u8>,
    /// File of our private key, for `tunnel = "crosslane"` and for the controller.
    pub key: Option<Spanned<PathBuf>>,
    /// Address or name, and port, of the controller that announces further units.
    pub controller: Option<Spanned<String>>,
    /// The controller's public key.
    pub controller_key: Option<Spanned<String>>,
    /// The vehicle's home address, for traffic that knows no MPTCP: an IPv4 address with a prefix of 32 bits.
    pub home: Option<Spanned<Prefix>>,
    /// The units.
    #[serde(default, rename = "unit")]
    pub units: Vec<Spanned<UnitConfig>>,
}

/// Kind of the tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TunnelKind {
    /// The kernel's VXLAN (RFC 7348), without protection.
    Vxlan,
    /// The kernel's GRE (RFC 2784), without protection.
    Gre,
    /// The encrypted tunnel of `[tunnel]`.
    Crosslane,
    /// None: the system has an interface with the name of each unit. The agent brings it
    /// up with its address while the unit has a slot.
    None,
}

impl TunnelKind {
    /// The name in configurations and status.
    pub fn name(self) -> &'static str {
        match self {
            TunnelKind::Vxlan => "vxlan",
            TunnelKind::Gre => "gre",
            TunnelKind::Crosslane => "crosslane",
            TunnelKind::None => "none",
        }
    }

    /// True for the kernel's tunnels, which neither encrypt nor authenticate.
    pub fn is_of_kernel(self) -> bool {
        matches!(self, TunnelKind::Vxlan | TunnelKind::Gre)
    }
}

/// A unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitConfig {
    /// Its C-ITS station id.
    pub station: u32,
    /// Name of its path and of the interface of its tunnel (1 to 15 bytes).
    pub name: String,
    /// Its address on the air; not used with `tunnel = "none"`.
    #[serde(default = "unspecified")]
    pub address: Ipv4Addr,
    /// UDP port of its encrypted tunnel.
    #[serde(default = "port")]
    pub port: u16,
    /// The vehicle's address in the tunnel, with the prefix of the unit. The first
    /// address of the prefix is the unit's.
    pub inner: Spanned<Prefix>,
    /// Its public key, for `tunnel = "crosslane"`.
    pub key: Option<Spanned<String>>,
}

fn slots() -> Spanned<u8> {
    Spanned::new(0..0, 4)
}

fn unspecified() -> Ipv4Addr {
    Ipv4Addr::UNSPECIFIED
}

fn port() -> u16 {
    4760
}

impl UnitConfig {
    /// The vehicle's address in the tunnel with its prefix; checked to be IPv4.
    pub fn net(&self) -> Option<Ipv4Net> {
        match self.inner.get_ref().0 {
            IpNet::V4(net) => Some(net),
            IpNet::V6(_) => None,
        }
    }

    /// Whether nothing differs.
    pub fn is_same(&self, other: &UnitConfig) -> bool {
        let key = |unit: &UnitConfig| unit.key.as_ref().map(|key| key.get_ref().clone());
        let details = |unit: &UnitConfig| (unit.station, unit.address, unit.port, unit.inner.get_ref().0, key(unit));
        self.name == other.name && details(self) == details(other)
    }

    /// The VXLAN network: the low 24 bits of the station id.
    pub fn network(&self) -> u32 {
        self.station & 0x00ff_ffff
    }
}

impl RoadsideConfig {
    /// The encrypted tunnel to a unit, over a radio of this MTU.
    pub fn encrypted(&self, unit: &UnitConfig, mtu: u32) -> TunnelConfig {
        TunnelConfig {
            interface: unit.name.clone(),
            address: vec![unit.inner.clone()],
            key: self.key.clone(),
            gateway: Some(Spanned::new(0..0, format!("{}:{}", unit.address, unit.port))),
            found_gateway: OnceLock::new(),
            gateway_key: unit.key.clone(),
            listen: None,
            mode: Mode::default(),
            late_ms: late_ms(),
            extra_bytes: extra_bytes(),
            encryption: Encryption::default(),
            rfc8086_only: false,
            mtu: Spanned::new(0..0, mtu.clamp(TUNNEL_MTUS.0, TUNNEL_MTUS.1)),
            vehicles: Vec::new(),
        }
    }

    /// The vehicle's home address.
    pub fn home(&self) -> Option<Ipv4Addr> {
        match self.home.as_ref()?.get_ref().0.addr() {
            IpAddr::V4(home) => Some(home),
            IpAddr::V6(_) => None,
        }
    }
}

/// What does not depend on the machine.
pub(super) fn check(config: &Config) -> Result<(), Complaint> {
    let Some(section) = &config.roadside else { return Ok(()) };
    let (place, roadside) = (section.span().start, section.get_ref());
    if config.observe.vanetza.is_none() {
        let cause = "[roadside] without `observe.vanetza`: no CAM of a unit would arrive".into();
        return Err((place, cause, "set observe.vanetza, as \"127.0.0.1:5051\""));
    }
    let is_name = (1..=15).contains(&roadside.interface.len());
    if roadside.tunnel != TunnelKind::None && !is_name {
        let cause = format!("{:?} is no interface name", roadside.interface);
        return Err((place, cause, "give roadside.interface a name of 1 to 15 bytes"));
    }
    let (slots, left) = (*roadside.slots.get_ref(), MAX_PATHS.saturating_sub(config.paths.len()));
    if slots == 0 || usize::from(slots) > left {
        let cause = format!("{slots} slots, with {left} left of {MAX_PATHS} paths");
        return Err((roadside.slots.span().start.max(place), cause, "give `slots` from 1 to what is left"));
    }
    let least = usize::from(roadside.controller.is_none());
    if !(least..=MAX_UNITS).contains(&roadside.units.len()) {
        let cause = format!("[roadside] has {} units", roadside.units.len());
        return Err((place, cause, "give 1 to 1000 [[roadside.unit]], or the `controller` that announces them"));
    }
    check_key(roadside, place)?;
    check_controller(roadside)?;
    check_home(config, roadside)?;
    for (number, unit) in roadside.units.iter().enumerate() {
        check_unit(config, roadside, unit)?;
        let others = roadside.units[..number].iter().map(Spanned::get_ref);
        others.into_iter().try_for_each(|other| differ(roadside.tunnel, other, unit))?;
    }
    Ok(())
}

fn check_home(config: &Config, roadside: &RoadsideConfig) -> Result<(), Complaint> {
    let Some(home) = &roadside.home else { return Ok(()) };
    let (place, net) = (home.span().start, home.get_ref().0);
    let is_host = matches!(net, IpNet::V4(net) if net.prefix_len() == 32);
    if !is_host || net.addr().is_loopback() || net.addr().is_multicast() || net.addr().is_unspecified() {
        return Err((place, format!("the home address {net} is no IPv4 host"), "give one, as \"10.99.0.7/32\""));
    }
    let units = roadside.units.iter().filter_map(|unit| Some(IpNet::V4(unit.get_ref().net()?)));
    let tunnel = config.tunnel.iter().flat_map(|tunnel| &tunnel.get_ref().address).map(|prefix| prefix.get_ref().0);
    let paths = config.paths.iter().filter_map(|path| path.get_ref().address).map(IpNet::from);
    if units.chain(tunnel).chain(paths).any(|other| other.contains(&net.addr())) {
        let cause = format!("the home address {net} belongs to a unit, a path or the tunnel");
        return Err((place, cause, "give the vehicle an address that nothing else has"));
    }
    Ok(())
}

fn check_key(roadside: &RoadsideConfig, place: usize) -> Result<(), Complaint> {
    match (&roadside.key, roadside.tunnel == TunnelKind::Crosslane) {
        (None, true) => {
            let remedy = "give roadside.key (made by `crosslane keygen --out FILE`), or tunnel = \"vxlan\" for none";
            Err((place, "the tunnels to the units have no `key`".into(), remedy))
        }
        (Some(key), false) if roadside.controller.is_none() => {
            Err((key.span().start, "a `key`, which only tunnels of kind crosslane use".into(), KEY_REMEDY))
        }
        _ => Ok(()),
    }
}

fn check_controller(roadside: &RoadsideConfig) -> Result<(), Complaint> {
    let (controller, key) = match (&roadside.controller, &roadside.controller_key) {
        (None, None) => return Ok(()),
        (Some(controller), Some(key)) => (controller, key),
        (Some(controller), None) => {
            let remedy = "give it what `crosslane keygen --public FILE` prints for the controller's key";
            return Err((controller.span().start, "the controller has no `controller_key`".into(), remedy));
        }
        (None, Some(key)) => {
            let cause = "`controller_key` without `controller`".into();
            return Err((key.span().start, cause, "give the controller's address and port, or leave it out"));
        }
    };
    let place = controller.span().start;
    if !has_port(controller.get_ref()) {
        let cause = format!("the controller {:?} has no port", controller.get_ref());
        return Err((place, cause, "give an address and a port, as \"192.0.2.1:4761\""));
    }
    if let Err(fault) = key.get_ref().parse::<PublicKey>() {
        let cause = format!("{:?} is no public key: {fault}", key.get_ref());
        return Err((key.span().start, cause, "give what `crosslane keygen --public FILE` prints for the controller"));
    }
    if roadside.key.is_none() {
        let remedy =
            "give roadside.key (made by `crosslane keygen --out FILE`): by it the controller knows the vehicle";
        return Err((place, "a `controller` without a `key`".into(), remedy));
    }
    Ok(())
}

/// Why a unit that the controller announces cannot be used; `others` are used already.
pub fn refusal<'a>(
    config: &Config,
    mut others: impl Iterator<Item = &'a UnitConfig>,
    unit: &UnitConfig,
) -> Option<String> {
    let roadside = config.roadside.as_ref()?.get_ref();
    if let (Some(home), Some(net)) = (roadside.home(), unit.net())
        && net.contains(&home)
    {
        return Some(format!("its prefix {net} contains the home address {home}"));
    }
    let unit = Spanned::new(0..0, unit.clone());
    let checked = check_unit(config, roadside, &unit)
        .and_then(|()| others.try_for_each(|other| differ(roadside.tunnel, other, &unit)));
    checked.err().map(|(_, cause, _)| cause)
}

/// Remedy for a key that is not used.
const KEY_REMEDY: &str = "leave it out, or set tunnel = \"crosslane\"";

fn check_unit(config: &Config, roadside: &RoadsideConfig, unit: &Spanned<UnitConfig>) -> Result<(), Complaint> {
    let (place, unit) = (unit.span().start, unit.get_ref());
    let name = &unit.name;
    if let Err(cause) = check_name(name) {
        return Err((place, format!("the unit's name {name:?} is invalid: {cause}"), "choose another `name`"));
    }
    let taken =
        |path: &Spanned<super::PathConfig>| [&path.get_ref().name[..], path.get_ref().interface()].contains(&&name[..]);
    if name == UNITS || *name == roadside.interface || config.paths.iter().any(taken) {
        let cause = format!("the unit's name {name:?} is that of a path, of an interface, or of all units");
        return Err((place, cause, "choose another `name`"));
    }
    if config.paths.iter().any(|path| path.get_ref().stations.contains(&unit.station)) {
        let cause = format!("station {} is a unit and one of a path's `stations`", unit.station);
        return Err((place, cause, "name it once"));
    }
    if unit.address.is_unspecified() && roadside.tunnel != TunnelKind::None {
        return Err((place, format!("unit {name:?} has no `address`"), "give its address on the air"));
    }
    match (&unit.key, roadside.tunnel == TunnelKind::Crosslane) {
        (None, true) => {
            let remedy = "give it what `crosslane keygen --public FILE` prints for the unit's key";
            return Err((place, format!("unit {name:?} has no `key`"), remedy));
        }
        (Some(key), false) => {
            let cause = format!("unit {name:?} has a `key`, which only tunnels of kind crosslane use");
            return Err((key.span().start, cause, KEY_REMEDY));
        }
        (Some(_), true) => {
            let at = |inner: usize| if inner == 0 { place } else { inner };
            let checked = roadside.encrypted(unit, 1500).check(1);
            checked.map_err(|(inner, cause, remedy)| (at(inner), cause, remedy))?;
        }
        (None, false) => {}
    }
    check_inner(config, unit)
}

fn check_inner(config: &Config, unit: &UnitConfig) -> Result<(), Complaint> {
    let (place, name) = (unit.inner.span().start, &unit.name);
    let Some(net) = unit.net().filter(|net| PREFIX_LENGTHS.contains(&net.prefix_len())) else {
        let cause = format!("the inner address of unit {name:?} has no IPv4 prefix of at most 30 bits");
        return Err((place, cause, "give one, as \"10.81.0.2/24\""));
    };
    if net.addr() == net.network() || net.addr() == net.broadcast() || Some(net.addr()) == net.hosts().next() {
        let cause =
            format!("{} is not free in the prefix of unit {name:?}, whose first address is the unit's", net.addr());
        return Err((place, cause, "give the vehicle another address of it"));
    }
    let tunnel = config.tunnel.iter().flat_map(|tunnel| &tunnel.get_ref().address);
    let paths = config.paths.iter().filter_map(|path| path.get_ref().address);
    let mut other = tunnel.map(|prefix| prefix.get_ref().0.addr()).chain(paths);
    let inside = |address: &IpAddr| *address == IpAddr::from(unit.address) || IpNet::V4(net).contains(address);
    if net.contains(&unit.address) || other.any(|address| inside(&address)) {
        let cause = format!("the prefix of unit {name:?} contains an address outside its tunnel");
        return Err((place, cause, "give the unit a prefix that nothing else uses"));
    }
    Ok(())
}

fn differ(kind: TunnelKind, one: &UnitConfig, unit: &Spanned<UnitConfig>) -> Result<(), Complaint> {
    let (place, two) = (unit.span().start, unit.get_ref());
    // Not composed in advance: a controller may announce a thousand units.
    let names = || format!("units {:?} and {:?} have", one.name, two.name);
    if one.station == two.station {
        return Err((place, format!("{} the station id {}", names(), two.station), "give each unit its own"));
    }
    if one.name == two.name {
        return Err((place, format!("two units are named {:?}", two.name), "give each unit a different name"));
    }
    if kind == TunnelKind::Vxlan && one.network() == two.network() {
        let cause = format!("{} the same VXLAN network, the low 24 bits of the station id", names());
        return Err((place, cause, "give one of them another station id"));
    }
    if one.address == two.address && kind != TunnelKind::None {
        return Err((place, format!("{} the address {}", names(), two.address), "give each unit its own"));
    }
    if let (Some(a), Some(b)) = (one.net(), two.net())
        && (a.contains(&b.network()) || b.contains(&a.network()))
    {
        let cause = format!("{} prefixes that overlap: {} and {}", names(), a.trunc(), b.trunc());
        return Err((two.inner.span().start, cause, "give each unit a separate prefix"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
