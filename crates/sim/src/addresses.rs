//! The addresses of a drive, the same in the emulator and in simulated time.

use std::net::Ipv4Addr;

/// The server's address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);

/// Maximum number of paths of a scenario: each has an address of the vehicle.
pub const MAX_PATHS: usize = 253;

/// The vehicle's address on the path with this index.
pub fn vehicle_address(place: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1 + place as u8, 0, 2)
}
