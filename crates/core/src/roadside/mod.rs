//! Cooperation with roadside units.

pub mod cam_generation;
pub mod connection_manager;
pub mod controller;
pub mod messages;
pub mod reception;
pub mod unit_paths;
