//! Everything of Crosslane that touches the world: clock, kernel, files.

pub mod agent;
pub mod check;
pub mod clock;
pub mod drive;
pub mod error;
pub mod netlink;
pub mod observe;
pub mod scenario_file;
pub mod summary;
