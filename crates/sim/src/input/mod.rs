//! Numeric input files: mobility and link traces.

pub mod link_trace;
pub mod mobility;
pub(crate) mod numeric_csv;
pub mod renamed_keys;
