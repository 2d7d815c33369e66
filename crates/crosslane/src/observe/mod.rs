//! Observers: what the agent learns of its links, as samples.

pub mod admission;
pub mod vanetza;
