//! The tunnel to one roadside unit: its interface, address, routes and rule.
//!
//! Everything here is recognised by a mark or by the routing table, so that an agent
//! removes what a killed one left.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::thread::{self, JoinHandle};

use crosslane_core::path::{PathId, PathState};
use crosslane_core::tunnel::PathStats;
use crosslane_core::tunnel::wire::overhead::VXLAN_BYTES;
use crosslane_core::wanted::Order;
use ipnet::Ipv4Net;

use super::config::roadside::{RoadsideConfig, TunnelKind, UnitConfig};
use super::home_address::Way;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::netlink::links::{self, Notice};
use crate::netlink::{Route, Wiring};
use crate::testbed::Namespace;
use crate::tun;
use crate::tunnel::data_plane::DataPlane;
use crate::tunnel::endpoint::Change;

/// `ifalias` of our interfaces.
pub const MARK: &str = "crosslane roadside unit";
/// Our routing tables, one for each path of an agent.
const TABLES: RangeInclusive<u32> = 0x4352_5300..=0x4352_530f;
/// Metric of the first path's default route in the main table: any other route precedes it.
pub const FIRST_METRIC: u32 = 1000;
/// Header overhead of GRE: IPv4 and GRE headers, in bytes.
const GRE_BYTES: u32 = 20 + 4;
/// Queue length of the interface, in packets; the kernel's default for Ethernet.
pub const QUEUE_PACKETS: u32 = 1000;

/// The radio over which the tunnels are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Radio {
    /// Index of its interface.
    pub if_index: u32,
    /// Our address on it.
    pub address: Ipv4Addr,
}

/// The routing table of the tunnel that is this path.
pub fn table_of(path: PathId) -> u32 {
    TABLES.start() + u32::from(path.0)
}

/// The radio if it is up and has an IPv4 address, its first one, and the names of all interfaces.
/// Without tunnels no radio is needed.
pub fn find_radio(roadside: &RoadsideConfig) -> (Option<Radio>, Vec<String>) {
    let (found, names) = find_address(&roadside.interface);
    let none = Radio { if_index: 0, address: Ipv4Addr::UNSPECIFIED };
    (if roadside.tunnel == TunnelKind::None { Some(none) } else { found }, names)
}

/// An interface that is up, and its first IPv4 address; and the names of all interfaces.
pub fn find_address(interface: &str) -> (Option<Radio>, Vec<String>) {
    let (mut names, mut if_index, mut found) = (Vec::new(), None, None);
    for notice in links::snapshot().unwrap_or_default() {
        match notice {
            Notice::Link(link) => {
                if link.name == interface && link.up {
                    if_index = Some(link.if_index);
                }
                names.push(link.name);
            }
            Notice::Address(event) => {
                if let (IpAddr::V4(address), true) = (event.address, Some(event.if_index) == if_index && event.usable) {
                    found = found.or(Some(Radio { if_index: event.if_index, address }));
                }
            }
        }
    }
    (found, names)
}

/// A tunnel that exists.
pub struct UnitTunnel {
    name: String,
    table: u32,
    /// The engine of an encrypted tunnel.
    data_plane: Option<DataPlane>,
    /// Our address on an interface that the system has.
    existing: Option<Ipv4Net>,
    /// Index of the interface, and our address there.
    inside: Option<(u32, Ipv4Net)>,
}

/// A tunnel whose interface is being removed.
pub struct Closing {
    name: String,
    thread: Option<JoinHandle<()>>,
}

impl Closing {
    /// Whether the interface has this name.
    pub fn is_of(&self, name: &str) -> bool {
        self.name == name
    }

    /// Whether the interface is gone.
    pub fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the interface is gone.
    pub fn wait(self) {
        // A thread that panicked leaves the interface to the next start.
        drop(self.thread.map(JoinHandle::join));
    }
}

/// Whether this kernel has this kind of tunnel, tried in a network namespace that is removed again.
///
/// # Errors
/// What is missing, or that this user may not try.
pub fn probe(kind: TunnelKind) -> Result<()> {
    let (name, ends, over) = ("probe", (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)), 1);
    match kind {
        TunnelKind::Vxlan => Namespace::new()?.enter(|| Wiring::open()?.add_vxlan(name, 1, ends, Some(over)))?,
        TunnelKind::Gre => Namespace::new()?.enter(|| Wiring::open()?.add_gre(name, ends, over))?,
        TunnelKind::Crosslane => tun::open_device().map(drop),
        TunnelKind::None => Ok(()),
    }
}

