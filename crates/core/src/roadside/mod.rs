//! Cooperation with roadside units.

pub mod cam_generation;
