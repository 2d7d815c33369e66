//! The tunnel's way to the kernel: TUN device, UDP sockets, and what must be
//! done to packets between them.

pub mod checksum;
pub mod coalesce;
pub mod command;
pub mod config;
pub mod device;
pub mod end;
mod faults;
pub mod inner;
pub mod offload;
pub mod outbox;
pub mod run;
pub mod security;
pub mod socket;
pub mod steer;
mod threads;

#[cfg(test)]
mod packets_for_tests;
