//! A model of upstream Linux's TCP and MPTCP, packet by packet, in simulated
//! time.
//!
//! ```text
//! application ─ write ─▶ Endpoint ── scheduler ──▶ Subflow ─ Sender ──▶ Segment ─▶ link
//!            ◀─ read ──  (data sequence numbers)   (sequence numbers)            │
//!                        Endpoint ◀─ in order ──── Subflow ─ Receiver ◀──────────┘
//! ```
//!
//! An [`Endpoint`] is one endpoint of one connection: the state of the kernel's
//! MPTCP socket. Vehicle and server use the same type. The module has no links
//! and no application: its inputs are segments and commands, its outputs segments
//! and events. `docs/design/simulator.md` lists what is modelled and what is not.

mod clock;
pub mod congestion;
mod connection;
mod frags;
mod path_manager;
mod receiver;
mod rtt;
pub mod sack;
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
