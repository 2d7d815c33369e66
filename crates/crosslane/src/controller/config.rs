//! The controller's configuration file.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crosslane_core::roadside::controller::{Directory, Peer, UnitSpec, VehicleSpec, inner};
use crosslane_core::roadside::messages::{MAX_UNITS, MAX_VEHICLES};
use crosslane_sim::input::strict_toml;
use crosslane_sim::input::toml_fault::{TomlFault, line_at};
use ipnet::Ipv4Net;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::agent::config::Log;
use crate::error::{Error, Result};
use crate::roadside::redirector::MAX_HOMES;
use crate::text_file;
use crate::tun::check_name;
use crate::tunnel::security::{KeyFault, PrivateKey, PublicKey};

/// Place in the text, cause and remedy.
type Complaint = (usize, String, &'static str);

/// The contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where units and vehicles connect (TCP).
    #[serde(deserialize_with = "with_port")]
    pub listen: SocketAddr,
    /// File of the controller's private key.
    pub key: PathBuf,
    /// How home addresses are led to units.
    #[serde(default = "redirect")]
    pub redirect: Spanned<Redirect>,
    /// Socket of `crosslane-lab openflow`.
    pub openflow_socket: Option<Spanned<PathBuf>>,
    /// Where the controller writes what it observes and does.
    #[serde(default)]
    pub log: Log,
    /// The units.
    #[serde(default, rename = "unit")]
    pub units: Vec<Spanned<UnitConfig>>,
    /// The vehicles.
    #[serde(default, rename = "vehicle")]
    pub vehicles: Vec<Spanned<VehicleConfig>>,
}

/// How home addresses are led to units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Redirect {
    /// Routes of this host's kernel.
    #[default]
    Routes,
    /// A switch, by `crosslane-lab openflow`.
    OpenFlow,
}

/// A unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitConfig {
    /// Its name (1 to 15 bytes); at a vehicle that of its path and interface.
    pub name: String,
    /// Its C-ITS station id.
    pub station: u32,
    /// Its public key, that of its encrypted tunnel.
    pub key: Spanned<String>,
    /// Its address on the air.
    pub address: Ipv4Addr,
    /// UDP port of its encrypted tunnel.
    #[serde(default = "port", deserialize_with = "above_zero")]
    pub port: u16,
    /// Its prefix, whose first address is its own.
    pub prefix: Spanned<UnitPrefix>,
    /// Its address on the backhaul.
    pub next_hop: Ipv4Addr,
}

/// A prefix, as `10.81.0.0/24`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct UnitPrefix(Ipv4Net);

impl TryFrom<String> for UnitPrefix {
    type Error = String;

    fn try_from(text: String) -> Result<UnitPrefix, String> {
        let fault = |_| format!("{text:?} is no IPv4 prefix; write one as \"10.81.0.0/24\"");
        text.parse().map(UnitPrefix).map_err(fault)
    }
}

/// A vehicle.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VehicleConfig {
    /// Its name.
    pub name: String,
    /// Its C-ITS station id.
    pub station: u32,
    /// Its public key, that of its encrypted tunnels.
    pub key: Spanned<String>,
    /// Its host number in the prefix of every unit (2 or more).
    pub host: u32,
    /// Its home address.
    pub home: Ipv4Addr,
}

fn redirect() -> Spanned<Redirect> {
    Spanned::new(0..0, Redirect::default())
}

fn port() -> u16 {
    4760
}

fn with_port<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    let listen = SocketAddr::deserialize(from)?;
    let fault = || D::Error::custom(format!("{listen} is no port; give the one that units and vehicles know, as 4761"));
    (listen.port() > 0).then_some(listen).ok_or_else(fault)
}

fn above_zero<'de, D: Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    match u16::deserialize(from)? {
        0 => Err(D::Error::custom("0 is no port; give that of the unit's tunnel, as 4760")),
        port => Ok(port),
    }
}

