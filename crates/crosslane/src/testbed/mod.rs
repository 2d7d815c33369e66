//! A vehicle and a server in separate network namespaces, connected by emulated
//! links.
//!
//! ```text
//!  vehicle namespace                    server namespace
//!   its-g5 10.1.0.2 ── TUN ═ link ═ TUN ── its-g5
//!   lte    10.2.0.2 ── TUN ═ link ═ TUN ── lte       10.255.0.1 on lo
//! ```
//!
//! A path can be a [`wire`] instead, which the kernel shapes. The path of a [roadside
//! unit](roadside) ends in the unit's namespace, and the server is behind a gateway.
//!
//! Packets are sent over the interface that has their source address; packets
//! without one over the path with the lowest metric. With IPv6 the addresses are
//! `fd00:1::2`, `fd00:2::2` and `fd00:ff::1`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use nix::unistd::getegid;

use crate::error::{Error, Result};
pub use crate::netlink::{Route, Wiring};
use crate::tun::Tun;

pub mod emulator;
mod netns;
pub mod packet;
mod privileges;
pub mod realtime;
mod roadside;
pub mod wire;

pub use crosslane_sim::addresses::{IpVersion, SERVER, vehicle_address};
pub use netns::Namespace;
pub use privileges::{contain, end_with, prepare_privileges};
use roadside::{RADIO_PREFIX, Roadside, TO_GATEWAY};
pub use roadside::{radio_address, unit_address};
use wire::{Wire, WirePlan};

/// MTU of every emulated link, in bytes of IP.
pub const MTU: u32 = 1500;

/// Queue length of a TUN device, in packets: 10 ms at 400,000 packets a second.
pub const DEVICE_QUEUE_PACKETS: u32 = 4096;

/// Maximum number of paths of a testbed: each has a separate routing table and two devices.
pub const MAX_PATHS: usize = 64;

/// First of the vehicle's routing tables; each path has one.
const FIRST_TABLE: u32 = 100;

/// What the paths of a testbed consist of, other than emulated links to the server.
#[derive(Clone, Debug, PartialEq)]
pub struct TestbedPlan {
    /// Paths that are wires, by name.
    pub wires: BTreeMap<String, WirePlan>,
    /// Names of the paths that end at roadside units, with a separate interface at the vehicle.
    pub units: BTreeSet<String>,
    /// Names of those that an agent brings up: at the vehicle they have no address and no
    /// route.
    pub down: BTreeSet<String>,
    /// Further units, over one interface of the vehicle.
    pub radio: Option<RadioPlan>,
    /// MTU of every link, in bytes of IP.
    pub mtu: u32,
    /// IP version of the paths; 4 with roadside units.
    pub ip: IpVersion,
}

impl TestbedPlan {
    fn is_over_radio(&self, name: &str) -> bool {
        self.radio.as_ref().is_some_and(|radio| radio.units.contains(name))
    }

    fn is_unit(&self, name: &str) -> bool {
        self.units.contains(name) || self.is_over_radio(name)
    }

    fn is_emulated(&self, path: &PathPlan) -> bool {
        !self.wires.contains_key(&path.name)
    }
}

impl Default for TestbedPlan {
    fn default() -> TestbedPlan {
        let (units, down) = (BTreeSet::new(), BTreeSet::new());
        TestbedPlan { wires: BTreeMap::new(), units, down, radio: None, mtu: MTU, ip: IpVersion::V4 }
    }
}

/// Roadside units over one interface of the vehicle. Their paths stand when tunnels to the units do:
/// see [`radio_address`] and [`unit_address`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RadioPlan {
    /// Name of the interface, at the vehicle and at each unit.
    pub interface: String,
    /// Names of the paths to the units.
    pub units: BTreeSet<String>,
}

/// One path from the vehicle to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPlan {
    /// Name of the path and of its interface on both sides (1 to 15 bytes).
    pub name: String,
    /// Metric of its default route in the main table: the lowest carries packets
    /// without a source address.
    pub metric: u32,
}

