//! IP packets that the tunnel carries: checked views of them, and all that it changes in
//! them or makes of them. Everything here is a function of bytes.

pub mod checksum;
pub mod ecn;
pub mod fragment;
pub mod gro;
pub mod gso;
pub mod icmp_too_big;
pub mod ip;
pub mod mss_clamp;

#[cfg(test)]
mod packets_for_tests;
#[cfg(test)]
mod tests;
