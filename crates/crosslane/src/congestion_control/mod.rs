//! Coupled congestion control of MPTCP (LIA, RFC 6356) as a BPF program, which the kernel runs for the sockets that
//! select it. `bpf/lia.bpf.c` is the program; this module registers it.
//!
//! A struct_ops map that its value registers stays registered until its value is deleted, without a process, a link or
//! a pinned file (Linux `bpf_struct_ops_map_update_elem`). So `load` leaves nothing running, and `unload` finds the map
//! among those of the kernel.

mod bpf;
pub mod command;
mod kernel_types;
mod object;
pub mod registration;

use std::fs;

use crate::error::{Error, Result};

/// Name of the congestion control, as in `net.ipv4.tcp_congestion_control`.
pub const LIA: &str = "lia";

/// True if sockets of this machine can select [`LIA`].
pub fn is_available() -> bool {
    let offered = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    offered.split_whitespace().any(|name| name == LIA)
}

/// Checks that sockets of this machine can select [`LIA`]; `attempt` needs it.
///
/// # Errors
/// It is not loaded; names the command that loads it.
pub fn require(attempt: &str) -> Result<()> {
    if is_available() {
        return Ok(());
    }
    let cause = format!("this kernel has no congestion control `{LIA}`");
    Err(Error::usage(attempt, cause, "run `crosslane cc load` as root first"))
}
