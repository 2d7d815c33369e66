//! TCP and MPTCP as upstream Linux does them, packet by packet, in simulated
//! time.
//!
//! ```text
//! application ─ write ─▶ Endpoint ── scheduler ──▶ Subflow ─ Sender ──▶ Segment ─▶ link
//!            ◀─ read ──  (data sequence numbers)   (sequence numbers)            │
//!                        Endpoint ◀─ in order ──── Subflow ─ Receiver ◀──────────┘
//! ```
//!
//! An [`Endpoint`] is one end of one connection: what the kernel keeps in an
//! MPTCP socket. Both ends are the same type. Nothing here knows a link or an
//! application: segments and events come out, segments and commands go in.
//! `docs/simulator.md` lists what is modelled and what is not.

mod clock;
pub mod congestion;
mod connection;
mod frags;
mod path_manager;
mod receiver;
mod rtt;
pub mod scheduler;
pub mod segment;
mod sender;
mod subflow;
mod window;

pub use clock::Ticks;
pub use connection::{Endpoint, Protocol, SERVER_ADDRESS, Settings};
pub use path_manager::KernelPathManager;
pub use segment::Segment;
pub use subflow::SubflowInfo;
