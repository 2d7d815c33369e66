//! The tunnel's way to the kernel: TUN device, UDP sockets, and what must be
//! done to packets between them.

pub mod checksum;
pub mod config;
pub mod data_plane;
pub mod device;
pub mod endpoint;
pub mod gro;
pub mod gso;
pub mod ip;
mod path_errors;
pub mod security;
pub mod socket;
mod threads;

#[cfg(test)]
mod packets_for_tests;
