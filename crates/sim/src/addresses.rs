//! The addresses of a drive, the same in the emulator and in simulated time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The server's address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);

/// Maximum number of paths of a scenario: each has an address of the vehicle.
pub const MAX_PATHS: usize = 253;

/// The vehicle's address on the path with this index.
pub fn vehicle_address(place: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1 + place as u8, 0, 2)
}

/// The wildcard address of the same IP version.
pub fn unspecified(address: IpAddr) -> IpAddr {
    if address.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// The version of the Internet Protocol on all paths; 4 or 6 in a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// The server's address.
    pub fn server(self) -> IpAddr {
        match self {
            IpVersion::V4 => SERVER.into(),
            IpVersion::V6 => Ipv6Addr::new(0xfd00, 0xff, 0, 0, 0, 0, 0, 1).into(),
        }
    }

    /// The vehicle's address on the path with this index.
    pub fn vehicle(self, place: usize) -> IpAddr {
        match self {
            IpVersion::V4 => vehicle_address(place).into(),
            IpVersion::V6 => Ipv6Addr::new(0xfd00, 1 + place as u16, 0, 0, 0, 0, 0, 2).into(),
        }
    }

    /// Length of an address, in bits.
    pub fn bits(self) -> u8 {
        match self {
            IpVersion::V4 => 32,
            IpVersion::V6 => 128,
        }
    }

    /// By how much its header is longer than that of IPv4, in bytes.
    pub fn longer_by_bytes(self) -> u16 {
        match self {
            IpVersion::V4 => 0,
            IpVersion::V6 => 20,
        }
    }
}

impl<'de> Deserialize<'de> for IpVersion {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<IpVersion, D::Error> {
        match u32::deserialize(from)? {
            4 => Ok(IpVersion::V4),
            6 => Ok(IpVersion::V6),
            other => Err(D::Error::custom(format!("there is no IP version {other}; write 4 or 6"))),
        }
    }
}

impl Serialize for IpVersion {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(if *self == IpVersion::V4 { 4 } else { 6 })
    }
}
