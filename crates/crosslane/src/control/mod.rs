//! The control socket of a running agent: senders report their demand, users look at it and
//! change it (`docs/reference/control-socket.md`, decisions 44 and 56).
//!
//! ```text
//! client ── open objects, {} or {"mode": …}, {"request": …} ──▶ agent
//!        ◀── backlog, admissions, states; the tunnel's status; a report ──
//! ```
//!
//! One JSON object a line in both directions over a stream socket. Neither side waits for the
//! other. The kernel reports who the peer is.

pub mod agent_command;
pub mod client;
mod demand_table;
pub mod listener;
pub mod protocol;
pub mod report;
pub(crate) mod report_text;
pub mod running_agent;
pub mod server;
pub mod status;
pub mod status_server;
mod trust;
pub mod tunnel_command;
mod watch;

#[cfg(test)]
mod tests;
