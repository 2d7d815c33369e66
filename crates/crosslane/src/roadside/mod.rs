//! Between roadside units, vehicles and the controller in the fixed network.

pub mod redirector;
