//! What a run leaves: rows, and the metrics that are counted from them.

pub mod histogram;
pub mod metrics;
pub mod retransmissions;
pub mod rows;
