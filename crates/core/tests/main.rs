//! The tests of the crate, as one program: linking costs more than most of them. What counts allocations is a separate one.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod actuators;
mod agent_requests;
mod chaos;
mod classes;
mod cost_first;
mod extension_link_effect;
mod extension_strategy;
mod learned;
mod multipath_beliefs;
mod multipath_transfer;
mod multipath_wire;
mod only_network;
mod path_manager_model;
mod tunnel_chaos;
