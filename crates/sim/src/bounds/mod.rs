//! Upper bounds on results, and the feasibility of a scenario's expectations.

pub mod feasibility;
pub mod least_cost;
pub mod oracle;
