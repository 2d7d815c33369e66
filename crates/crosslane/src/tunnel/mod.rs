//! The tunnel's I/O: TUN device, UDP sockets, encryption, and the processing
//! of packets between them.

pub mod config;
pub mod data_plane;
pub mod device;
pub mod endpoint;
mod path_errors;
pub mod security;
pub mod socket;
mod threads;
