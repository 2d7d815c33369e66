//! Status of an endpoint for users, and the mode that they may change.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crosslane_core::engine::Engine;
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_core::tunnel::wire::control_message::MAX_PATHS;
use crosslane_core::tunnel::{Input, Mode, PathStats};

use super::peer::{Peer, PeerEngine};
use super::{Endpoint, lock};
use crate::error::{Error, Result};

/// Status of an endpoint.
#[derive(Debug)]
pub struct EndpointStatus {
    /// Whether this is the vehicle.
    pub is_initiator: bool,
    /// Whether what it sends is encrypted.
    pub is_encrypted: bool,
    /// Longest inner packet that every path of every peer carries, in bytes.
    pub mtu_bytes: u32,
    /// The peers.
    pub peers: Vec<PeerStatusView>,
}

/// Status of a peer.
#[derive(Debug)]
pub struct PeerStatusView {
    /// Its name in records and logs.
    pub name: String,
    /// Its address; none: that of its newest packet.
    pub at: Option<SocketAddr>,
    /// How its paths are used together; that of an RFC 8086 peer has no effect.
    pub mode: Mode,
    /// Longest inner packet that all its paths carry, in bytes.
    pub mtu_bytes: u32,
    /// Whether two programs that run at the same time speak as this peer.
    pub is_doubled: bool,
    /// Time since its last packet; none: never received.
    pub last_seen_ago: Option<Duration>,
    /// Its paths; none are known of an RFC 8086 peer.
    pub paths: Vec<(PathId, PathStats)>,
}

impl Endpoint {
    /// Status of this endpoint.
    pub fn status(&self, now: Instant) -> EndpointStatus {
        EndpointStatus {
            is_initiator: self.setup.is_initiator,
            is_encrypted: self.keys.is_some(),
            mtu_bytes: self.peers.iter().map(|(_, peer)| peer.mtu.load(Relaxed)).min().unwrap_or(self.mtu),
            peers: self.peers.iter().map(|(_, peer)| self.peer_status(now, peer)).collect(),
        }
    }

    fn peer_status(&self, now: Instant, peer: &Peer) -> PeerStatusView {
        let (mode, is_doubled, paths) = match &peer.engine {
            PeerEngine::Rfc8086(_) => (self.setup.mode, false, Vec::new()),
            PeerEngine::Multipath(tunnel) => {
                let tunnel = lock(tunnel);
                let paths = (0..MAX_PATHS as u8).map(PathId);
                let paths = paths.filter_map(|path| Some((path, tunnel.path(path)?))).collect();
                (tunnel.mode(), tunnel.has_doubled_peer(now), paths)
            }
        };
        PeerStatusView {
            name: peer.plan.name.clone(),
            at: peer.plan.at,
            mode,
            is_doubled,
            mtu_bytes: peer.mtu.load(Relaxed),
            last_seen_ago: peer.contact.last_received_ago(now),
            paths,
        }
    }

    /// Sets the mode, which the gateway then follows; returns the previous
    /// one.
    ///
    /// # Errors
    /// This endpoint does not control the mode.
    pub fn use_mode(&self, now: Instant, mode: Mode) -> Result<Mode> {
        let rejected = |cause, remedy| Err(Error::usage("changing the tunnel's mode", cause, remedy));
        let Some(gateway) = self.peers.first().filter(|_| self.setup.is_initiator) else {
            let cause = "this is the gateway, which uses the paths of each vehicle as that vehicle does";
            return rejected(cause, "run `crosslane tunnel mode` on the vehicle");
        };
        let Some(mut tunnel) = gateway.multipath() else {
            let cause = "with `rfc8086_only` the tunnel uses one path at a time";
            return rejected(cause, "remove `rfc8086_only` if the peer is Crosslane too");
        };
        let previous = tunnel.mode();
        tunnel.handle(now, Input::SetMode(mode));
        Ok(previous)
    }
}
