//! What other programs of this machine ask of a running agent: senders report
//! their demand, and `crosslane tunnel` asks for a tunnel's status.

pub mod demand;
pub mod tunnel;
