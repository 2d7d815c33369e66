//! What a tunnel is told, and what it says.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::send_path::Liveness;
use super::wire::control_message::Message;
use super::wire::gre_key::GreKey;
use crate::path::{PathId, PathState};
use crate::time::Duration;

/// How the paths in use are used together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Each packet over the path on which it arrives first.
    #[default]
    Aggregate,
    /// Each packet over two paths or more; the first to arrive counts.
    Redundant,
    /// All over the most preferred path that works.
    Standby,
    /// Over the most preferred path that works, and the next as far as it is full.
    CheapestFirst,
    /// Each flow over one path.
    PerFlow,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 5] = [Mode::Aggregate, Mode::Redundant, Mode::Standby, Mode::CheapestFirst, Mode::PerFlow];

    /// The name in configurations, records and commands.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Aggregate => "aggregate",
            Mode::Redundant => "redundant",
            Mode::Standby => "standby",
            Mode::CheapestFirst => "cheapest-first",
            Mode::PerFlow => "per-flow",
        }
    }

    pub(super) fn code(self) -> u8 {
        self as u8
    }

    pub(super) fn of_code(code: u8) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.code() == code)
    }
}

/// How a tunnel is to work.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How it uses its paths until told otherwise.
    pub mode: Mode,
    /// Whether the other end follows this one: the vehicle leads, the gateway follows.
    pub is_initiator: bool,
    /// Place of each path in the user's preference, 0 first.
    pub ranks: Vec<u8>,
    /// A number that differs from that of the last start.
    pub epoch: u32,
    /// Bytes that a datagram adds to the GRE packet on the wire, headers of
    /// UDP and IP included.
    pub overhead_bytes: u32,
}

/// What a tunnel is told.
#[derive(Clone, Debug)]
pub enum Input<P> {
    /// A packet to be carried.
    Packet {
        /// Slot of its flow.
        flow: u8,
        /// Its length, in bytes.
        bytes: u32,
        /// Whether its flow takes what it can get (RFC 1633, section 3.1), as
        /// TCP does, and no delay matters but the time until all is there.
        bulk: bool,
        /// The packet.
        packet: P,
    },
    /// A packet came over a path.
    Arrived {
        /// From its key.
        key: GreKey,
        /// Its number on the path, if it has one.
        number: Option<u32>,
        /// Its length, in bytes.
        bytes: u32,
        /// The packet.
        packet: P,
    },
    /// A packet came that says nothing of path and order: its sender is not of our kind.
    Keyless(P),
    /// A message of the other end came over a path.
    Message {
        /// The path.
        path: PathId,
        /// Its number on the path.
        number: Option<u32>,
        /// The message.
        message: Message,
    },
    /// A path can be used, or cannot.
    Present(PathId, bool),
    /// What is wanted of each path.
    SetWantedStates(Vec<PathState>),
    /// How the paths are to be used together from now on.
    SetMode(Mode),
}

/// What a tunnel says.
#[derive(Clone, Debug)]
pub enum Output<P> {
    /// A packet leaves over a path.
    Send {
        /// For its key.
        key: GreKey,
        /// Its number on the path.
        number: u32,
        /// The packet.
        packet: P,
    },
    /// A message leaves over a path.
    Message {
        /// The path.
        path: PathId,
        /// Its number on the path, if it has one.
        number: Option<u32>,
        /// The message.
        message: Message,
    },
    /// A packet came out of the tunnel.
    Deliver(P),
    /// The health of a path has changed.
    Changed {
        /// The path.
        path: PathId,
        /// Its health.
        liveness: Liveness,
        /// Why, in a sentence.
        reason: String,
    },
}

/// What is known of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStats {
    /// What is wanted of it.
    pub wanted_state: PathState,
    /// Whether it carries.
    pub liveness: Liveness,
    /// Why it has that health, in a sentence.
    pub reason: String,
    /// Rate at which it delivers, in bits a second of GRE packets.
    pub rate_bit_s: Option<f64>,
    /// Shortest round trip.
    pub rtt: Option<Duration>,
    /// Share of packets lost, lately.
    pub loss: f64,
    /// Bytes sent, as datagrams on the wire.
    pub sent_bytes: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Packets lost.
    pub lost: u64,
}
