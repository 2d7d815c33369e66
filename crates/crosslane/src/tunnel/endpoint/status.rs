//! What people see of an end while it works, and what they may change.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crosslane_core::engine::Engine;
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_core::tunnel::wire::control_message::MAX_PATHS;
use crosslane_core::tunnel::{Input, Mode, PathStats};

use super::{End, Peer, lock};
use crate::error::{Error, Result};

/// What is known of an end.
#[derive(Debug)]
pub struct EndpointStatus {
    /// Whether this is the vehicle.
    pub is_initiator: bool,
    /// Whether what it sends is encrypted.
    pub is_encrypted: bool,
    /// Longest packet inside that every path of every other end carries, in bytes.
    pub mtu_bytes: u32,
    /// The other ends.
    pub peers: Vec<PeerStatusView>,
}

/// What is known of another end.
#[derive(Debug)]
pub struct PeerStatusView {
    /// Its name in records and logs.
    pub name: String,
    /// Where it is; none: where its newest packet came from.
    pub at: Option<SocketAddr>,
    /// How the paths there are used together.
    pub mode: Mode,
    /// Longest packet inside that every path there carries, in bytes.
    pub mtu_bytes: u32,
    /// How long ago it was heard; none: never.
    pub last_seen_ago: Option<Duration>,
    /// The paths there; of a standard peer nothing is known of them.
    pub paths: Vec<(PathId, PathStats)>,
}

impl End {
    /// What is known of this end.
    pub fn view(&self, now: Instant) -> EndpointStatus {
        EndpointStatus {
            is_initiator: self.is_initiator,
            is_encrypted: self.security.is_some(),
            mtu_bytes: self.peers.iter().map(|peer| peer.mtu.load(Relaxed)).min().unwrap_or(self.mtu),
            peers: self.peers.iter().map(|peer| self.peer_view(now, peer)).collect(),
        }
    }

    fn peer_view(&self, now: Instant, peer: &Peer) -> PeerStatusView {
        let tunnel = lock(&peer.tunnel);
        let paths = (0..MAX_PATHS as u8).map(PathId).filter(|_| !self.standard);
        let heard_ns = peer.heard_ns.load(Relaxed);
        PeerStatusView {
            name: peer.name.clone(),
            at: peer.at,
            mode: tunnel.mode(),
            mtu_bytes: peer.mtu.load(Relaxed),
            last_seen_ago: (heard_ns > 0).then(|| now.since(Instant::from_nanos(heard_ns))),
            paths: paths.filter_map(|path| Some((path, tunnel.path(path)?))).collect(),
        }
    }

    /// Uses the paths so from now on, and lets the gateway follow; how they were
    /// used before.
    ///
    /// # Errors
    /// That is not for this end to say.
    pub fn use_mode(&self, now: Instant, mode: Mode) -> Result<Mode> {
        let refused = |cause, remedy| Err(Error::usage("changing the tunnel's mode", cause, remedy));
        let Some(gateway) = self.peers.first().filter(|_| self.is_initiator) else {
            let cause = "this is the gateway, which uses the paths of each vehicle as that vehicle does";
            return refused(cause, "run `crosslane tunnel mode` on the vehicle");
        };
        if self.standard {
            let cause = "with `standard` the tunnel uses one path at a time";
            return refused(cause, "leave `standard` out where the other end is Crosslane too");
        }
        let mut tunnel = lock(&gateway.tunnel);
        let was = tunnel.mode();
        tunnel.handle(now, Input::SetMode(mode));
        Ok(was)
    }
}
