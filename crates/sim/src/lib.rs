//! The world of a drive: scenario files, mobility, radio, roadside units, and
//! the records and metrics of a run. No clock, no socket, no file: the caller
//! hands in texts and time.
#![forbid(unsafe_code)]

pub mod addresses;
pub mod bounds;
pub mod error;
pub mod fleet;
pub mod input;
pub mod radio;
pub mod record;
pub mod scenario;
pub mod simulation;
pub mod transport;
pub mod world;
