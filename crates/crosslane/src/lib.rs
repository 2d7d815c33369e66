//! Everything of Crosslane that touches the world: clock, kernel, files.

pub mod agent;
pub mod clock;
pub mod error;
pub mod netlink;
pub mod observe;
pub mod testbed;
pub mod tun;
