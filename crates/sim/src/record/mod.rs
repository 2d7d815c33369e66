//! Records of a run: rows, and the metrics computed from them.

pub mod histogram;
pub mod messages;
pub mod metrics;
pub mod retransmissions;
pub mod rows;
