//! Parameters, packets and counts of an endpoint.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crosslane_core::path::PathId;
use crosslane_core::tunnel::wire::overhead::Overhead;
use crosslane_core::tunnel::{Copies, Keepalive, Liveness, Mode, Output};
use ipnet::IpNet;

use super::super::security::{PrivateKey, PublicKey};

/// A packet in the tunnel.
#[derive(Clone, Debug)]
pub struct TunnelPacket {
    /// The IP packet.
    pub bytes: Arc<[u8]>,
    /// DSCP and ECN of its outer header, to send or as received.
    pub tos: u8,
}

/// An output of the engine, for the outbox.
pub(super) type EngineOutput = Output<TunnelPacket>;

/// A peer in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPlan {
    /// Name in records and logs.
    pub name: String,
    /// Inner addresses that are routed to it, and that it may use; empty: all.
    pub prefixes: Vec<IpNet>,
    /// Its address; none: it is learned.
    pub at: Option<SocketAddr>,
}

/// Parameters of an endpoint.
#[derive(Debug)]
pub struct Plan {
    /// The peers: a vehicle's gateway, a gateway's vehicles.
    pub peers: Vec<PeerPlan>,
    /// Keys, in the order of the peers; none: an unencrypted tunnel.
    pub keys: Option<(PrivateKey, Vec<PublicKey>)>,
    /// Whether this is the vehicle.
    pub is_initiator: bool,
    /// The mode.
    pub mode: Mode,
    /// Place of each path in the user's preference, 0 first.
    pub ranks: Vec<u8>,
    /// For mode adaptive.
    pub copies: Copies,
    /// Keepalives of the first paths of a vehicle; the others have the default.
    pub keepalives: Vec<Keepalive>,
    /// The headers that the tunnel adds.
    pub overhead: Overhead,
    /// Longest inner packet, in bytes.
    pub mtu: u32,
    /// Maximum number of peers that it ever has, with those that leave.
    pub max_peers: usize,
    /// Our inner addresses, the sources of "too big" messages about multicast packets.
    pub addresses: Vec<IpAddr>,
    /// The peers implement RFC 8086 (GRE-in-UDP) and nothing beyond: packets go
    /// without key and sequence number over the most preferred present path.
    pub rfc8086_only: bool,
}

/// Addresses of a path: our socket and the peer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathAddress {
    /// Index of the socket.
    pub via: usize,
    /// The peer's address.
    pub to: SocketAddr,
    /// Our address that the peer uses; none: the socket's.
    pub from: Option<IpAddr>,
}

/// Counts of packets that were not carried.
#[derive(Debug, Default)]
pub struct Counts {
    /// Datagrams that were forged, replayed, from unknown peers, or malformed.
    pub rejected: AtomicU64,
    /// Packets whose destination has no peer or whose source is not the sender's.
    pub misrouted: AtomicU64,
    /// Packets longer than the tunnel carries.
    pub too_big: AtomicU64,
    /// Datagrams that the kernel did not accept.
    pub send_errors: AtomicU64,
}

/// A change of a path's liveness.
#[derive(Debug)]
pub struct Change {
    /// Name of the peer.
    pub peer: String,
    /// The path.
    pub path: PathId,
    /// Its liveness.
    pub liveness: Liveness,
    /// The reason.
    pub reason: String,
}
