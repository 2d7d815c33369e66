//! The tunnel's way to the kernel: TUN device, UDP sockets, and what must be
//! done to packets between them.

pub mod checksum;
pub mod coalesce;
pub mod device;
pub mod inner;
pub mod offload;
pub mod socket;

#[cfg(test)]
mod packets_for_tests;
