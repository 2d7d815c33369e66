//! Inputs, outputs, setup and status of a tunnel.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::send_path::Liveness;
use super::wire::control_message::Message;
use super::wire::gre_key::GreKey;
use super::wire::overhead::Overhead;
use super::wire::path_feedback::PathFeedback;
use crate::parameters::Choice;
use crate::path::{PathId, PathState};
use crate::time::Duration;
use crate::wanted::Order;

/// How the active paths are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Each packet on the path with the earliest expected arrival.
    #[default]
    Aggregate,
    /// Each packet on two or more paths; the first copy counts.
    Redundant,
    /// All packets on the most preferred path that is up.
    Standby,
    /// On the most preferred path that is up, and on the next when it is full.
    CheapestFirst,
    /// Each flow on one path.
    PerFlow,
    /// As cheapest-first, but over another path while the answers of a path are late, with copies of what is at risk.
    Adaptive,
}

/// How the driver protects what the tunnel carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encryption {
    /// Noise IK, as WireGuard has it (decision 26).
    #[default]
    Noise,
    /// GRE-in-UDP in the clear (RFC 8086).
    None,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 6] =
        [Mode::Aggregate, Mode::Redundant, Mode::Standby, Mode::CheapestFirst, Mode::PerFlow, Mode::Adaptive];

    /// Whether the order of the paths decides which one carries.
    pub(super) fn follows_order(self) -> bool {
        matches!(self, Mode::Standby | Mode::CheapestFirst | Mode::Adaptive)
    }

    /// The name in configurations, records and commands.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Aggregate => "aggregate",
            Mode::Redundant => "redundant",
            Mode::Standby => "standby",
            Mode::CheapestFirst => "cheapest-first",
            Mode::PerFlow => "per-flow",
            Mode::Adaptive => "adaptive",
        }
    }
}

impl Choice for Mode {
    fn choices() -> Vec<(&'static str, Mode)> {
        Mode::ALL.map(|mode| (mode.name(), mode)).into()
    }
}

impl Choice for Encryption {
    fn choices() -> Vec<(&'static str, Encryption)> {
        vec![("noise", Encryption::Noise), ("none", Encryption::None)]
    }
}

/// What mode adaptive counts as late, and may send twice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Copies {
    /// A packet that is later than this is as bad as lost.
    pub late: Duration,
    /// Bytes that may be sent twice, as a share of the bytes of packets in any ten seconds (0 to 1).
    pub extra_bytes: f64,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies { late: Duration::from_millis(100), extra_bytes: 0.1 }
    }
}

/// Configuration of a tunnel.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The mode until it is changed.
    pub mode: Mode,
    /// Whether the peer follows this endpoint's mode, wanted states and order: true for the vehicle, false for the
    /// gateway.
    pub is_initiator: bool,
    /// For mode adaptive.
    pub copies: Copies,
    /// Preference of each path by the user, 0 first.
    pub ranks: Vec<u8>,
    /// A number that differs from that of the previous start.
    pub epoch: u32,
    /// The headers around a packet on the wire.
    pub overhead: Overhead,
}

/// An input of a tunnel.
#[derive(Clone, Debug)]
pub enum Input<P> {
    /// A packet to carry.
    Packet {
        /// Slot of its flow.
        flow: u8,
        /// Its length, in bytes.
        bytes: u32,
        /// Whether its flow is bulk (elastic, RFC 1633, section 3.1), as TCP is: only the completion time
        /// of the whole transfer matters.
        bulk: bool,
        /// The packet.
        packet: P,
    },
    /// A packet arrived on a path.
    Arrived {
        /// Its GRE key.
        key: GreKey,
        /// Its path sequence number, if it has one.
        number: Option<u32>,
        /// Its length, in bytes.
        bytes: u32,
        /// Feedback that it carries.
        feedback: Option<PathFeedback>,
        /// Whether it is a pure acknowledgement of TCP: it is delivered at once, in whatever order.
        is_pure_ack: bool,
        /// The packet.
        packet: P,
    },
    /// A packet without GRE key arrived: its sender is another implementation.
    Keyless(P),
    /// A message of the peer arrived on a path.
    Message {
        /// The path.
        path: PathId,
        /// Its path sequence number, if it has one.
        number: Option<u32>,
        /// The message.
        message: Message,
    },
    /// A path is present (true) or not (false).
    Present(PathId, bool),
    /// The wanted state of each path.
    SetWantedStates(Vec<PathState>),
    /// The order of the paths from now on, which modes standby, cheapest-first and adaptive follow; paths that it lacks
    /// come after these, by the user's preference. Without one mode cheapest-first is mode aggregate. Ignored if it has
    /// a path twice, or one that cannot exist.
    SetOrder(Order),
    /// The mode from now on.
    SetMode(Mode),
}

/// An output of a tunnel.
#[derive(Clone, Debug)]
pub enum Output<P> {
    /// A packet to send on a path.
    Send {
        /// Its GRE key.
        key: GreKey,
        /// Its path sequence number.
        number: u32,
        /// Feedback that it carries.
        feedback: Option<PathFeedback>,
        /// The packet.
        packet: P,
    },
    /// A message to send on a path.
    Message {
        /// The path.
        path: PathId,
        /// Its path sequence number, if it has one.
        number: Option<u32>,
        /// The message.
        message: Message,
    },
    /// A packet to deliver.
    Deliver(P),
    /// The liveness of a path changed.
    Changed {
        /// The path.
        path: PathId,
        /// Its liveness.
        liveness: Liveness,
        /// The reason, one sentence.
        reason: String,
    },
}