/// Removes what an agent left that was killed; returns the names of the interfaces.
///
/// # Errors
/// The kernel rejects it.
pub fn remove_former() -> Result<Vec<String>> {
    let mut wiring = Wiring::open()?;
    wiring.remove_rules(TABLES)?;
    wiring.remove_marked(MARK)
}

impl UnitTunnel {
    /// Creates the tunnel of a unit, which is this path, over the radio.
    ///
    /// # Errors
    /// One sentence; nothing of the tunnel is left.
    pub fn open(
        roadside: &RoadsideConfig,
        unit: &UnitConfig,
        path: PathId,
        radio: Radio,
        clock: Clock,
    ) -> Result<UnitTunnel> {
        let mut wiring = Wiring::open()?;
        let is_existing = roadside.tunnel == TunnelKind::None;
        let mtu = wiring.mtu(if is_existing { &unit.name } else { &roadside.interface })?;
        let (name, ends) = (&unit.name, (radio.address, unit.address));
        let (overhead, data_plane) = match roadside.tunnel {
            TunnelKind::Vxlan => {
                wiring.add_vxlan(name, unit.network(), ends, Some(radio.if_index))?;
                unit.net().map_or(Ok(()), |net| settle(&mut wiring, name, net.addr()))?;
                (VXLAN_BYTES, None)
            }
            TunnelKind::Gre => {
                wiring.add_gre(name, ends, radio.if_index)?;
                (GRE_BYTES, None)
            }
            TunnelKind::Crosslane => (0, Some(start(roadside, unit, mtu, radio, clock)?)),
            TunnelKind::None => (0, None),
        };
        let existing = unit.net().filter(|_| is_existing);
        let table = table_of(path);
        let mut tunnel = UnitTunnel { name: name.clone(), table, data_plane, existing, inside: None };
        let kernel_mtu = tunnel.data_plane.is_none().then(|| mtu.saturating_sub(overhead));
        match tunnel.join(&mut wiring, unit, kernel_mtu) {
            Ok(inside) => {
                tunnel.inside = Some(inside);
                Ok(tunnel)
            }
            Err(fault) => {
                tunnel.close().wait();
                Err(fault)
            }
        }
    }

    /// Address, routes and rule; `mtu` is that of an interface of the kernel, which is not up yet. Returns the
    /// interface's index, and our address there.
    fn join(&self, wiring: &mut Wiring, unit: &UnitConfig, mtu: Option<u32>) -> Result<(u32, Ipv4Net)> {
        let attempt = || format!("connecting to the unit {}", self.name);
        let net = unit.net().ok_or_else(|| Error::failure(attempt(), "its inner address is not IPv4"))?;
        let interface = wiring.index(&self.name)?;
        if self.existing.is_none() {
            wiring.mark(&self.name, MARK)?;
        } else {
            // A killed agent may have left it.
            drop(wiring.remove_address(interface, net.addr().into(), net.prefix_len()));
        }
        if let Some(mtu) = mtu {
            wiring.bring_up(&self.name, mtu, QUEUE_PACKETS)?;
            wiring.add_address(interface, net.addr(), net.prefix_len())?;
        }
        for route in self.routes(interface, net) {
            wiring.add_route(route)?;
        }
        wiring.remove_rules(self.table..=self.table)?;
        wiring.add_rule(net.addr().into(), self.table)?;
        Ok((interface, net))
    }

    /// The default routes over it, in the main table and in its own.
    fn routes(&self, interface: u32, net: Ipv4Net) -> [Route; 2] {
        let (via, source) = (net.hosts().next().map(IpAddr::from), Some(net.addr().into()));
        let metric = FIRST_METRIC + self.table - TABLES.start();
        let route = Route { to: None, interface, via, source, table: None, metric };
        [route, Route { table: Some(self.table), metric: 0, ..route }]
    }

