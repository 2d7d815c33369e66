//! The units and vehicles that a controller's configuration names.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::super::messages::{Role, UnitEntry, VehicleEntry};
use super::Peer;

/// The units and vehicles of the configuration; each station id is used once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// The units, at most 1000; those beyond are ignored.
    pub units: Vec<UnitSpec>,
    /// The vehicles, at most 10,000; those beyond are ignored.
    pub vehicles: Vec<VehicleSpec>,
}

/// A unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSpec {
    /// Its station id.
    pub station: u32,
    /// Its name (1 to 15 bytes).
    pub name: String,
    /// Its address on the air.
    pub address: Ipv4Addr,
    /// UDP port of its encrypted tunnel.
    pub port: u16,
    /// Its public key, which its encrypted tunnel and its connection to the controller have.
    pub key: [u8; 32],
    /// Its prefix: network address and length (1 to 30).
    pub prefix: (Ipv4Addr, u8),
    /// Its address on the backhaul.
    pub next_hop: Ipv4Addr,
}

/// A vehicle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VehicleSpec {
    /// Its station id.
    pub station: u32,
    /// Its name.
    pub name: String,
    /// Its host number in the prefix of every unit.
    pub host: u32,
    /// Its home address.
    pub home: Ipv4Addr,
}

impl Directory {
    /// Whether a peer says of itself what the configuration says.
    ///
    /// # Errors
    /// The difference, and the remedy.
    pub fn admit(&self, peer: Peer, role: &Role) -> Result<(), String> {
        match (peer, role) {
            (Peer::Vehicle(_), Role::Vehicle) => Ok(()),
            (Peer::Vehicle(_), Role::Unit { .. }) => {
                Err("its key is that of a vehicle, and it reports as a unit; give the unit a [[unit]] there".into())
            }
            (Peer::Unit(_), Role::Vehicle) => {
                Err("its key is that of a unit, and it asks as a vehicle; give the vehicle a [[vehicle]] there".into())
            }
            (Peer::Unit(station), Role::Unit { prefix, address }) => {
                let Some(unit) = self.units.iter().find(|unit| unit.station == station) else {
                    return Err(format!("station {station} is no unit; add a [[unit]] there"));
                };
                let (network, length) = unit.prefix;
                if *prefix != unit.prefix {
                    let (own, bits) = prefix;
                    return Err(format!(
                        "its prefix is {own}/{bits}, and that of unit {:?} there is {network}/{length}; use one of them",
                        unit.name
                    ));
                }
                if *address != unit.next_hop {
                    return Err(format!(
                        "its address on the backhaul is {address}, and `next_hop` of unit {:?} there is {}; use one of them",
                        unit.name, unit.next_hop
                    ));
                }
                Ok(())
            }
        }
    }

    pub(super) fn vehicle_entries(&self) -> Vec<VehicleEntry> {
        let entry =
            |vehicle: &VehicleSpec| VehicleEntry { station: vehicle.station, host: vehicle.host, home: vehicle.home };
        self.vehicles.iter().map(entry).collect()
    }

    /// The units in whose prefix the vehicle has an address.
    pub(super) fn unit_entries(&self, vehicle: u32) -> Vec<UnitEntry> {
        let Some(vehicle) = self.vehicles.iter().find(|spec| spec.station == vehicle) else { return Vec::new() };
        let entry = |unit: &UnitSpec| {
            Some(UnitEntry {
                station: unit.station,
                name: unit.name.clone(),
                address: unit.address,
                port: unit.port,
                key: Some(unit.key),
                inner: (inner(unit.prefix, vehicle.host)?, unit.prefix.1),
            })
        };
        self.units.iter().filter_map(entry).collect()
    }
}

/// The address with this host number in a prefix; none for the network, the unit's own (1) and the broadcast address.
pub fn inner((network, length): (Ipv4Addr, u8), host: u32) -> Option<Ipv4Addr> {
    let hosts = u32::MAX.checked_shr(length.into()).unwrap_or(0);
    ((2..hosts).contains(&host)).then(|| Ipv4Addr::from_bits((network.to_bits() & !hosts) | host))
}
