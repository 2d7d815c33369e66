//! Observers: what the agent learns of its links, as samples.

pub mod vanetza;
