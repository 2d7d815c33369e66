//! A drive on this machine's kernel.

pub mod packet;
pub mod records;
pub mod traffic;
