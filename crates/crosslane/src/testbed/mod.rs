//! A drive on this machine's kernel.

pub mod traffic;
