//! The network of roadside units: the channel between a controller, and units and vehicles
//! (`docs/reference/controller.md`).

pub mod channel;
pub mod link;
