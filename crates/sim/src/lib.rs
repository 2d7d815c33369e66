//! The world of a drive (scenario files, mobility, radio, roadside units), the
//! simulator, and the records and metrics of a run. The crate has no clock,
//! socket or file: the caller passes texts and time.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::expect_used))]

pub mod addresses;
pub mod bounds;
pub mod error;
pub mod fleet;
pub mod input;
pub mod radio;
pub mod record;
pub mod scenario;
pub mod simulation;
pub mod traffic;
pub mod transport;
pub mod world;
