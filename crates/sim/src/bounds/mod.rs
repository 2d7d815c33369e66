//! What could be had at best, and whether a scenario can show what it expects.

pub mod feasibility;
pub mod least_cost;
pub mod oracle;
