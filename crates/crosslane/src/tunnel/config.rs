//! The section `[tunnel]` of an agent's configuration.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use crosslane_core::tunnel::wire::overhead::Overhead;
use crosslane_core::tunnel::{Copies, Encryption, Mode};
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use super::device::Plan;
use super::security::{KeyFault, PrivateKey, PublicKey};
use crate::error::{Error, Result};
use crate::tun::check_name;

/// Valid path MTUs (RFC 791, RFC 8200 and jumbo frames).
const MTUS: std::ops::RangeInclusive<u32> = 576..=9216;
/// Remedy for an invalid or wrong public key.
const PUBLIC_KEY_REMEDY: &str = "give what `crosslane keygen --public FILE` prints for the peer's key";
/// Maximum number of vehicles of one gateway.
pub const MAX_VEHICLES: usize = 1000;

/// The section. A vehicle has `gateway`, a gateway `listen`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunnelConfig {
    /// Name of the TUN interface (1 to 15 bytes).
    #[serde(default = "interface")]
    pub interface: String,
    /// Addresses of the interface with their prefixes, IPv4 and IPv6.
    pub address: Vec<Spanned<Prefix>>,
    /// File of the private key (`crosslane keygen`).
    pub key: Option<Spanned<PathBuf>>,
    /// The gateway's address or name, and port.
    pub gateway: Option<Spanned<String>>,
    /// The resolved address of that name.
    #[serde(skip)]
    pub found_gateway: OnceLock<SocketAddr>,
    /// The gateway's public key.
    pub gateway_key: Option<Spanned<String>>,
    /// Address and port at which a gateway listens.
    pub listen: Option<Spanned<SocketAddr>>,
    /// The mode; the vehicle's choice holds for both endpoints.
    #[serde(default)]
    pub mode: Mode,
    /// A packet that is later than this is as bad as lost to mode adaptive.
    #[serde(default = "late_ms")]
    pub late_ms: Spanned<u32>,
    /// Bytes that mode adaptive may send twice, as a share of the bytes of packets in any ten seconds.
    #[serde(default = "extra_bytes")]
    pub extra_bytes: Spanned<f64>,
    /// Protection of the packets.
    #[serde(default)]
    pub encryption: Encryption,
    /// The peer implements RFC 8086 (GRE-in-UDP) and nothing beyond, as a router does: no
    /// key, no sequence numbers, one path at a time, and no keepalives. A gateway
    /// replies to the address and port of the newest packet.
    #[serde(default)]
    pub rfc8086_only: bool,
    /// Longest IP packet that any path may carry, in bytes.
    #[serde(default = "mtu")]
    pub mtu: Spanned<u32>,
    /// The vehicles of a gateway.
    #[serde(default, rename = "vehicle")]
    pub vehicles: Vec<Spanned<VehicleConfig>>,
}

/// A vehicle in its gateway's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VehicleConfig {
    /// Name in records and logs.
    pub name: String,
    /// Its public key.
    pub key: Option<Spanned<String>>,
    /// The inner addresses it may use, which are routed to it.
    pub address: Vec<Spanned<Prefix>>,
}

/// Default name of the interface.
pub fn interface() -> String {
    "crosslane0".into()
}

/// Default of `late_ms`.
pub fn late_ms() -> Spanned<u32> {
    Spanned::new(0..0, Copies::default().late.as_millis() as u32)
}

/// Default of `extra_bytes`.
pub fn extra_bytes() -> Spanned<f64> {
    Spanned::new(0..0, Copies::default().extra_bytes)
}

fn mtu() -> Spanned<u32> {
    Spanned::new(0..0, 1500)
}

/// An address and the length of its prefix, as `10.0.0.1/24`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Prefix(pub IpNet);

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Prefix, String> {
        let fault = |_| format!("{text:?} is no address with a prefix; write one as \"10.0.0.1/24\"");
        text.parse().map(Prefix).map_err(fault)
    }
}

