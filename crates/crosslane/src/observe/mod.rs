//! Observers: received radio messages as samples of paths.

pub mod admission;
pub mod vanetza;
