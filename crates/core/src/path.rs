//! Paths: name, access technology and wanted state, and the samples about them.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use serde::{Deserialize, Serialize};

use crate::parameters::Choice;
use crate::time::{Duration, Instant};

/// Maximum number of paths.
pub const MAX_PATHS: usize = 16;

/// Something for each of the paths, in the order of their ids.
pub type PerPath<T> = ArrayVec<T, MAX_PATHS>;

/// A path, by its index in the configuration (0 to 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

/// Radio access technology of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Rat {
    /// IEEE 802.11p (OCB mode at 5.9 GHz) to roadside units.
    #[default]
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
    /// Any other, whose signal is not known: Ethernet, a satellite terminal, a Wi-Fi bridge.
    #[serde(rename = "other")]
    Other,
}

impl Rat {
    /// True for an operator's networks, which have a longer range and cost more.
    pub fn is_cellular(self) -> bool {
        matches!(self, Rat::Lte | Rat::Nr)
    }

    /// True for short-range radios: that their interface is up does not prove that a peer is in range.
    pub fn needs_signal(self) -> bool {
        matches!(self, Rat::Ieee80211p | Rat::Wifi)
    }
}

/// Number of the radio over which an agent reaches the roadside units that it discovers.
pub const UNITS_RADIO: u8 = 255;

/// Configuration of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSpec {
    /// Name in configuration, records and figures.
    pub name: String,
    /// Radio access technology.
    pub rat: Rat,
    /// Local address on this path, if it has one.
    pub local: Option<IpAddr>,
    /// Index of the interface, 0 if the kernel may choose.
    pub if_index: u32,
    /// Number of the radio that it shares with all paths of the same number: their
    /// packets wait in one transmit queue for one channel. `None`: it shares none.
    pub radio: Option<u8>,
}

/// Wanted state of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathState {
    /// No subflow over it.
    #[default]
    Closed,
    /// A subflow that carries no data while an active one exists.
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

/// What happens to the subflow on a fading path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFade {
    /// It becomes a backup.
    #[default]
    Backup,
    /// It is closed.
    Close,
}

impl Choice for OnFade {
    fn choices() -> Vec<(&'static str, OnFade)> {
        vec![("backup", OnFade::Backup), ("close", OnFade::Close)]
    }
}

/// One observation, from a radio, a roadside message, the kernel or the tunnel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The path.
    pub path: PathId,
    /// What was observed.
    pub kind: SampleKind,
}

/// Content of a [`Sample`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SampleKind {
    /// Received signal strength, in dBm (−120 to 0).
    Signal(Signal),
    /// Rates and failures of the radio link.
    Radio(RadioLink),
    /// Position, heading and speed of the vehicle.
    Vehicle(VehicleState),
    /// The modem reported a measurement that precedes a handover, or that the handover is over.
    Handover {
        /// True from the report on, false when packets pass again.
        is_announced: bool,
    },
    /// The interface is up, or down.
    Link {
        /// True if it can carry packets.
        up: bool,
    },
    /// Regular messages that a connection received over this path stopped.
    Break(Break),
    /// Transport statistics of one subflow over this path.
    Transport(Transport),
    /// Packet counters of the path's interface.
    Counters(Counters),
    /// What its subflows carried in the last second.
    Carried(Carried),
    /// Whether the roadside unit of the path is proven to be in reach: it answers probes, or
    /// data is delivered. Without this sample it is unknown.
    UnitAnswers(bool),
    /// What the echo requests show of the path while it carries nothing.
    Echo(Echo),
}

/// The state of the echo requests over a path, after one was sent or answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Echo {
    /// When the oldest one that waits for an answer was sent, of those after the last answered one.
    pub waiting_since: Option<Instant>,
    /// RTT of the one that was answered now.
    pub rtt: Option<Duration>,
}

/// A received signal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signal {
    /// RSSI (802.11p, Wi-Fi) or RSRP (cellular), in dBm (−120 to 0).
    pub rssi_dbm: f32,
    /// RSRQ, in dB (3GPP TS 36.214, section 5.1.3).
    pub rsrq_db: Option<f32>,
    /// SINR, in dB.
    pub sinr_db: Option<f32>,
    /// Station id of the C-ITS sender, if the sample is from a C-ITS message.
    pub station: Option<u32>,
    /// Position of the sender, if the message has one.
    pub sender: Option<Position>,
}

/// Rates and failures of a radio link, as nl80211 and modems report them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RadioLink {
    /// PHY rate of the last transmission, in bit/s.
    pub tx_bit_s: Option<f64>,
    /// PHY rate of the last reception, in bit/s.
    pub rx_bit_s: Option<f64>,
    /// Retransmissions of frames since the link began.
    pub retries: Option<u32>,
    /// Frames given up since the link began.
    pub failures: Option<u32>,
}

/// A position (WGS 84).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Position {
    /// Latitude, in degrees (−90 to 90).
    pub latitude_deg: f64,
    /// Longitude, in degrees (−180 to 180).
    pub longitude_deg: f64,
}

/// Metres per degree of latitude (IUGG mean radius).
pub const METRES_PER_DEGREE: f64 = 111_195.0;

impl Position {
    /// Distance to a position near this one, in m, on a local plane.
    pub fn distance_m(self, other: Position) -> f64 {
        let [north, east] = self.metres_to(other);
        libm::hypot(north, east)
    }