/// The two devices of one path. They are removed on drop.
#[derive(Debug)]
pub struct PathDevices {
    /// Name of the path.
    pub name: String,
    /// The vehicle's interface, which the paths over one radio share.
    pub vehicle: Arc<Tun>,
    /// Of a path over a shared interface: destination of the packets that take it.
    pub address: Option<Ipv4Addr>,
    /// The interface of the server, or of the roadside unit.
    pub server: Tun,
}

/// Both namespaces, the wires, and the devices of the other paths until an
/// emulator takes them.
#[derive(Debug)]
pub struct Testbed {
    /// Namespace of the vehicle's programs.
    pub vehicle: Namespace,
    /// Namespace of the server's programs.
    pub server: Namespace,
    /// The devices of the emulated paths, in the order of the plan.
    pub devices: Vec<PathDevices>,
    /// The wires, in the order of the plan.
    pub wires: Vec<Wire>,
    roadside: Option<Roadside>,
    radio: Option<RadioPlan>,
    paths: Vec<PathPlan>,
    ip: IpVersion,
}

impl Testbed {
    /// Creates the namespaces, interfaces, addresses, routes and rules.
    ///
    /// # Errors
    /// The cause; everything created before is removed.
    pub fn new(paths: &[PathPlan]) -> Result<Testbed> {
        Testbed::with(paths, &TestbedPlan::default())
    }

    /// As [`new`](Testbed::new), with wires, roadside units or another MTU.
    ///
    /// # Errors
    /// The cause; everything created before is removed.
    pub fn with(paths: &[PathPlan], plan: &TestbedPlan) -> Result<Testbed> {
        check(paths)?;
        let (vehicle, server) = (Namespace::new()?, Namespace::new()?);
        let quieten = || quieten(&mut Wiring::open()?, plan.ip);
        vehicle.enter(quieten)??;
        // An agent there probes roadside units.
        vehicle.set_sysctl("net/ipv4/ping_group_range", &format!("{0} {0}", getegid()))?;
        server.enter(quieten)??;
        let wires = paths.iter().enumerate().filter_map(|(place, path)| {
            let wire = *plan.wires.get(&path.name)?;
            Some(Wire::new(&path.name, wire, plan.mtu, [&vehicle, &server], plan.ip, place))
        });
        let wires = wires.collect::<Result<_>>()?;
        let has_units = paths.iter().any(|path| plan.is_unit(&path.name));
        let roadside = if has_units { Some(Roadside::new(&server, plan.mtu)?) } else { None };
        let (devices, radio, paths) = (Vec::new(), plan.radio.clone(), paths.to_vec());
        let mut testbed = Testbed { vehicle, server, devices, wires, roadside, radio, paths, ip: plan.ip };
        testbed.add_devices(plan)?;
        Ok(testbed)
    }

    /// Adds the devices of the emulated paths.
    fn add_devices(&mut self, plan: &TestbedPlan) -> Result<()> {
        let near = self.vehicle.enter(|| wire_vehicle(&self.paths, plan))??;
        let mut far = self.server.enter(|| wire_server(&self.paths, plan))??;
        let radio = plan.radio.as_ref().map(|radio| radio.interface.as_str());
        let shared = radio.map(|radio| self.vehicle.enter(|| open_radio(radio, plan.mtu))?).transpose()?.map(Arc::new);
        if let Some(roadside) = &mut self.roadside {
            for (place, path) in self.paths.iter().enumerate().filter(|(_, path)| plan.is_unit(&path.name)) {
                let over = radio.filter(|_| plan.is_over_radio(&path.name));
                let server = roadside.add(&path.name, over, place, plan.mtu)?;
                match &shared {
                    Some(vehicle) if over.is_some() => {
                        let (name, vehicle, address) = (path.name.clone(), vehicle.clone(), Some(unit_address(place)));
                        self.devices.push(PathDevices { name, vehicle, address, server });
                    }
                    _ => far.push(server),
                }
            }
        }
        for vehicle in near {
            let name = vehicle.name().to_owned();
            if let Some(place) = far.iter().position(|device| device.name() == name) {
                let (vehicle, server) = (Arc::new(vehicle), far.swap_remove(place));
                self.devices.push(PathDevices { name, vehicle, address: None, server });
            }
        }
        Ok(())
    }

