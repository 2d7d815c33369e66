//! All decisions and protocols of Crosslane. This crate uses no clock, socket, file or
//! thread; see `docs/design/architecture.md`.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::expect_used))]

extern crate alloc;

pub mod actuator;
pub mod agent;
pub mod allocate;
pub mod assess;
pub mod demand;
pub mod echo;
pub mod engine;
pub mod link;
pub mod mptcp;
pub mod packet;
pub mod parameters;
pub mod path;
pub mod reason;
mod recent;
pub mod rng;
pub mod roadside;
mod small_map;
pub mod strategy;
pub mod time;
pub mod transfer;
pub mod tunnel;
pub mod volume;
pub mod wanted;
