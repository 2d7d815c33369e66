//! Input files: mobility and link traces, and what is common to all TOML files.

pub mod link_trace;
pub mod mobility;
pub(crate) mod numeric_csv;
pub mod renamed_keys;
pub mod strict_toml;
pub mod toml_fault;