impl Config {
    /// What the engine knows of it.
    pub fn directory(&self) -> Directory {
        let unit = |unit: &Spanned<UnitConfig>| {
            let unit = unit.get_ref();
            UnitSpec {
                station: unit.station,
                name: unit.name.clone(),
                address: unit.address,
                port: unit.port,
                key: public(&unit.key).map_or([0; 32], |key| *key.as_bytes()),
                prefix: (unit.prefix.get_ref().0.network(), unit.prefix.get_ref().0.prefix_len()),
                next_hop: unit.next_hop,
            }
        };
        let vehicle = |vehicle: &Spanned<VehicleConfig>| {
            let VehicleConfig { name, station, host, home, .. } = vehicle.get_ref().clone();
            VehicleSpec { station, name, host, home }
        };
        Directory {
            units: self.units.iter().map(unit).collect(),
            vehicles: self.vehicles.iter().map(vehicle).collect(),
        }
    }

    /// The peers by their public keys.
    pub fn keys(&self) -> BTreeMap<PublicKey, Peer> {
        let units = self.units.iter().map(|unit| (&unit.get_ref().key, Peer::Unit(unit.get_ref().station)));
        let vehicles = self.vehicles.iter().map(|of| (&of.get_ref().key, Peer::Vehicle(of.get_ref().station)));
        units.chain(vehicles).filter_map(|(key, peer)| Some((public(key).ok()?, peer))).collect()
    }
}

fn public(key: &Spanned<String>) -> Result<PublicKey, KeyFault> {
    key.get_ref().parse()
}

/// Reads and checks a configuration.
///
/// # Errors
/// One error message with file, line, and remedy.
pub fn read(file: &Path) -> Result<Config> {
    parse_file(&text_file::read_configuration(file)?, file)
}

/// The same from the text of the file.
///
/// # Errors
/// One error message with file, line, and remedy.
pub fn parse_file(text: &str, file: &Path) -> Result<Config> {
    let attempt = |line| format!("reading configuration {} line {line}", file.display());
    let config: Config = strict_toml::from_str(text).map_err(|error| {
        let TomlFault { line, what, remedy } = TomlFault::of(text, &error, "docs/reference/controller.md");
        Error::usage(attempt(line.unwrap_or(1)), what, remedy)
    })?;
    let checked = check(&config);
    checked.map_err(|(place, cause, remedy)| Error::usage(attempt(line_at(text, place)), cause, remedy))?;
    Ok(config)
}

/// Reads the controller's private key.
///
/// # Errors
/// One error message: the file, and why it holds no key.
pub fn private_key(config: &Config) -> Result<PrivateKey> {
    PrivateKey::read(&config.key)
}

fn check(config: &Config) -> Result<(), Complaint> {
    config.log.check()?;
    let place = config.redirect.span().start;
    match (config.redirect.get_ref(), &config.openflow_socket) {
        (Redirect::OpenFlow, None) => {
            let remedy = "give openflow_socket, as \"/run/crosslane/openflow.sock\"";
            return Err((place, "`redirect = \"openflow\"` without a socket".into(), remedy));
        }
        (Redirect::Routes, Some(socket)) => {
            let remedy = "leave it out, or set redirect = \"openflow\"";
            return Err((socket.span().start, "`openflow_socket`, which only OpenFlow uses".into(), remedy));
        }
        _ => {}
    }
    let max_vehicles = if *config.redirect.get_ref() == Redirect::OpenFlow { MAX_HOMES } else { MAX_VEHICLES };
    for (count, max, what) in
        [(config.units.len(), MAX_UNITS, "units"), (config.vehicles.len(), max_vehicles, "vehicles")]
    {
        if count > max {
            return Err((0, format!("{count} {what}"), "give at most 1000 units and 10,000 vehicles (OpenFlow: 4096)"));
        }
    }
    let mut taken = Taken::default();
    config.units.iter().try_for_each(|unit| taken.unit(unit))?;
    config.vehicles.iter().try_for_each(|vehicle| taken.vehicle(vehicle))
}

/// What is used once, by whom.
#[derive(Default)]
struct Taken {
    names: BTreeMap<String, ()>,
    stations: BTreeMap<u32, String>,
    keys: BTreeMap<PublicKey, String>,
    addresses: BTreeMap<(&'static str, Ipv4Addr), String>,
    hosts: BTreeMap<u32, String>,
    prefixes: Vec<(Ipv4Net, String)>,
}

const KEY_REMEDY: &str = "give it what `crosslane keygen --public FILE` prints for its key";

impl Taken {
    fn peer(&mut self, place: usize, name: &str, station: u32, key: &Spanned<String>) -> Result<(), Complaint> {
        if self.names.insert(name.into(), ()).is_some() {
            return Err((place, format!("the name {name:?} is given twice"), "give each unit and vehicle its own"));
        }
        if let Some(other) = self.stations.insert(station, name.into()) {
            let cause = format!("{other:?} and {name:?} have the station id {station}");
            return Err((place, cause, "give each unit and vehicle its own"));
        }
        let fault = |fault: KeyFault| (key.span().start, format!("the key of {name:?}: {fault}"), KEY_REMEDY);
        match self.keys.insert(public(key).map_err(fault)?, name.into()) {
            Some(other) => Err((key.span().start, format!("{other:?} and {name:?} have the same key"), KEY_REMEDY)),
            None => Ok(()),
        }
    }