    /// Removes and returns the devices, for an emulator.
    pub fn take_devices(&mut self) -> Vec<PathDevices> {
        std::mem::take(&mut self.devices)
    }

    /// The namespace of the roadside unit of a path.
    pub fn unit(&self, path: &str) -> Option<&Namespace> {
        self.roadside.as_ref()?.unit(path)
    }

    /// The namespace of the gateway between roadside units and the server.
    pub fn gateway(&self) -> Option<&Namespace> {
        self.roadside.as_ref().map(Roadside::gateway)
    }

    /// Sets the vehicle's interface of a path, by its index in the plan, up or
    /// down, as a user would.
    ///
    /// # Errors
    /// The path does not exist, or the kernel rejects the change.
    pub fn set_up(&self, place: usize, up: bool) -> Result<()> {
        let Some(path) = self.paths.get(place) else {
            return Err(Error::failure("setting an interface up or down", format!("there is no path {place}")));
        };
        let set = || {
            let mut wiring = Wiring::open()?;
            wiring.set_up(&path.name, up)?;
            if up { add_routes(&mut wiring, self.ip, place, path) } else { Ok(()) }
        };
        self.vehicle.enter(set)?
    }

    /// Packets that the devices of a path dropped before the emulator could read
    /// them: up, down. The devices must still exist. Those of a shared interface count for its
    /// first path.
    ///
    /// # Errors
    /// The path does not exist.
    pub fn device_drops(&self, path: &str) -> Result<[u64; 2]> {
        let radio = self.radio.as_ref().filter(|radio| radio.units.contains(path));
        let interface = radio.map_or(path, |radio| &radio.interface);
        let count = || Wiring::open()?.dropped(interface);
        let mut paths = self.paths.iter().map(|other| &other.name);
        let first = radio.and_then(|radio| paths.find(|name| radio.units.contains(*name)));
        let up = if first.is_none_or(|first| first == path) { self.vehicle.enter(count)?? } else { 0 };
        Ok([up, self.unit(path).unwrap_or(&self.server).enter(count)??])
    }
}

fn check(paths: &[PathPlan]) -> Result<()> {
    let attempt = "planning the testbed's paths";
    if paths.is_empty() || paths.len() > MAX_PATHS {
        let cause = format!("there are {} paths", paths.len());
        return Err(Error::usage(attempt, cause, format!("give 1 to {MAX_PATHS}")));
    }
    for (place, path) in paths.iter().enumerate() {
        if paths[..place].iter().any(|other| other.name == path.name) {
            return Err(Error::usage(attempt, format!("two paths are named {:?}", path.name), "rename one"));
        }
    }
    Ok(())
}

/// Disables IPv6, or what it sends by itself, and reverse-path filters, so that only our packets
/// pass, over any interface; brings loopback up.
fn quieten(wiring: &mut Wiring, ip: IpVersion) -> Result<()> {
    for conf in ["all", "default"] {
        let of_v6 =
            |setting: &str, value: &str| std::fs::write(format!("/proc/sys/net/ipv6/conf/{conf}/{setting}"), value);
        match ip {
            // The file is missing in a kernel without IPv6.
            IpVersion::V4 => drop(of_v6("disable_ipv6", "1")),
            IpVersion::V6 => {
                let set = of_v6("disable_ipv6", "0");
                // No link-local addresses, thus no solicitations from them.
                let set = set.and_then(|()| of_v6("addr_gen_mode", "1"));
                set.map_err(|cause| Error::failure("enabling IPv6 (the kernel needs CONFIG_IPV6)", cause))?;
            }
        }
        let filter = format!("/proc/sys/net/ipv4/conf/{conf}/rp_filter");
        std::fs::write(&filter, "0").map_err(|cause| Error::failure(format!("writing {filter}"), cause))?;
    }
    wiring.bring_up("lo", 65536, 1000)
}

