//! Roadside units, each in a separate namespace, and the gateway between them and
//! the server.
//!
//! ```text
//!  vehicle                 rsu1                       gateway                    server
//!   rsu1 ── TUN ═ link ═ TUN ── rsu1  to-gateway ── veth ── rsu1  to-server ── veth ── to-gateway
//!   rsu2 ── TUN ═ link ═ TUN ── rsu2  to-gateway ── veth ── rsu2
//! ```
//!
//! Units and gateway forward packets. The downlink to an address of the vehicle goes over
//! the unit that the address belongs to.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::wire::{Links, QUEUE_PACKETS};
use super::{DEVICE_QUEUE_PACKETS, IpVersion, Namespace, Route, SERVER, Wiring, quieten, vehicle_address};
use crate::error::Result;
use crate::tun::Tun;

/// Interface of a unit to the gateway, and of the server to it.
pub(super) const TO_GATEWAY: &str = "to-gateway";
/// Interface of the gateway to the server.
const TO_SERVER: &str = "to-server";

/// Prefix length of the addresses on the air of a radio that all units share.
pub(super) const RADIO_PREFIX: u8 = 16;

/// The vehicle's address on the air of a radio that all units share.
pub fn radio_address() -> Ipv4Addr {
    Ipv4Addr::new(10, 254, 0, 1)
}

/// Address on the air of the unit of the path with this index.
pub fn unit_address(place: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 254, 1, 1 + place as u8)
}

/// The namespaces of the units and of the gateway. They are removed on drop.
#[derive(Debug)]
pub struct Roadside {
    gateway: Namespace,
    units: BTreeMap<String, Namespace>,
}

impl Roadside {
    /// Creates the gateway beside the server.
    ///
    /// # Errors
    /// What the kernel rejected; everything created before is removed.
    pub fn new(server: &Namespace, mtu: u32) -> Result<Roadside> {
        let gateway = router()?;
        join((&gateway, TO_SERVER), (server, TO_GATEWAY), mtu)?;
        let to_server = || {
            let mut wiring = Wiring::open()?;
            route(&mut wiring, SERVER, TO_SERVER)
        };
        gateway.enter(to_server)??;
        Ok(Roadside { gateway, units: BTreeMap::new() })
    }

    /// Adds the unit of a path by name and place in the plan; returns its radio device. With `radio`,
    /// the name of an interface that all units share, the path stands when a tunnel does.
    ///
    /// # Errors
    /// What the kernel rejected.
    pub fn add(&mut self, name: &str, radio: Option<&str>, place: usize, mtu: u32) -> Result<Tun> {
        let (unit, vehicle) = (router()?, vehicle_address(place));
        join((&unit, TO_GATEWAY), (&self.gateway, name), mtu)?;
        let wire_unit = || -> Result<Tun> {
            let interface = radio.unwrap_or(name);
            let (device, mut wiring) = (Tun::open(interface)?, Wiring::open()?);
            wiring.bring_up(interface, mtu, DEVICE_QUEUE_PACKETS)?;
            if radio.is_some() {
                let interface = wiring.index(interface)?;
                wiring.add_address(interface, unit_address(place), RADIO_PREFIX)?;
            } else {
                // The next hop of the vehicle, which answers probes.
                let [a, b, c, _] = vehicle.octets();
                let index = wiring.index(interface)?;
                wiring.add_address(index, Ipv4Addr::new(a, b, c, 1), 32)?;
                route(&mut wiring, vehicle, interface)?;
            }
            route(&mut wiring, SERVER, TO_GATEWAY)?;
            Ok(device)
        };
        let device = unit.enter(wire_unit)??;
        self.gateway.enter(|| route(&mut Wiring::open()?, vehicle, name))??;
        self.units.insert(name.to_owned(), unit);
        Ok(device)
    }

    /// The namespace of the gateway.
    pub fn gateway(&self) -> &Namespace {
        &self.gateway
    }

    /// The namespace of a unit.
    pub fn unit(&self, name: &str) -> Option<&Namespace> {
        self.units.get(name)
    }
}

/// A namespace that forwards packets.
fn router() -> Result<Namespace> {
    let namespace = Namespace::new()?;
    namespace.enter(|| quieten(&mut Wiring::open()?, IpVersion::V4))??;
    namespace.set_sysctl("net/ipv4/ip_forward", "1")?;
    Ok(namespace)
}

/// Joins two namespaces by a veth pair of these names, up and without addresses.
fn join((here, local): (&Namespace, &str), (there, peer): (&Namespace, &str), mtu: u32) -> Result<()> {
    here.enter(|| {
        Links::open()?.make_pair(local, peer, there)?;
        Wiring::open()?.bring_up(local, mtu, QUEUE_PACKETS)
    })??;
    there.enter(|| Wiring::open()?.bring_up(peer, mtu, QUEUE_PACKETS))?
}

fn route(wiring: &mut Wiring, to: Ipv4Addr, interface: &str) -> Result<()> {
    let interface = wiring.index(interface)?;
    wiring.add_route(Route { to: Some(to.into()), interface, via: None, source: None, table: None, metric: 0 })
}
