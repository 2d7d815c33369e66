//! What is known of each path: its name and kind, and the samples about it.

use alloc::string::String;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use serde::{Deserialize, Serialize};

use crate::time::{Duration, Instant};

/// A path, by its place in the configuration (0 to 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

/// Radio access technology of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Rat {
    /// IEEE 802.11p (OCB mode at 5.9 GHz) to roadside units.
    #[serde(rename = "80211p")]
    Ieee80211p,
    /// Infrastructure Wi-Fi.
    #[serde(rename = "wifi")]
    Wifi,
    /// 4G.
    #[serde(rename = "lte")]
    Lte,
    /// 5G.
    #[serde(rename = "nr")]
    Nr,
}

impl Rat {
    /// True for networks of an operator, which reach farther and cost more.
    pub fn is_cellular(self) -> bool {
        matches!(self, Rat::Lte | Rat::Nr)
    }
}

/// What the configuration says of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSpec {
    /// Name in configuration, records and figures.
    pub name: String,
    /// Radio access technology.
    pub rat: Rat,
    /// Our address on this path, while it has one.
    pub local: Option<IpAddr>,
    /// Index of the interface, 0 if the kernel may choose.
    pub if_index: u32,
}

/// What is wanted of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathState {
    /// No subflow over it.
    Closed,
    /// A subflow that carries nothing while an active one lives.
    Backup,
    /// A subflow that carries data.
    Active,
}

impl PathState {
    /// The name in records and logs.
    pub fn name(self) -> &'static str {
        match self {
            PathState::Closed => "closed",
            PathState::Backup => "backup",
            PathState::Active => "active",
        }
    }
}

/// What becomes of the subflow on a path that fades.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFade {
    /// It becomes a backup.
    #[default]
    Backup,
    /// It is closed.
    Close,
}

/// One observation, from a radio, a roadside message, the kernel or the tunnel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Which path it is about.
    pub path: PathId,
    /// What was observed.
    pub kind: SampleKind,
}

/// What a [`Sample`] says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SampleKind {
    /// Received signal strength, in dBm (−120 to 0).
    Signal {
        /// RSSI (802.11p, Wi-Fi) or RSRP (cellular), in dBm.
        rssi_dbm: f32,
        /// Station id of the C-ITS sender, where the sample is of its message.
        station: Option<u32>,
    },
    /// The interface is up, or down.
    Link {
        /// True if it can carry packets.
        up: bool,
    },
    /// What a connection received over this path regularly broke off.
    Break(Break),
    /// How the transport fares on one subflow over this path.
    Transport(Transport),
    /// What the path's interface has carried.
    Counters(Counters),
}

/// A rhythm that broke off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Break {
    /// The path that is suspected.
    pub path: PathId,
    /// When the last message came over it.
    pub last: Instant,
    /// How long nothing has come over any.
    pub waited: Duration,
    /// The second longest pause before.
    pub longest: Duration,
}

/// Packets that an interface has carried since it came to be, whomever for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
}

/// Excerpt of a subflow's `tcp_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Connection that the subflow belongs to.
    pub token: u32,
    /// The peer's end of it.
    pub peer: SocketAddr,
    /// True if this end accepted the connection. Its subflows then share one
    /// path here, whatever paths they took, and each is judged by itself.
    pub accepted: bool,
    /// True if it is a backup, by the wish of either end.
    pub backup: bool,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rttvar: Duration,
    /// Segments sent and not yet acknowledged.
    pub unacked: u32,
    /// Segments that reached the peer since the subflow began, those told by
    /// SACK included.
    pub delivered: u32,
    /// Bytes acknowledged since the subflow began.
    pub bytes_acked: u64,
    /// Bytes that wait to be sent for the first time.
    pub notsent_bytes: u32,
    /// Bytes received since the subflow began.
    pub bytes_received: u64,
}

impl Transport {
    /// Stands for the peer where there is but one.
    pub const NO_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
}
