//! Radio models: path loss, shadowing, fading, and one model per technology.

pub mod access_link;
pub mod ar1;
pub mod cam;
pub mod cam_vehicle;
pub mod cellular;
pub mod fading;
pub mod path_loss;
pub mod shadowing;
pub mod wifi;
