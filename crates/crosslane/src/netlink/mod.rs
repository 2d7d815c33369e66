//! All kernel interfaces of Crosslane, over netlink.
//!
//! | module | kernel interface | for |
//! |---|---|---|
//! | [`path_manager`] | generic netlink `mptcp_pm`, user-space path manager | events and commands per connection |
//! | [`endpoints`] | generic netlink `mptcp_pm`, in-kernel path manager | the baselines and the server |
//! | [`requests`] | generic netlink `mptcp_pm`, every request and event as it is | `crosslane mptcp` |
//! | [`diag`] | `sock_diag` with `tcp_info` and MPTCP's own | status of subflows; resync after an overrun |
//! | [`udp`] | `sock_diag` | owner of the socket that sent a datagram |
//! | [`unix`] | `sock_diag` | who listens at an abstract name |
//! | [`wireless`] | generic netlink `nl80211` | signal, rates and failures of Wi-Fi and 802.11p |
//! | [`nftables`] | `nf_tables` | whether a firewall drops what an agent sends |
//! | [`links`] | rtnetlink | changes of interfaces and addresses |
//! | [`Wiring`] | rtnetlink | interfaces, addresses, routes and rules of our own |
//! | [`path_routes`] | rtnetlink | rules and routes by which packets leave over the path of their address |
//! | [`home`] | rtnetlink | home addresses, and routes that are replaced in place |
//! | [`probe()`] | procfs | missing requirements, with remedies |
//!
//! A socket belongs to the network namespace of the thread that opens it, also
//! when it is used elsewhere. The kernel replies to requests within the system
//! call, so they do not block; events arrive by [`Subscription`], with a
//! timeout or, as [`Stream`], in tokio.
//! Nothing here reads a clock.

pub mod diag;
pub mod endpoints;
mod family;
mod generic;
pub mod home;
pub mod links;
mod lookup;
mod message;
mod mptcp_info;
pub mod nftables;
mod owner;
pub mod path_manager;
pub mod path_routes;
mod path_rules;
mod probe;
pub mod requests;
mod route;
mod socket;
mod subscription;
mod tcp_info;
pub mod udp;
pub mod unix;
pub mod wireless;

pub use lookup::interface_towards;
pub use message::{DecodeError, KernelError};
pub use probe::{
    PathManager, ProbeError, is_linux, probe, select_path_manager, selected_path_manager, user_space_setting,
};
pub use route::{Route, VXLAN_PORT, Wiring};
pub(crate) use socket::Channel;
pub use socket::{CallError, CommandError, OpenError};
pub use subscription::{EventError, Stream, Subscription};
pub use tcp_info::{TcpInfo, TcpState};
