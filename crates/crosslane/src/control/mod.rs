//! The control socket of a running agent: senders report their demand, and `crosslane tunnel`
//! queries and controls a tunnel (`docs/reference/control-socket.md`, decision 44).
//!
//! ```text
//! client ── open objects, {} or {"mode": …} ──▶ agent
//!        ◀── backlog, admissions, states; the tunnel's status ──
//! ```
//!
//! One JSON object a line in both directions over a stream socket. Neither side waits for the
//! other. The kernel reports who the peer is.

pub mod client;
mod demand_table;
pub mod listener;
pub mod protocol;
pub mod server;
pub mod status;
pub mod status_server;
mod trust;
pub mod tunnel_command;

#[cfg(test)]
mod tests;
