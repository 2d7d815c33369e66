//! The only part of Crosslane that touches the system: clock, kernel, sockets,
//! files.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::expect_used))]
// They panic where standard output or error cannot be written.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod agent;
pub mod arrow_file;
pub mod bugreport;
pub mod catalog;
pub mod check;
pub mod cli;
pub mod clock;
pub mod comparison;
pub mod congestion_control;
pub mod control;
pub mod controller;
pub mod doctor;
pub mod drive;
mod durable_file;
mod durations;
pub mod error;
pub mod http;
pub mod import;
mod interrupt;
pub mod kernel_counters;
mod keygen;
mod memory;
pub mod mptcp;
pub mod netlink;
pub mod observe;
mod output;
mod program;
pub mod receive;
pub mod refit;
pub mod roadside;
pub mod run;
pub mod run_folder;
pub mod scenario_file;
pub mod send;
pub mod simulate;
pub mod summary;
pub mod testbed;
mod text_file;
pub mod transfer;
mod transfer_keys;
pub mod trials;
pub mod tun;
pub mod tunnel;
mod version;
