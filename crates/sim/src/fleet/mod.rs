//! Many vehicles on one map, each with its own links, transport and agent.

pub mod air;
