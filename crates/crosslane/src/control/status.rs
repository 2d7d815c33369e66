//! Status of the running tunnels (`docs/reference/control-socket.md`).

use crosslane_core::path::PathId;
use crosslane_core::tunnel::{Mode, PathStats};
use serde::{Deserialize, Serialize};

use crate::tunnel::endpoint::{EndpointStatus, PeerStatusView};

/// Status of an agent's tunnels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tunnels {
    /// Its tunnel to a gateway or to vehicles, if it has one.
    #[serde(flatten)]
    pub tunnel: Option<Status>,
    /// The roadside units in reach, and the tunnels to them.
    pub units: Vec<UnitStatus>,
}

/// Status of a roadside unit and the tunnel to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitStatus {
    /// Its name, which is also that of its path and of the tunnel's interface.
    pub name: String,
    /// Its station id.
    pub station: u32,
    /// The slot that it holds; `None`: it has no path and no tunnel.
    pub slot: Option<u8>,
    /// Kind of the tunnel: `crosslane`, `vxlan`, `gre` or `none`.
    pub kind: String,
    /// What the agent believes of its path: `unknown`, `good`, `fading`, `lost` or `stalled`.
    pub belief: String,
    /// Smoothed RSSI of its CAMs, in dBm.
    pub rssi_dbm: f64,
    /// Time since its last CAM.
    pub last_cam_s: f64,
    /// Whether its tunnel is set up.
    pub has_tunnel: bool,
    /// Liveness of an encrypted tunnel, as of a [path](PathStatus); `None` for other kinds, which have none.
    pub liveness: Option<String>,
    /// Minimum of the recent RTTs of an encrypted tunnel; `None` while unknown.
    pub min_rtt_ms: Option<f64>,
    /// IP bytes sent into the tunnel since it was set up.
    pub sent_bytes: Option<u64>,
    /// IP bytes received from it.
    pub received_bytes: Option<u64>,
}

/// Status of a tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its interface.
    pub interface: String,
    /// `vehicle` or `gateway`.
    pub role: String,
    /// Whether what it sends is encrypted.
    pub encrypted: bool,
    /// Longest inner packet that every known path carries, in bytes.
    pub mtu_bytes: u32,
    /// A vehicle's gateway, a gateway's vehicles.
    pub peers: Vec<PeerStatus>,
}

const DOUBLED: &str = "two programs that run at the same time speak as this peer and take the paths from each other; give each its own key";

/// Status of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name: of a vehicle as in the gateway's configuration, else `gateway`.
    pub name: String,
    /// The gateway's address and port.
    pub address: Option<String>,
    /// How the paths are used together.
    pub mode: Mode,
    /// Longest inner packet that every known path of this peer carries, in bytes.
    pub mtu_bytes: u32,
    /// What is wrong with it, if anything.
    #[serde(default)]
    pub problem: Option<String>,
    /// Time since its last packet; `None`: none since the agent started.
    pub last_seen_s: Option<f64>,
    /// The paths; none are known with `rfc8086_only`.
    pub paths: Vec<PathStatus>,
}

/// Status of a path; the figures are of the sending direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathStatus {
    /// Its name; on a gateway its path number.
    pub path: String,
    /// Its wanted state: `active`, `backup` or `closed`.
    pub wanted_state: String,
    /// Its liveness: `unknown`, `up`, `probing`, `down` or `recovering`.
    pub liveness: String,
    /// The reason of that liveness, in a sentence.
    pub reason: String,
    /// What it carries and why, in a few words.
    #[serde(default)]
    pub carries: String,
    /// Its delivery rate; `None` while unknown.
    pub rate_mbit_s: Option<f64>,
    /// Minimum of its recent RTTs; `None` while unknown.
    pub min_rtt_ms: Option<f64>,
    /// Share of packets lost recently, 0 to 1.
    pub loss: f64,
    /// Bytes sent, as datagrams on the wire.
    pub sent_bytes: u64,
    /// Those of control messages: probes and reports.
    #[serde(default)]
    pub control_bytes: u64,
    /// Those of packets that were sent before, or at the same time over another path.
    #[serde(default)]
    pub copied_bytes: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Packets lost.
    pub lost: u64,
}

impl Status {
    /// The status of an endpoint with this interface; `names` are a vehicle's paths.
    pub fn new(interface: &str, names: &[impl AsRef<str>], endpoint: EndpointStatus) -> Status {
        let names = if endpoint.is_initiator { names } else { &[] };
        let path = |(path, view): (PathId, PathStats)| PathStatus {
            path: path_name(names, path),
            wanted_state: view.wanted_state.name().into(),
            liveness: view.liveness.name().into(),
            reason: view.reason,
            carries: view.carries,
            rate_mbit_s: view.rate_bit_s.map(|rate| rate / 1e6),
            min_rtt_ms: view.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            loss: view.loss,
            sent_bytes: view.sent_bytes,
            control_bytes: view.control_bytes,
            copied_bytes: view.copied_bytes,
            delivered: view.delivered,
            lost: view.lost,
        };
        let peer = |peer: PeerStatusView| PeerStatus {
            name: peer.name,
            address: peer.at.map(|at| at.to_string()),
            mode: peer.mode,
            mtu_bytes: peer.mtu_bytes,
            problem: peer.is_doubled.then(|| DOUBLED.into()),
            last_seen_s: peer.last_seen_ago.map(|ago| ago.as_secs_f64()),
            paths: peer.paths.into_iter().map(path).collect(),
        };
        Status {
            interface: interface.into(),
            role: if endpoint.is_initiator { "vehicle" } else { "gateway" }.into(),
            encrypted: endpoint.is_encrypted,
            mtu_bytes: endpoint.mtu_bytes,
            peers: endpoint.peers.into_iter().map(peer).collect(),
        }
    }
}

/// A path's name; its number if the peer names the paths.
pub fn path_name(names: &[impl AsRef<str>], path: PathId) -> String {
    names.get(usize::from(path.0)).map_or_else(|| path.0.to_string(), |name| name.as_ref().to_owned())
}
