//! Everything of Crosslane that touches the world: clock, kernel, files.

pub mod agent;
pub mod clock;
pub mod error;
pub mod import;
pub mod netlink;
pub mod observe;
