//! A vehicle and a server in separate network namespaces, connected by emulated
//! links.
//!
//! ```text
//!  vehicle namespace                    server namespace
//!   its-g5 10.1.0.2 ── TUN ═ link ═ TUN ── its-g5
//!   lte    10.2.0.2 ── TUN ═ link ═ TUN ── lte       10.255.0.1 on lo
//! ```
//!
//! A path can be a [`wire`] instead, which the kernel shapes.
//!
//! Packets are sent over the interface that has their source address; packets
//! without one over the path with the lowest metric.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
pub use crate::netlink::{Route, Wiring};
use crate::tun::Tun;

pub mod emulator;
mod netns;
pub mod packet;
mod privileges;
pub mod realtime;
pub mod wire;

pub use crosslane_sim::addresses::{SERVER, vehicle_address};
pub use netns::Namespace;
pub use privileges::{contain, end_with, prepare_privileges};
use wire::{Wire, WirePlan};

/// MTU of every emulated link, in bytes of IP.
pub const MTU: u32 = 1500;

/// Queue length of a TUN device, in packets: 10 ms at 400,000 packets a second.
pub const DEVICE_QUEUE_PACKETS: u32 = 4096;

/// Maximum number of paths of a testbed.
pub const MAX_PATHS: usize = 16;

/// First of the vehicle's routing tables; each path has one.
const FIRST_TABLE: u32 = 100;

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
    /// The vehicle's interface.
    pub vehicle: Tun,
    /// The server's interface.
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
    paths: Vec<PathPlan>,
}

impl Testbed {
    /// Creates the namespaces, interfaces, addresses, routes and rules.
    ///
    /// # Errors
    /// The cause; everything created before is removed.
    pub fn new(paths: &[PathPlan]) -> Result<Testbed> {
        Testbed::with_wires(paths, &BTreeMap::new(), MTU)
    }

    /// As [`new`](Testbed::new), with some paths (by name) as wires and another MTU.
    ///
    /// # Errors
    /// The cause; everything created before is removed.
    pub fn with_wires(paths: &[PathPlan], wires: &BTreeMap<String, WirePlan>, mtu: u32) -> Result<Testbed> {
        check(paths)?;
        let (vehicle, server) = (Namespace::new()?, Namespace::new()?);
        let quieten = || quieten(&mut Wiring::open()?);
        vehicle.enter(quieten)??;
        server.enter(quieten)??;
        let created = paths.iter().enumerate().filter_map(|(place, path)| {
            let plan = *wires.get(&path.name)?;
            Some(Wire::new(&path.name, plan, mtu, [&vehicle, &server], [vehicle_address(place), SERVER]))
        });
        let created = created.collect::<Result<Vec<_>>>()?;
        let emulated = |path: &&PathPlan| !wires.contains_key(&path.name);
        let emulated: Vec<&PathPlan> = paths.iter().filter(emulated).collect();
        let vehicle_devices = vehicle.enter(|| wire_vehicle(paths, &emulated, mtu))??;
        let server_devices = server.enter(|| wire_server(paths, &emulated, mtu))??;
        let devices = vehicle_devices
            .into_iter()
            .zip(server_devices)
            .map(|(vehicle, server)| PathDevices { name: vehicle.name().to_owned(), vehicle, server })
            .collect();
        Ok(Testbed { vehicle, server, devices, wires: created, paths: paths.to_vec() })
    }

    /// Removes and returns the devices, for an emulator.
    pub fn take_devices(&mut self) -> Vec<PathDevices> {
        std::mem::take(&mut self.devices)
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
            if up { add_routes(&mut wiring, place, path) } else { Ok(()) }
        };
        self.vehicle.enter(set)?
    }

    /// Packets that the devices of a path dropped before the emulator could read
    /// them: up, down. The devices must still exist.
    ///
    /// # Errors
    /// The path does not exist.
    pub fn device_drops(&self, path: &str) -> Result<[u64; 2]> {
        let count = || Wiring::open()?.dropped(path);
        Ok([self.vehicle.enter(count)??, self.server.enter(count)??])
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

/// Disables IPv6 and reverse-path filters, so that only our packets pass, over
/// any interface; brings loopback up.
fn quieten(wiring: &mut Wiring) -> Result<()> {
    for conf in ["all", "default"] {
        // The file is missing in a kernel without IPv6.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{conf}/disable_ipv6"), "1");
        let filter = format!("/proc/sys/net/ipv4/conf/{conf}/rp_filter");
        std::fs::write(&filter, "0").map_err(|cause| Error::failure(format!("writing {filter}"), cause))?;
    }
    wiring.bring_up("lo", 65536, 1000)
}

/// The TUN devices of the emulated paths.
fn open_devices(wiring: &mut Wiring, paths: &[&PathPlan], mtu: u32) -> Result<Vec<Tun>> {
    let mut devices = Vec::with_capacity(paths.len());
    for path in paths {
        let tun = Tun::open(&path.name)?;
        wiring.bring_up(&path.name, mtu, DEVICE_QUEUE_PACKETS)?;
        devices.push(tun);
    }
    Ok(devices)
}

fn wire_vehicle(paths: &[PathPlan], emulated: &[&PathPlan], mtu: u32) -> Result<Vec<Tun>> {
    let mut wiring = Wiring::open()?;
    let devices = open_devices(&mut wiring, emulated, mtu)?;
    for (place, path) in paths.iter().enumerate() {
        let interface = wiring.index(&path.name)?;
        let address = vehicle_address(place);
        wiring.add_address(interface, address, 32)?;
        add_routes(&mut wiring, place, path)?;
        wiring.add_rule(address, table_of(place))?;
    }
    Ok(devices)
}

/// The routes over a path: one in the main table, and one in its own table for
/// packets with its source address.
fn add_routes(wiring: &mut Wiring, place: usize, path: &PathPlan) -> Result<()> {
    let (interface, source) = (wiring.index(&path.name)?, Some(vehicle_address(place)));
    let route = Route { to: None, interface, source, table: None, metric: path.metric };
    wiring.add_route(route)?;
    wiring.add_route(Route { table: Some(table_of(place)), metric: 0, ..route })
}

fn table_of(place: usize) -> u32 {
    FIRST_TABLE + place as u32
}

fn wire_server(paths: &[PathPlan], emulated: &[&PathPlan], mtu: u32) -> Result<Vec<Tun>> {
    let mut wiring = Wiring::open()?;
    let devices = open_devices(&mut wiring, emulated, mtu)?;
    let loopback = wiring.index("lo")?;
    wiring.add_address(loopback, SERVER, 32)?;
    for (place, path) in paths.iter().enumerate() {
        let interface = wiring.index(&path.name)?;
        let to = Some(vehicle_address(place));
        wiring.add_route(Route { to, interface, source: Some(SERVER), table: None, metric: 0 })?;
    }
    Ok(devices)
}
