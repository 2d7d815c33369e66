//! What comes from files of numbers: mobility, and traces of links.

pub mod link_trace;
pub mod mobility;
pub(crate) mod numeric_csv;
pub mod renamed_keys;