    fn address(&mut self, place: usize, what: &'static str, address: Ipv4Addr, name: &str) -> Result<(), Complaint> {
        if address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast() {
            return Err((place, format!("the {what} of {name:?} is {address}, no host's"), "give another"));
        }
        match self.addresses.insert((what, address), name.into()) {
            Some(of) => Err((place, format!("{of:?} and {name:?} have the {what} {address}"), "give each its own")),
            None => Ok(()),
        }
    }

    fn unit(&mut self, unit: &Spanned<UnitConfig>) -> Result<(), Complaint> {
        let (place, unit) = (unit.span().start, unit.get_ref());
        let name = &unit.name;
        if let Err(cause) = check_name(name) {
            return Err((place, format!("the unit's name {name:?} is invalid: {cause}"), "choose another `name`"));
        }
        self.peer(place, name, unit.station, &unit.key)?;
        self.address(place, "address", unit.address, name)?;
        self.address(place, "next hop", unit.next_hop, name)?;
        let (at, prefix) = (unit.prefix.span().start, &unit.prefix.get_ref().0);
        if !(1..=30).contains(&prefix.prefix_len()) || prefix.addr() != prefix.network() {
            let cause = format!("the prefix of unit {name:?} is {prefix}");
            return Err((at, cause, "give a network address with 1 to 30 bits, as \"10.81.0.0/24\""));
        }
        let overlaps = |(other, _): &&(Ipv4Net, String)| other.contains(prefix) || prefix.contains(other);
        if let Some((other, of)) = self.prefixes.iter().find(overlaps) {
            let cause = format!("units {of:?} and {name:?} have prefixes that overlap: {other} and {prefix}");
            return Err((at, cause, "give each unit a separate prefix"));
        }
        if prefix.contains(&unit.address) || prefix.contains(&unit.next_hop) {
            let cause = format!("the prefix of unit {name:?} contains its address outside the tunnels");
            return Err((at, cause, "give the unit a prefix that nothing else uses"));
        }
        self.prefixes.push((*prefix, name.clone()));
        Ok(())
    }