    /// How far a position near this one is to the north and to the east of it, in m, on a local plane.
    pub fn metres_to(self, other: Position) -> [f64; 2] {
        let north = other.latitude_deg - self.latitude_deg;
        let turn = other.longitude_deg - self.longitude_deg;
        let east = (turn - 360.0 * libm::round(turn / 360.0)) * libm::cos(self.latitude_deg.to_radians());
        [north * METRES_PER_DEGREE, east * METRES_PER_DEGREE]
    }
}

/// State of the vehicle, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VehicleState {
    /// Position.
    pub position: Option<Position>,
    /// Heading, in degrees clockwise from north.
    pub heading_deg: Option<f64>,
    /// Speed, in m/s.
    pub speed_m_s: Option<f64>,
}

/// Regular downlink messages that stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Break {
    /// The suspected path.
    pub path: PathId,
    /// When the last message arrived over it.
    pub last: Instant,
    /// Time without a message over any path.
    pub waited: Duration,
    /// The second longest pause between messages before.
    pub longest: Duration,
}

/// Short answers are at most this part of what is carried.
const ANSWER_SHARE: f64 = 0.1;

/// What all subflows of a path carried in the last second, of connections initiated here, in the direction in which all paths
/// carry more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Carried {
    /// Bytes acknowledged or received, in bit/s: over `constant_for`, or the whole second.
    pub bit_s: f64,
    /// Whether senders had more data than it took; of what is received, whether much waited in the network or was lost.
    pub is_full: bool,
    /// For how long, up to a second, it has been full at a rate that hardly varied.
    pub constant_for: Duration,
    /// Part of what was sent that was sent again (0 to 1); part of what was received that came out of order.
    pub loss: f64,
    /// Time that packets waited in the network at its end, if known: the RTT above the minimum.
    pub queued: Option<Duration>,
    /// The part of what all paths carried that was received (0 to 1), if any was carried. All this is of what is received, if
    /// that is more than half.
    pub received_share: Option<f64>,
    /// The highest rate of another path, of a quarter of a second, in bit/s: within the last half second while that one is
    /// full, else within the last minute.
    pub fastest_other_bit_s: f64,
    /// While it has been full for half a second: what all paths together sent in that time, and what was sent in the last 10 s
    /// while one path carried alone and was not full, in bit/s, if that is known.
    pub sent_of_usual: Option<[f64; 2]>,
    /// Whether no path but those over its radio can carry.
    pub is_only_network: bool,
}

impl Carried {
    /// Whether all is of what is received.
    pub fn is_received(&self) -> bool {
        self.received_share.is_some_and(|share| share > 0.5)
    }

    /// Whether the peer sends more than short answers, if anything was carried.
    pub fn is_from_peer(&self) -> Option<bool> {
        self.received_share.map(|share| share > ANSWER_SHARE)
    }
}

/// Packets that an interface has carried since it was created, of all sockets.
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
    /// The peer's address and port.
    pub peer: SocketAddr,
    /// True if this endpoint accepted the connection. Its subflows then share one local
    /// path, whatever paths they took, and each is assessed separately.
    pub accepted: bool,
    /// True if it is a backup, by request of either endpoint.
    pub backup: bool,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rttvar: Duration,
    /// Segments sent and not yet acknowledged.
    pub unacked: u32,
    /// Of these, segments that the peer has received (SACK).
    pub sacked: u32,
    /// Segments delivered to the peer since the subflow began, including those reported
    /// by SACK.
    pub delivered: u32,
    /// Bytes acknowledged since the subflow began.
    pub bytes_acked: u64,
    /// Bytes not yet sent.
    pub notsent_bytes: u32,
    /// Bytes received in order since the subflow began.
    pub bytes_received: u64,
    /// Segments with data received since the subflow began.
    pub segments_received: u32,
    /// Segments received out of order since the subflow began.
    pub out_of_order: u32,
    /// The receiver's estimate of the round-trip time, if known: that of what is received.
    pub receive_rtt: Option<Duration>,
    /// Segments presumed lost and not yet retransmitted.
    pub lost: u32,
    /// Segments retransmitted since the subflow began.
    pub retransmitted: u32,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Minimum round-trip time, if known.
    pub min_rtt: Option<Duration>,
    /// Delivery rate (draft-cheng-iccrg-delivery-rate-estimation), in bit/s, if measured.
    pub delivery_bit_s: Option<u64>,
}

impl Transport {
    /// Placeholder for the peer where only one exists.
    pub const NO_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    /// A subflow with an RTT of 20 ms that has sent nothing: what a tunnel does not measure, and a test
    /// does not state.
    pub const IDLE: Transport = Transport {
        token: 1,
        peer: Transport::NO_PEER,
        accepted: false,
        backup: false,
        rtt: Duration::from_millis(20),
        rttvar: Duration::ZERO,
        unacked: 0,
        sacked: 0,
        delivered: 0,
        bytes_acked: 0,
        notsent_bytes: 0,
        bytes_received: 0,
        segments_received: 0,
        out_of_order: 0,
        receive_rtt: None,
        lost: 0,
        retransmitted: 0,
        cwnd: 10,
        min_rtt: None,
        delivery_bit_s: None,
    };

    /// True if the sender has more data than the path takes: the congestion window is full,
    /// or bytes wait to be sent.
    pub fn is_full(&self) -> bool {
        self.unacked >= self.cwnd || self.notsent_bytes > 0
    }
}
