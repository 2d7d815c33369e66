//! Sockets on which other programs of this machine use a running agent: senders
//! report their demand, and `crosslane tunnel` queries and controls a tunnel.

pub mod demand;
pub mod tunnel;
