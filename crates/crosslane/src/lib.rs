//! Everything of Crosslane that touches the world: clock, kernel, files.

pub mod agent;
pub mod error;
pub mod observe;