/// Place, cause and remedy.
pub type Complaint = (usize, String, &'static str);

impl TunnelConfig {
    /// Checks that do not depend on the machine.
    ///
    /// # Errors
    /// Place in the text, cause and remedy.
    pub fn check(&self, paths: usize) -> Result<(), Complaint> {
        match (&self.gateway, &self.listen) {
            (Some(_), None) if paths == 0 => {
                return Err((0, "a vehicle's tunnel has no path".into(), "give at least one [[path]]"));
            }
            (Some(_), None) | (None, Some(_)) => {}
            _ => {
                let remedy = "a vehicle has `gateway`, a gateway has `listen`: give one of them";
                return Err((0, "[tunnel] does not define its role".into(), remedy));
            }
        }
        if let Err(cause) = check_name(&self.interface) {
            let cause = format!("the tunnel's interface {:?} is invalid: {cause}", self.interface);
            return Err((0, cause, "choose another `interface`"));
        }
        self.check_ports()?;
        if self.is_plain() == self.key.is_some() {
            let cause =
                if self.is_plain() { "an unencrypted tunnel needs no `key`" } else { "the tunnel has no `key`" };
            let remedy =
                "give `key` (made by `crosslane keygen --out FILE`), or encryption = \"none\" for no protection at all";
            return Err((self.key.as_ref().map_or(0, |key| key.span().start), cause.into(), remedy));
        }
        if self.rfc8086_only && !self.is_plain() {
            let remedy = "add encryption = \"none\", or leave it out";
            return Err((0, "`rfc8086_only` is GRE-in-UDP without protection".into(), remedy));
        }
        if self.gateway.is_some() && self.is_plain() == self.gateway_key.is_some() {
            return Err((0, "`gateway_key` does not go with `encryption = \"none\"`".into(), "give one or the other"));
        }
        if !(0.0..=1.0).contains(self.extra_bytes.get_ref()) {
            let cause = format!("a share of {} sent twice", self.extra_bytes.get_ref());
            return Err((self.extra_bytes.span().start, cause, "give `extra_bytes` from 0 (no copies) to 1"));
        }
        if !(1..=60_000).contains(self.late_ms.get_ref()) {
            let cause = format!("a `late_ms` of {}", self.late_ms.get_ref());
            return Err((self.late_ms.span().start, cause, "give 1 to 60000"));
        }
        if !MTUS.contains(self.mtu.get_ref()) {
            return Err((self.mtu.span().start, format!("an MTU of {}", self.mtu.get_ref()), "give 576 to 9216"));
        }
        self.check_addresses()?;
        self.check_vehicles()?;
        self.check_keys()
    }

    /// Whether packets are sent unencrypted.
    pub fn is_plain(&self) -> bool {
        self.encryption == Encryption::None
    }

    /// Whether vehicles can come and go: an unencrypted gateway cannot distinguish several.
    pub fn has_changing_vehicles(&self) -> bool {
        self.listen.is_some() && !self.is_plain()
    }

    /// Checks the ports of `gateway` and `listen`.
    fn check_ports(&self) -> Result<(), Complaint> {
        if let Some(gateway) = &self.gateway {
            let (place, name) = (gateway.span().start, gateway.get_ref());
            if !has_port(name) {
                let cause = format!("the gateway {name:?} has no port");
                let remedy = "give an address and a port, as \"192.0.2.1:4760\" or \"[2001:db8::1]:4760\"";
                return Err((place, cause, remedy));
            }
        }
        match &self.listen {
            Some(listen) if listen.get_ref().port() == 0 => {
                let cause = format!("the gateway listens on {}, which is no port", listen.get_ref());
                Err((listen.span().start, cause, "give the port that its vehicles know, as 4760"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the keys are valid and distinct.
    fn check_keys(&self) -> Result<(), Complaint> {
        let mut taken: Vec<(PublicKey, &str)> = Vec::new();
        let gateway = self.gateway_key.iter().map(|key| ("the gateway", key));
        let vehicles = self.vehicles.iter().map(Spanned::get_ref);
        let vehicles = vehicles.filter_map(|vehicle| Some((vehicle.name.as_str(), vehicle.key.as_ref()?)));
        for (name, text) in gateway.chain(vehicles) {
            let place = text.span().start;
            let key: PublicKey = text.get_ref().parse().map_err(|fault: KeyFault| {
                (place, format!("{:?} is no public key: {fault}", text.get_ref()), PUBLIC_KEY_REMEDY)
            })?;
            if let Some((_, other)) = taken.iter().find(|(taken, _)| *taken == key) {
                let cause = format!("vehicles {name:?} and {other:?} have the same key");
                return Err((place, cause, "make a key for each: with one they cannot be distinguished"));
            }
            taken.push((key, name));
        }
        Ok(())
    }

    fn check_addresses(&self) -> Result<(), Complaint> {
        let Some(first) = self.address.first() else {
            return Err((0, "the tunnel has no `address`".into(), "give one as [\"10.0.0.1/24\"]"));
        };
        for (place, prefix) in self.address.iter().enumerate() {
            let address = prefix.get_ref().0.addr();
            if self.address[..place].iter().any(|other| other.get_ref().0.addr() == address) {
                let cause = format!("the tunnel has the address {address} twice");
                return Err((prefix.span().start, cause, "give each address once"));
            }
        }
        let v6 = self.address.iter().any(|prefix| prefix.get_ref().0.addr().is_ipv6());
        if v6 && self.inner_mtu() < 1280 {
            let cause = format!("an MTU of {} leaves {} bytes inside", self.mtu.get_ref(), self.inner_mtu());
            return Err((self.mtu.span().start.max(first.span().start), cause, "IPv6 needs 1280: raise `mtu`"));
        }
        Ok(())
    }

    fn check_vehicles(&self) -> Result<(), Complaint> {
        let count = self.vehicles.len();
        if self.listen.is_some() && !(1..=MAX_VEHICLES).contains(&count) {
            return Err((0, format!("the gateway has {count} vehicles"), "give 1 to 1000 [[tunnel.vehicle]]"));
        }
        if self.listen.is_none() && count > 0 {
            return Err((self.vehicles[0].span().start, "a vehicle has no vehicles".into(), "leave them out"));
        }
        if self.is_plain() && count > 1 {
            let remedy = "give one vehicle, or keys: without keys, vehicles cannot be distinguished";
            return Err((self.vehicles[1].span().start, "an unencrypted gateway has several vehicles".into(), remedy));
        }
        let mut taken: Vec<(&str, IpNet)> = Vec::new();
        for vehicle in self.vehicles.iter().map(Spanned::get_ref) {
            if self.is_plain() == vehicle.key.is_some() {
                let name = &vehicle.name;
                let cause = format!("vehicle {name:?} has a key in an unencrypted tunnel, or none in an encrypted one");
                return Err((0, cause, "give each vehicle `key`, or encryption = \"none\""));
            }
            if vehicle.address.is_empty() {
                let cause = format!("vehicle {:?} has no address, so it could take any", vehicle.name);
                return Err((0, cause, "give it `address`, as [\"10.0.0.2/32\"]"));
            }
            for prefix in &vehicle.address {
                let (place, prefix) = (prefix.span().start, prefix.get_ref().0);
                let mut own = self.address.iter().map(|own| own.get_ref().0.addr());
                if let Some(own) = own.find(|own| prefix.contains(own)) {
                    let cause = format!("vehicle {:?} is given {own}, the gateway's own address", vehicle.name);
                    return Err((place, cause, "give each vehicle distinct addresses"));
                }
                let overlaps = |other: &IpNet| other.contains(&prefix) || prefix.contains(other);
                if let Some((other, _)) = taken.iter().find(|(_, other)| overlaps(other)) {
                    let cause = format!("addresses of vehicles {:?} and {other:?} overlap", vehicle.name);
                    return Err((place, cause, "give each vehicle distinct addresses"));
                }
                taken.push((&vehicle.name, prefix));
            }
        }
        Ok(())
    }

    /// The headers that the tunnel adds to a packet; a gateway at an IPv6 address may send
    /// over IPv6.
    pub fn overhead(&self) -> Overhead {
        let outer_is_v6 = match &self.listen {
            Some(listen) => listen.get_ref().is_ipv6(),
            // Resolves no name; an unresolved gateway counts as IPv4.
            None => self.known_gateway_address().is_some_and(|address| address.is_ipv6()),
        };
        Overhead::new(outer_is_v6, !self.is_plain())
    }

    /// The gateway's address, if it is configured or resolved.
    pub fn known_gateway_address(&self) -> Option<SocketAddr> {
        self.found_gateway.get().copied().or_else(|| self.gateway.as_ref()?.get_ref().parse().ok())
    }

    /// Stores the address of the gateway's name; the first one is kept.
    pub fn set_gateway_address(&self, address: SocketAddr) {
        // Two resolutions may finish.
        let _ = self.found_gateway.set(address);
    }

    /// What mode adaptive counts as late, and may send twice.
    pub fn copies(&self) -> Copies {
        let late = Duration::from_millis((*self.late_ms.get_ref()).into());
        Copies { late, extra_bytes: *self.extra_bytes.get_ref() }
    }

    /// MTU of the interface, in bytes.
    pub fn inner_mtu(&self) -> u32 {
        self.mtu.get_ref() - self.overhead().around_packet()
    }

    /// The gateway's address, on a vehicle.
    ///
    /// # Errors
    /// The name cannot be resolved.
    pub fn gateway_address(&self) -> Result<Option<SocketAddr>> {
        let Some(name) = &self.gateway else { return Ok(None) };
        self.known_gateway_address().map_or_else(|| find_gateway(name.get_ref()), Ok).map(Some)
    }

    /// Parameters of the interface.
    pub fn device(&self) -> Plan {
        let addresses = self.address.iter().map(|prefix| (prefix.get_ref().0.addr(), prefix.get_ref().0.prefix_len()));
        Plan { name: self.interface.clone(), mtu: self.inner_mtu(), addresses: addresses.collect() }
    }

    /// The keys: ours and those of the peers, in the order of the file;
    /// `None` for an unencrypted tunnel.
    ///
    /// # Errors
    /// A key cannot be read, or is invalid.
    pub fn keys(&self) -> Result<Option<(PrivateKey, Vec<PublicKey>)>> {
        let Some(file) = &self.key else { return Ok(None) };
        let private = PrivateKey::read(file.get_ref())?;
        let vehicles = self.vehicles.iter().filter_map(|vehicle| vehicle.get_ref().key.as_ref());
        let public = |text: &Spanned<String>| {
            let fault =
                |cause| Error::usage(format!("reading the public key {:?}", text.get_ref()), cause, PUBLIC_KEY_REMEDY);
            text.get_ref().parse().map_err(fault)
        };
        let peers = self.gateway_key.iter().chain(vehicles).map(public).collect::<Result<Vec<PublicKey>>>()?;
        if peers.contains(&private.public()) {
            let attempt = format!("comparing the keys of the tunnel with {}", file.get_ref().display());
            return Err(Error::usage(attempt, "the peer has the key of this endpoint", PUBLIC_KEY_REMEDY));
        }
        Ok(Some((private, peers)))
    }
}

/// Whether a host, an address or a name, is followed by a port.
pub fn has_port(name: &str) -> bool {
    let port = name.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    // Colons belong to the address unless it is in brackets.
    let whole = |host: &str| !host.is_empty() && (!host.contains(':') || host.ends_with(']'));
    port.is_some_and(|(host, port)| port > 0 && whole(host))
}

/// The first address of a gateway's name; blocks as long as name servers do.
///
/// # Errors
/// The name cannot be resolved now.
pub fn find_gateway(name: &str) -> Result<SocketAddr> {
    let attempt = format!("looking up the gateway {name:?}");
    let remedy = "give tunnel.gateway an address and a port, as \"192.0.2.1:4760\", or a name that can be resolved";
    let found = name.to_socket_addrs().map_err(|cause| Error::failure(&attempt, cause).with_remedy(remedy))?;
    let first = found.min_by_key(SocketAddr::is_ipv6);
    first.ok_or_else(|| Error::failure(attempt, "the name has no address").with_remedy(remedy))
}