    fn vehicle(&mut self, vehicle: &Spanned<VehicleConfig>) -> Result<(), Complaint> {
        let (place, vehicle) = (vehicle.span().start, vehicle.get_ref());
        let name = &vehicle.name;
        self.peer(place, name, vehicle.station, &vehicle.key)?;
        self.address(place, "home address", vehicle.home, name)?;
        // A route to it would lead packets to that unit elsewhere.
        if let Some(unit) =
            ["address", "next hop"].into_iter().find_map(|what| self.addresses.get(&(what, vehicle.home)))
        {
            let cause = format!("the home address of {name:?} is an address of unit {unit:?}");
            return Err((place, cause, "give a home address that nothing else has"));
        }
        if let Some(other) = self.hosts.insert(vehicle.host, name.clone()) {
            let cause = format!("vehicles {other:?} and {name:?} have the host number {}", vehicle.host);
            return Err((place, cause, "give each vehicle its own"));
        }
        for (prefix, unit) in &self.prefixes {
            if prefix.contains(&vehicle.home) {
                let cause = format!("the home address of {name:?} is in the prefix of unit {unit:?}, {prefix}");
                return Err((place, cause, "give a home address that no prefix contains"));
            }
            if inner((prefix.network(), prefix.prefix_len()), vehicle.host).is_none() {
                let cause = format!("{prefix} of unit {unit:?} has no host {} for {name:?}", vehicle.host);
                return Err((place, cause, "give a host number from 2 that every prefix has, or larger prefixes"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
listen = "127.0.0.1:4761"
key = "own.key"
[[unit]]
name = "rsu1"
station = 1001
key = "wZzyuoHAp9fWVjyaCgnQ2Tb0Tr9ne0ZcF1i5cW0h5kE="
address = "10.80.0.11"
prefix = "10.81.0.0/24"
next_hop = "192.0.2.1"
[[unit]]
name = "rsu2"
station = 1002
key = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
address = "10.80.0.12"
prefix = "10.82.0.0/24"
next_hop = "192.0.2.2"
[[vehicle]]
name = "car"
station = 7
key = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="
host = 7
home = "10.99.0.7"
"#;

    #[test]
    fn a_configuration_has_units_and_vehicles_each_with_a_key() {
        let config = parse_file(GOOD, Path::new("c.toml")).unwrap();
        assert_eq!(*config.redirect.get_ref(), Redirect::Routes);
        let peers: Vec<Peer> = config.keys().into_values().collect();
        assert_eq!(peers.len(), 3);
        assert_eq!(config.directory().units[1].port, 4760);
        assert_eq!(config.directory().vehicles[0].home, Ipv4Addr::new(10, 99, 0, 7));
    }

    #[test]
    fn a_fault_names_its_line_and_what_to_do() {
        let cases = [
            ("station = 1002", "station = 1001", 11, "\"rsu1\" and \"rsu2\" have the station id 1001"),
            ("station = 7", "station = 1001", 18, "\"rsu1\" and \"car\" have the station id"),
            ("name = \"rsu2\"", "name = \"rsu1\"", 11, "given twice"),
            ("name = \"rsu2\"", "name = \"roadside unit 2\"", 11, "is invalid"),
            ("prefix = \"10.82.0.0/24\"", "prefix = \"10.81.0.128/25\"", 16, "prefixes that overlap"),
            ("prefix = \"10.82.0.0/24\"", "prefix = \"10.82.0.1/24\"", 16, "is 10.82.0.1/24"),
            ("prefix = \"10.82.0.0/24\"", "prefix = \"10.80.0.0/24\"", 16, "outside the tunnels"),
            ("next_hop = \"192.0.2.2\"", "next_hop = \"192.0.2.1\"", 11, "the next hop 192.0.2.1"),
            ("address = \"10.80.0.12\"", "address = \"10.80.0.11\"", 11, "the address 10.80.0.11"),
            ("hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=", "hSDw", 14, "the key of \"rsu2\""),
            ("host = 7", "host = 1", 18, "has no host 1"),
            ("host = 7", "host = 255", 18, "has no host 255"),
            ("10.99.0.7", "10.82.0.9", 18, "is in the prefix of unit \"rsu2\""),
            ("10.99.0.7", "192.0.2.1", 18, "is an address of unit \"rsu1\""),
            ("10.99.0.7", "127.0.0.1", 18, "is 127.0.0.1, no host's"),
            ("host = 7", "hosts = 7", 22, "hosts"),
            ("key = \"own.key\"", "key = \"own.key\"\nredirect = \"openflow\"", 4, "without a socket"),
            ("key = \"own.key\"", "key = \"own.key\"\nopenflow_socket = \"a\"", 4, "only OpenFlow uses"),
            ("key = \"own.key\"", "key = \"own.key\"\nredirect = \"nat\"", 4, "nat"),
            ("listen = \"127.0.0.1:4761\"", "listen = \"4761\"", 2, "socket address"),
            ("listen = \"127.0.0.1:4761\"", "listen = \"127.0.0.1:0\"", 2, "127.0.0.1:0 is no port"),
            ("next_hop = \"192.0.2.2\"", "next_hop = \"192.0.2.2\"\nport = 0", 18, "0 is no port"),
            ("[[vehicle]]", "[log]\nevents_max_mb = 65536\n[[vehicle]]", 19, "events_max_mb is 65536"),
        ];
        for (good, bad, line, expected) in cases {
            let text = GOOD.replacen(good, bad, 1);
            let fault = parse_file(&text, Path::new("c.toml")).err().unwrap_or_else(|| panic!("{bad} was accepted"));
            let sentence = fault.to_string();
            let (cause, remedy) = sentence.rsplit_once("; ").unwrap();
            assert!(cause.contains(&format!("c.toml line {line}: ")) && cause.contains(expected), "{bad}: {sentence}");
            assert!(remedy.len() > 5 && !sentence.contains('\n'), "{bad}: {sentence}");
        }
    }
}
