//! The world of a drive: mobility, radio, roadside units, scenario files, and
//! the records and metrics of a run.
#![forbid(unsafe_code)]

pub mod metrics;
pub mod records;
pub mod repeats;
