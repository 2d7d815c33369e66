//! Messages between a controller, and roadside units and vehicles, inside the encrypted channel
//! (`docs/reference/controller.md`). All fields are big-endian.
//!
//! ```text
//! Report        1 Hello      version | role: 1 unit | prefix (4) | length | address (4)
//!                                            2 vehicle
//!               2 Vehicle    station (4) | flags | RSSI in dBm (4) if flagged
//!                            | latitude (8) | longitude (8) in degrees if flagged
//!               3 Left       station (4)
//!               4 Keepalive
//! Announcement  1 Refused    bytes (2) | reason (UTF-8)
//!               2 Vehicles   count (2) | count times: station (4) | host (4) | home (4)
//!               3 Units      count (2) | count times: station (4) | bytes | name (UTF-8) | address (4)
//!                            | port (2) | 0, or 1 and key (32) | inner (4) | length
//!               4 Serving    station (4) | 0 or 1
//!               5 Keepalive
//! ```
//!
//! RSSI and position are IEEE 754 numbers.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use crate::path::Position;

/// Version of the messages.
pub const VERSION: u8 = 1;
/// Maximum number of vehicles.
pub const MAX_VEHICLES: usize = 10_000;
/// Maximum number of units.
pub const MAX_UNITS: usize = 1000;
/// Longest report, in bytes.
pub const MAX_REPORT_BYTES: usize = 26;
/// Longest announcement, in bytes: [`MAX_VEHICLES`] take 120,003.
pub const MAX_ANNOUNCEMENT_BYTES: usize = 131_072;
/// Longest name of a unit, in bytes: it is also the name of an interface.
pub const MAX_NAME_BYTES: usize = 15;
/// Longest reason of a refusal, in bytes.
pub const MAX_REASON_BYTES: usize = 500;

const HAS_TUNNEL: u8 = 1;
const CARRIES: u8 = 2;
const HAS_RSSI: u8 = 4;
const HAS_POSITION: u8 = 8;

/// From a unit or a vehicle to the controller. The first is [`Hello`](Report::Hello).
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// Who reports.
    Hello {
        /// [`VERSION`] of the sender.
        version: u8,
        /// The sender's role.
        role: Role,
    },
    /// What a unit knows of a vehicle; on change at once, else at most 10 times a second.
    Vehicle {
        /// The vehicle's station id.
        station: u32,
        /// RSSI of its last CAM, in dBm.
        rssi_dbm: Option<f32>,
        /// Its position, as its last CAM states it.
        position: Option<Position>,
        /// Whether its tunnel to the unit stands.
        has_tunnel: bool,
        /// Whether that tunnel carries packets.
        carries: bool,
    },
    /// The unit no longer receives the vehicle, and its tunnel is gone.
    Left {
        /// The vehicle's station id.
        station: u32,
    },
    /// Nothing new.
    Keepalive,
}

/// What reports to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A roadside unit.
    Unit {
        /// Its prefix: network address and length (0 to 32).
        prefix: (Ipv4Addr, u8),
        /// Its address on the backhaul, by which the controller's host reaches it.
        address: Ipv4Addr,
    },
    /// A vehicle.
    Vehicle,
}

/// From the controller.
#[derive(Clone, Debug, PartialEq)]
pub enum Announcement {
    /// The controller does not serve this peer, and closes the connection.
    Refused {
        /// A sentence with cause and remedy, at most [`MAX_REASON_BYTES`] long.
        reason: String,
    },
    /// To a unit: the vehicles with home addresses, all of them; again after a change.
    Vehicles(Vec<VehicleEntry>),
    /// To a vehicle: the units that it may use, all of them; again after a change.
    Units(Vec<UnitEntry>),
    /// To a unit: whether it serves this vehicle's home address now.
    Serving {
        /// The vehicle's station id.
        station: u32,
        /// True if packets to the vehicle's home address are led to this unit.
        serves: bool,
    },
    /// Nothing new.
    Keepalive,
}

/// A vehicle, as units need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VehicleEntry {
    /// Its station id.
    pub station: u32,
    /// Its host number: the vehicle's address in a unit's prefix, minus the network address.
    pub host: u32,
    /// Its home address.
    pub home: Ipv4Addr,
}