    /// Sets the routes again that the kernel removed when the interface went down; those that are there stay.
    pub fn restore_routes(&self) {
        let Some((interface, net)) = self.inside else { return };
        let Ok(mut wiring) = Wiring::open() else { return };
        self.routes(interface, net).into_iter().for_each(|route| drop(wiring.add_route(route)));
    }

    /// The tunnel, which is this path, for packets from the vehicle's home address.
    pub fn way(&self, path: PathId) -> Option<Way> {
        self.inside.map(|(interface, net)| Way { path, interface, net })
    }

    /// Removes the tunnel, with all that belongs to it. The kernel takes tens of milliseconds to
    /// remove an interface, so a thread waits for it.
    pub fn close(self) -> Closing {
        // What cannot be removed now, as what another program removed, is removed at the next start.
        drop(Wiring::open().and_then(|mut wiring| {
            wiring.remove_rules(self.table..=self.table)?;
            // The next unit of the slot has routes of the same metric, and does not wait for the interface to go.
            let routes = self.inside.map(|(interface, net)| self.routes(interface, net));
            routes.into_iter().flatten().for_each(|route| drop(wiring.remove_route(route)));
            let Some(net) = self.existing else { return Ok(()) };
            let interface = wiring.index(&self.name)?;
            wiring.remove_address(interface, net.addr().into(), net.prefix_len())?;
            wiring.set_up(&self.name, false)
        }));
        let name = self.name.clone();
        let remove = move || match self.data_plane {
            Some(data_plane) => data_plane.finish(),
            None if self.existing.is_some() => {}
            None => drop(Wiring::open().and_then(|mut wiring| {
                let interface = wiring.index(&self.name)?;
                wiring.remove_interface(interface)
            })),
        };
        Closing { name, thread: thread::Builder::new().name("tunnel-close".into()).spawn(remove).ok() }
    }

    /// Whether it works; `present` are the names of all interfaces.
    pub fn fault(&mut self, present: &[String]) -> Option<Error> {
        if !present.contains(&self.name) {
            let attempt = format!("carrying packets through the tunnel {}", self.name);
            return Some(Error::failure(attempt, "another program removed its interface"));
        }
        self.data_plane.as_mut().and_then(DataPlane::fault)
    }

    /// Status of an encrypted tunnel's path.
    pub fn stats(&self) -> Option<PathStats> {
        let peers = self.data_plane.as_ref()?.status().peers;
        Some(peers.into_iter().next()?.paths.into_iter().next()?.1)
    }

    /// Errors and changes of liveness since the last call, of an encrypted tunnel to a unit.
    pub fn news(&self, path: PathId) -> (Vec<Error>, Vec<Change>) {
        let Some(data_plane) = &self.data_plane else { return Default::default() };
        let change = |change: Change| Change { peer: self.name.clone(), path, ..change };
        (data_plane.faults.try_iter().collect(), data_plane.changes.try_iter().map(change).collect())
    }
}

/// Gives the end of a VXLAN an Ethernet address that follows from its inner address: neighbours keep the right
/// one when the interface is created again. ARP requests have the inner address as the sender's, also when a
/// packet from the home address waits: the unit learns the neighbour to which it routes.
///
/// # Errors
/// The kernel rejects the address.
pub fn settle(wiring: &mut Wiring, interface: &str, inner: Ipv4Addr) -> Result<()> {
    let [a, b, c, d] = inner.octets();
    wiring.set_ethernet_address(interface, [0x02, 0x43, a, b, c, d])?;
    // Without the right to write sysctls, only packets from the home address that come first are late.
    drop(std::fs::write(format!("/proc/sys/net/ipv4/conf/{interface}/arp_announce"), "2"));
    Ok(())
}

/// An encrypted tunnel, whose single path is the radio.
fn start(roadside: &RoadsideConfig, unit: &UnitConfig, mtu: u32, radio: Radio, clock: Clock) -> Result<DataPlane> {
    let data_plane = DataPlane::start(&roadside.encrypted(unit, mtu), vec![0], Vec::new(), clock)?;
    match data_plane.set_path(PathId(0), Some(radio.address.into()), &roadside.interface) {
        Ok(()) => data_plane.set_wanted(&[PathState::Active], &Order::Preference),
        Err(fault) => {
            data_plane.finish();
            return Err(fault);
        }
    }
    Ok(data_plane)
}
