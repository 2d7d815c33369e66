//! The only part of Crosslane that touches the system: clock, sockets, files.

pub mod testbed;
