//! The world of a drive: scenario files, mobility, radio, roadside units, and
//! the records and metrics of a run. No clock, no socket, no file: the caller
//! hands in texts and time.
#![forbid(unsafe_code)]

pub mod access;
pub mod addresses;
pub mod cam;
pub mod cellular;
pub mod check;
mod columns;
pub mod fading;
pub mod fleet;
pub mod histogram;
pub mod metrics;
pub mod mobility;
pub mod optimum;
pub mod oracle;
pub mod path_loss;
pub mod radio;
pub mod records;
pub mod repeats;
pub mod scenario;
pub mod shadowing;
pub mod simulation;
pub mod trace;
pub mod transport;
pub mod wander;
pub mod wifi;
pub mod world;
