//! The network of roadside units: the channel between a controller, and units and vehicles
//! (`docs/reference/controller.md`), and what leads the home addresses of vehicles.

pub mod channel;
pub mod link;
pub mod redirector;
