//! What an end is to be, and what is seen of it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crosslane_core::path::PathId;
use crosslane_core::tunnel::{Liveness, Mode, Output};

use super::super::config::Prefix;
use super::super::security::{PrivateKey, PublicKey};

/// A packet in the tunnel.
#[derive(Clone, Debug)]
pub struct Carried {
    /// The IP packet.
    pub bytes: Arc<[u8]>,
    /// DSCP and ECN of its outer header, as it goes or as it came.
    pub tos: u8,
}

/// What the engine says, for the outbox.
pub(super) type EngineOutput = Output<Carried>;

/// Another end, as this one is told of it.
#[derive(Clone, Debug)]
pub struct PeerPlan {
    /// Name in records and logs.
    pub name: String,
    /// Inner addresses that lead there, and that it may use; empty: all.
    pub prefixes: Vec<Prefix>,
    /// Where it is; none: that is learnt.
    pub at: Option<SocketAddr>,
}

/// What an end is to be.
#[derive(Debug)]
pub struct Plan {
    /// The others: a vehicle's gateway, a gateway's vehicles.
    pub peers: Vec<PeerPlan>,
    /// Keys, in the order of the peers; none: a plain tunnel.
    pub keys: Option<(PrivateKey, Vec<PublicKey>)>,
    /// Whether this is the vehicle.
    pub is_initiator: bool,
    /// How the paths are used together.
    pub mode: Mode,
    /// Place of each path in the user's preference, 0 first.
    pub ranks: Vec<u8>,
    /// Bytes that the tunnel adds, the outer IP header included.
    pub overhead_bytes: u32,
    /// Longest packet inside, in bytes.
    pub mtu: u32,
    /// Our inner addresses, from which "too big" is answered where a group was addressed.
    pub addresses: Vec<IpAddr>,
    /// The other ends speak GRE-in-UDP (RFC 8086) and nothing beyond: packets go
    /// without key, number and order over the most preferred path that is there.
    pub standard: bool,
}

/// Where a path leads: by which of our sockets, and to which address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Place of the socket.
    pub via: usize,
    /// The other end's address.
    pub to: SocketAddr,
    /// Which of our addresses it knows; none: the socket's.
    pub from: Option<IpAddr>,
}

/// What did not go through.
#[derive(Debug, Default)]
pub struct Counts {
    /// Datagrams that were forged, replayed, of strangers, or none of ours.
    pub rejected: AtomicU64,
    /// Packets whose inner addresses lead nowhere or are not the sender's.
    pub misrouted: AtomicU64,
    /// Packets longer than the tunnel takes.
    pub too_big: AtomicU64,
    /// Datagrams that the kernel did not take.
    pub send_errors: AtomicU64,
}

/// A change of a path's health, to be told.
#[derive(Debug)]
pub struct Change {
    /// Name of the peer.
    pub peer: String,
    /// The path.
    pub path: PathId,
    /// Its health.
    pub liveness: Liveness,
    /// Why.
    pub reason: String,
}
