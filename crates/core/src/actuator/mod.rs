//! Actuators: wanted states of the paths in, commands out.
//!
//! An actuator knows no strategy. The agent passes every decision, with its reasons, and
//! every event to each of its actuators. To add one: a file here, its variant of
//! [`Command`], and the driver that carries out the command.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::assess::{Belief, StalledSubflow};
use crate::mptcp::manager::{ConnectionChange, ConnectionView, PathUse};
use crate::mptcp::{
    self, ConnectionSnapshot, HandshakeCounters, MeasuredSubflow, Notice, PlainConnection, Refusal, Token,
};
use crate::path::{PathId, PathSpec, PathState};
use crate::reason::Reason;
use crate::time::Instant;
use crate::wanted::{ConnectionClass, Wanted};

mod kernel_endpoints;
mod mptcp_subflows;
mod packet_scheduler;

pub use kernel_endpoints::{Endpoint, EndpointCommand, EndpointPolicy, FIRST_ID as FIRST_ENDPOINT_ID, KernelEndpoints};
pub use packet_scheduler::{PacketScheduler, Steering};

/// What is known of a path when its wanted state is decided.
#[derive(Clone, Debug)]
pub struct Verdict<'a> {
    /// The belief about it.
    pub belief: Belief,
    /// The reason for its wanted state for the default class of connections; empty until a decision.
    pub reason: &'a Reason,
    /// The same for each further class.
    pub further: &'a [&'a Reason],
}

impl<'a> Verdict<'a> {
    /// The reasons for its wanted state, for each class of connections.
    pub fn reasons(&self) -> impl Iterator<Item = &'a Reason> {
        core::iter::once(self.reason).chain(self.further.iter().copied())
    }
}

/// An event for actuators; each processes those that concern it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An event of the kernel's MPTCP.
    Mptcp(mptcp::Event),
    /// The list of all MPTCP connections, after a start or after events were lost.
    Resync(Vec<ConnectionSnapshot>),
    /// The kernel refused an MPTCP command, for this reason.
    Refused(mptcp::Command, Refusal),
    /// The kernel's counters of handshakes, and the connections that fell back to TCP.
    Handshakes(HandshakeCounters, Vec<PlainConnection>),
    /// An MPTCP connection belongs to this class.
    Class(Token, ConnectionClass),
    /// A subflow is stalled while others of its path carry data.
    Stalled(PathId, StalledSubflow),
    /// The endpoints of the kernel's path manager; `None` while it manages no new connections.
    Endpoints(Option<Vec<Endpoint>>),
    /// The addresses of endpoints whose backup flag some of their subflows do not have, after a change that came while
    /// these were being joined. Follows the list of endpoints.
    Missed(Vec<IpAddr>),
    /// The tunnel began to run.
    TunnelStarted,
    /// The address of a path changed or was removed.
    Address {
        /// The path.
        path: PathId,
        /// Local address on it.
        local: Option<IpAddr>,
        /// Index of its interface.
        if_index: u32,
    },
    /// An address that a path had before the agent started; subflows from it may
    /// remain.
    FormerAddress {
        /// The path.
        path: PathId,
        /// The address.
        local: IpAddr,
    },
    /// A path was added, or replaces a removed one.
    PathAdded(PathId, PathSpec),
}

/// A command to what carries data.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// To the kernel's MPTCP, about a subflow or address of this path.
    Mptcp(PathId, mptcp::Command),
    /// To the kernel's own path manager, about an endpoint.
    Endpoint(EndpointCommand),
    /// To the packet scheduler: the tunnel's, or the one of the simulated kernels.
    Steer(Steering),
}

/// An output of an actuator.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A command to execute.
    Command(Command),
    /// A notice to the user.
    Notice(Notice),
}

/// Carries out the wanted states of paths for one kind of transport; a loop like that of
/// every [`Engine`](crate::engine::Engine).
pub trait Actuator: Send {
    /// Applies the wanted states; `verdicts` has one entry for each path.
    fn apply(&mut self, wanted: &Wanted, verdicts: &[Verdict]);

    /// Processes an event.
    fn handle(&mut self, now: Instant, event: &Event);

    /// The next output due at `now`, if any.
    fn poll(&mut self, now: Instant) -> Option<Output>;

    /// When to poll again if nothing else happens; `None`: never.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    /// The state in which paths already are according to an event, so that an agent
    /// that starts in the middle of a connection adopts it.
    fn found(&self, _event: &Event) -> Vec<(PathId, PathState)> {
        Vec::new()
    }

    /// The subflows to measure, in the order of their connections' tokens: those after a token.
    fn subflows(&self, _after: Option<Token>) -> Box<dyn Iterator<Item = MeasuredSubflow> + '_> {
        Box::new(core::iter::empty())
    }

    /// One of them, by its connection and its local and remote address.
    fn subflow(&self, _token: Token, _local: SocketAddr, _remote: SocketAddr) -> Option<MeasuredSubflow> {
        None
    }

    /// The connections that it manages, in the order of their tokens: at most `limit`, the
    /// first the next one after a token.
    fn connections(&self, _after: Option<Token>, _limit: usize) -> Vec<ConnectionView> {
        Vec::new()
    }

    /// How a connection uses each path; `None`: it does not manage it.
    fn path_uses(&self, _now: Instant, _token: Token) -> Option<Vec<PathUse>> {
        None
    }

    /// What happened last to a connection, the oldest first.
    fn history(&self, _token: Token) -> Vec<ConnectionChange> {
        Vec::new()
    }

    /// What the network of each path, or of all (`None`), does to what it manages.
    fn network_faults(&self, _now: Instant) -> Vec<(Option<PathId>, Reason)> {
        Vec::new()
    }

    /// Number of connections that it manages.
    fn connection_count(&self) -> usize {
        0
    }

    /// Number of connections since the start that are left to the kernel for lack of
    /// room.
    fn left_out(&self) -> u64 {
        0
    }
}