/// A unit, as vehicles need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitEntry {
    /// Its station id.
    pub station: u32,
    /// Its name (1 to 15 bytes).
    pub name: String,
    /// Its address on the air.
    pub address: Ipv4Addr,
    /// UDP port of its encrypted tunnel.
    pub port: u16,
    /// Its public key, if its tunnel is encrypted.
    pub key: Option<[u8; 32]>,
    /// The vehicle's address in the unit's prefix, and the prefix length (0 to 32).
    pub inner: (Ipv4Addr, u8),
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The sender's messages have another version.
    #[error("its messages have version {0}, not {VERSION}")]
    Version(u8),
    /// It ends early, or has more bytes than its fields.
    #[error("the message has a wrong length")]
    Length,
    /// A type or a flag is not one of those that exist.
    #[error("the message is of an unknown type")]
    Unknown,
    /// A number or a text is outside its range.
    #[error("a field of the message is out of range")]
    Range,
}

impl Report {
    /// Appends the message.
    pub fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Report::Hello { version, role: Role::Vehicle } => into.extend([1, *version, 2]),
            Report::Hello { version, role: Role::Unit { prefix, address } } => {
                into.extend([1, *version, 1]);
                put_prefix(into, *prefix);
                into.extend(address.octets());
            }
            Report::Vehicle { station, rssi_dbm, position, has_tunnel, carries } => {
                let flag = |set: bool, flag: u8| if set { flag } else { 0 };
                let known = flag(rssi_dbm.is_some(), HAS_RSSI) | flag(position.is_some(), HAS_POSITION);
                into.push(2);
                into.extend(station.to_be_bytes());
                into.push(known | flag(*has_tunnel, HAS_TUNNEL) | flag(*carries, CARRIES));
                rssi_dbm.iter().for_each(|rssi| into.extend(rssi.to_be_bytes()));
                let degrees = position.iter().flat_map(|at| [at.latitude_deg, at.longitude_deg]);
                degrees.for_each(|degrees| into.extend(degrees.to_be_bytes()));
            }
            Report::Left { station } => {
                into.push(3);
                into.extend(station.to_be_bytes());
            }
            Report::Keepalive => into.push(4),
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Report, Fault> {
        let mut from = Reader(bytes);
        let report = match from.u8()? {
            1 => from.hello()?,
            2 => from.vehicle()?,
            3 => Report::Left { station: from.u32()? },
            4 => Report::Keepalive,
            _ => return Err(Fault::Unknown),
        };
        from.end().map(|()| report)
    }
}

impl Announcement {
    /// Appends the message. Entries and characters beyond the limits are left out.
    pub fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Announcement::Refused { reason } => {
                let reason = shortened(reason, MAX_REASON_BYTES);
                into.push(1);
                into.extend((reason.len() as u16).to_be_bytes());
                into.extend(reason.bytes());
            }
            Announcement::Vehicles(vehicles) => {
                let vehicles = &vehicles[..vehicles.len().min(MAX_VEHICLES)];
                into.push(2);
                into.extend((vehicles.len() as u16).to_be_bytes());
                for vehicle in vehicles {
                    into.extend(vehicle.station.to_be_bytes());
                    into.extend(vehicle.host.to_be_bytes());
                    into.extend(vehicle.home.octets());
                }
            }
            Announcement::Units(units) => {
                let units = &units[..units.len().min(MAX_UNITS)];
                into.push(3);
                into.extend((units.len() as u16).to_be_bytes());
                units.iter().for_each(|unit| unit.encode(into));
            }
            Announcement::Serving { station, serves } => {
                into.push(4);
                into.extend(station.to_be_bytes());
                into.push(u8::from(*serves));
            }
            Announcement::Keepalive => into.push(5),
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Announcement, Fault> {
        let mut from = Reader(bytes);
        let announcement = match from.u8()? {
            1 => {
                let length = from.u16()?.into();
                Announcement::Refused { reason: from.text(length, MAX_REASON_BYTES)? }
            }
            2 => Announcement::Vehicles(from.entries(MAX_VEHICLES, Reader::vehicle_entry)?),
            3 => Announcement::Units(from.entries(MAX_UNITS, Reader::unit_entry)?),
            4 => Announcement::Serving { station: from.u32()?, serves: from.bool()? },
            5 => Announcement::Keepalive,
            _ => return Err(Fault::Unknown),
        };
        from.end().map(|()| announcement)
    }
}

