//! The kernel's side of everything Crosslane decides, over netlink.
//!
//! | module | kernel interface | for |
//! |---|---|---|
//! | [`path_manager`] | generic netlink `mptcp_pm`, user-space path manager | events and commands per connection |
//! | [`endpoints`] | generic netlink `mptcp_pm`, in-kernel path manager | the baselines and the far end |
//! | [`diag`] | `sock_diag` with `tcp_info` and MPTCP's own | how subflows fare; resync after an overrun |
//! | [`udp`] | `sock_diag` | whose socket a datagram came from |
//! | [`links`] | rtnetlink | interfaces and addresses that come and go |
//! | [`Wiring`] | rtnetlink | interfaces, addresses, routes and rules of our own |
//! | [`probe()`] | procfs | what is missing here, and what to do about it |
//!
//! A socket belongs to the network namespace of the thread that opens it and
//! keeps to it wherever it is used afterwards. Requests are answered by the
//! kernel within the system call, so they do not block; what the kernel tells
//! unasked arrives by [`Subscription`], with a timeout or, as [`Stream`], in
//! tokio. Nothing here reads a clock.

pub mod diag;
pub mod endpoints;
mod family;
pub mod links;
mod message;
mod mptcp_info;
pub mod path_manager;
mod probe;
mod route;
mod socket;
mod subscription;
mod tcp_info;
pub mod udp;

pub(crate) use message::request;
pub use message::{DecodeError, KernelError};
pub use probe::{PathManager, ProbeError, probe, select_path_manager, selected_path_manager};
pub use route::{Route, Wiring};
pub(crate) use socket::Channel;
pub use socket::{CallError, CommandError, OpenError};
pub use subscription::{EventError, Stream, Subscription};
pub use tcp_info::{TcpInfo, TcpState};