/// The TUN devices of the emulated paths, up if the plan does not leave that to an agent.
fn open_devices<'a>(
    wiring: &mut Wiring,
    paths: impl Iterator<Item = &'a PathPlan>,
    plan: &TestbedPlan,
) -> Result<Vec<Tun>> {
    let mut devices = Vec::new();
    for path in paths {
        let tun = Tun::open(&path.name)?;
        if !plan.down.contains(&path.name) {
            wiring.bring_up(&path.name, plan.mtu, DEVICE_QUEUE_PACKETS)?;
        }
        devices.push(tun);
    }
    Ok(devices)
}

/// The vehicle's interface to all units of a radio.
fn open_radio(interface: &str, mtu: u32) -> Result<Tun> {
    let (tun, mut wiring) = (Tun::open(interface)?, Wiring::open()?);
    wiring.bring_up(interface, mtu, DEVICE_QUEUE_PACKETS)?;
    let interface = wiring.index(interface)?;
    wiring.add_address(interface, radio_address(), RADIO_PREFIX)?;
    Ok(tun)
}

fn wire_vehicle(paths: &[PathPlan], plan: &TestbedPlan) -> Result<Vec<Tun>> {
    let mut wiring = Wiring::open()?;
    let separate = |path: &PathPlan| !plan.is_over_radio(&path.name);
    let emulated = paths.iter().filter(|path| plan.is_emulated(path) && separate(path));
    let devices = open_devices(&mut wiring, emulated, plan)?;
    let stands = |path: &PathPlan| separate(path) && !plan.down.contains(&path.name);
    for (place, path) in paths.iter().enumerate().filter(|(_, path)| stands(path)) {
        let interface = wiring.index(&path.name)?;
        let address = plan.ip.vehicle(place);
        wiring.add_address(interface, address, plan.ip.bits())?;
        add_routes(&mut wiring, plan.ip, place, path)?;
        wiring.add_rule(address, table_of(place))?;
    }
    Ok(devices)
}

/// The routes over a path: one in the main table, and one in its own table for
/// packets with its source address.
fn add_routes(wiring: &mut Wiring, ip: IpVersion, place: usize, path: &PathPlan) -> Result<()> {
    let (interface, source) = (wiring.index(&path.name)?, Some(ip.vehicle(place)));
    let route = Route { to: None, interface, via: None, source, table: None, metric: path.metric };
    wiring.add_route(route)?;
    wiring.add_route(Route { table: Some(table_of(place)), metric: 0, ..route })
}

fn table_of(place: usize) -> u32 {
    FIRST_TABLE + place as u32
}

fn wire_server(paths: &[PathPlan], plan: &TestbedPlan) -> Result<Vec<Tun>> {
    let mut wiring = Wiring::open()?;
    let is_direct = |path: &&PathPlan| plan.is_emulated(path) && !plan.is_unit(&path.name);
    let devices = open_devices(&mut wiring, paths.iter().filter(is_direct), plan)?;
    let loopback = wiring.index("lo")?;
    wiring.add_address(loopback, plan.ip.server(), plan.ip.bits())?;
    for (place, path) in paths.iter().enumerate() {
        let over = if plan.is_unit(&path.name) { TO_GATEWAY } else { &path.name };
        let (interface, to) = (wiring.index(over)?, Some(plan.ip.vehicle(place)));
        wiring.add_route(Route { to, interface, via: None, source: Some(plan.ip.server()), table: None, metric: 0 })?;
    }
    Ok(devices)
}