impl UnitEntry {
    fn encode(&self, into: &mut Vec<u8>) {
        let name = shortened(&self.name, MAX_NAME_BYTES);
        into.extend(self.station.to_be_bytes());
        into.push(name.len() as u8);
        into.extend(name.bytes());
        into.extend(self.address.octets());
        into.extend(self.port.to_be_bytes());
        into.push(u8::from(self.key.is_some()));
        into.extend(self.key.iter().flatten());
        put_prefix(into, self.inner);
    }
}

/// The characters of a text that fit into this number of bytes.
fn shortened(text: &str, max_bytes: usize) -> &str {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn put_prefix(into: &mut Vec<u8>, (address, length): (Ipv4Addr, u8)) {
    into.extend(address.octets().into_iter().chain([length]));
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Fault::Length)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Fault> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, Fault> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Fault> {
        self.take().map(u32::from_be_bytes)
    }

    fn bool(&mut self) -> Result<bool, Fault> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Fault::Range),
        }
    }

    fn address(&mut self) -> Result<Ipv4Addr, Fault> {
        self.take::<4>().map(Ipv4Addr::from)
    }

    fn prefix(&mut self) -> Result<(Ipv4Addr, u8), Fault> {
        let (address, length) = (self.address()?, self.u8()?);
        if length > 32 { Err(Fault::Range) } else { Ok((address, length)) }
    }

    fn degrees(&mut self, max: f64) -> Result<f64, Fault> {
        let degrees = f64::from_be_bytes(self.take()?);
        if (-max..=max).contains(&degrees) { Ok(degrees) } else { Err(Fault::Range) }
    }

    fn text(&mut self, length: usize, max: usize) -> Result<String, Fault> {
        if length > max {
            return Err(Fault::Range);
        }
        let (text, rest) = self.0.split_at_checked(length).ok_or(Fault::Length)?;
        self.0 = rest;
        core::str::from_utf8(text).map(String::from).map_err(|_| Fault::Range)
    }

    fn entries<T>(&mut self, max: usize, mut read: impl FnMut(&mut Self) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
        let count = usize::from(self.u16()?);
        if count > max {
            return Err(Fault::Range);
        }
        (0..count).map(|_| read(self)).collect()
    }

    fn hello(&mut self) -> Result<Report, Fault> {
        let version = self.u8()?;
        if version != VERSION {
            return Err(Fault::Version(version));
        }
        let role = match self.u8()? {
            1 => Role::Unit { prefix: self.prefix()?, address: self.address()? },
            2 => Role::Vehicle,
            _ => return Err(Fault::Unknown),
        };
        Ok(Report::Hello { version, role })
    }

    fn vehicle(&mut self) -> Result<Report, Fault> {
        let (station, flags) = (self.u32()?, self.u8()?);
        if flags & !(HAS_TUNNEL | CARRIES | HAS_RSSI | HAS_POSITION) != 0 {
            return Err(Fault::Unknown);
        }
        let rssi_dbm = if flags & HAS_RSSI == 0 { None } else { Some(f32::from_be_bytes(self.take()?)) };
        if rssi_dbm.is_some_and(|rssi| !rssi.is_finite()) {
            return Err(Fault::Range);
        }
        let position = match flags & HAS_POSITION {
            0 => None,
            _ => Some(Position { latitude_deg: self.degrees(90.0)?, longitude_deg: self.degrees(180.0)? }),
        };
        let (has_tunnel, carries) = (flags & HAS_TUNNEL != 0, flags & CARRIES != 0);
        Ok(Report::Vehicle { station, rssi_dbm, position, has_tunnel, carries })
    }

    fn vehicle_entry(&mut self) -> Result<VehicleEntry, Fault> {
        Ok(VehicleEntry { station: self.u32()?, host: self.u32()?, home: self.address()? })
    }

    fn unit_entry(&mut self) -> Result<UnitEntry, Fault> {
        let (station, bytes) = (self.u32()?, self.u8()?);
        if bytes == 0 {
            return Err(Fault::Range);
        }
        let name = self.text(bytes.into(), MAX_NAME_BYTES)?;
        let (address, port) = (self.address()?, self.u16()?);
        let key = if self.bool()? { Some(self.take()?) } else { None };
        Ok(UnitEntry { station, name, address, port, key, inner: self.prefix()? })
    }

    fn end(&self) -> Result<(), Fault> {
        if self.0.is_empty() { Ok(()) } else { Err(Fault::Length) }
    }
}

#[cfg(test)]
mod tests;
