//! Records of a run: the rows of `docs/reference/records.md`, as plain structs.
//!
//! The emulator and the simulator create them, [`crate::record::metrics`]
//! evaluates them, and the binary writes them. Times are nanoseconds since the
//! start of the run; a path is its index in the scenario.

use std::net::SocketAddr;

use crosslane_core::agent::Output;
use crosslane_core::allocate::learned::features::Values;
use crosslane_core::link::{Direction, DropReason};
use crosslane_core::path::{PathId, PathState, Signal, Transport};
use crosslane_core::time::{Duration, Instant};

use crate::radio::access_link::Quality;
use crate::transport::segment::MptcpOptions;
use crate::world::{Truth, VehicleCam, WorldSample};

/// One packet that entered a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketRow {
    /// Time at which it entered the link.
    pub t_ns: u64,
    /// Time at which it left the link; `None` if it was dropped.
    pub delivered_ns: Option<u64>,
    /// Path of the link.
    pub path: PathId,
    /// Direction.
    pub direction: Direction,
    /// Length including the IP header, in bytes.
    pub ip_bytes: u16,
    /// Length of the TCP or UDP payload, in bytes.
    pub payload_bytes: u16,
    /// Index of the subflow, in order of the SYNs, from 0.
    pub subflow: Option<u16>,
    /// Sequence number, relative to the initial one (the SYN has 0).
    pub tcp_seq: u32,
    /// Acknowledgement number, relative to the peer's initial one.
    pub tcp_ack: u32,
    /// TCP flags as on the wire (FIN 1, SYN 2, RST 4, PSH 8, ACK 16).
    pub tcp_flags: u8,
    /// Data sequence number of the first payload byte, relative to the
    /// connection's first (which has 0).
    pub dsn: Option<u64>,
    /// Data bytes acknowledged on the connection level.
    pub data_ack: Option<u64>,
    /// MPTCP options.
    pub mptcp: MptcpOptions,
    /// Reason of the drop, if it was dropped.
    pub drop: Option<DropReason>,
    /// Transmission attempts (802.11p), else 0.
    pub tries: u8,
}

/// Bytes that one path delivered in one direction within 100 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThroughputRow {
    /// Start of the interval.
    pub t_ns: u64,
    /// The path.
    pub path: PathId,
    /// Direction.
    pub direction: Direction,
    /// Bytes of IP packets delivered.
    pub ip_bytes: u64,
    /// Bytes of payload delivered.
    pub payload_bytes: u64,
    /// Of these, bytes whose data sequence numbers were sent before over another
    /// subflow.
    pub reinjected_bytes: u64,
}

/// One sample, as the on-board unit received it, or a roadside unit ([`WorldSample::VehicleCam`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleRow {
    /// Time of reception.
    pub t_ns: u64,
    /// What was observed.
    pub sample: WorldSample,
}

impl SampleRow {
    /// The receptions of a CAM of the vehicle, at `t_ns`.
    pub fn receptions(cam: &VehicleCam, t_ns: u64) -> impl Iterator<Item = SampleRow> {
        let row = move |&(path, rssi_dbm): &(PathId, f64)| {
            let signal = Signal { rssi_dbm: rssi_dbm as f32, station: Some(cam.station), ..Signal::default() };
            SampleRow { t_ns, sample: WorldSample::VehicleCam(path, signal) }
        };
        cam.received.iter().map(row)
    }
}

/// State of one subflow, from the kernel's `tcp_info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpInfoRow {
    /// Time of the query.
    pub t_ns: u64,
    /// The path.
    pub path: PathId,
    /// Index of the subflow, if known.
    pub subflow: Option<u16>,
    /// The vehicle's address and port.
    pub local: String,
    /// The server's address and port.
    pub remote: String,
    /// Token of the connection, 0 for plain TCP.
    pub token: u32,
    /// True if the subflow is a backup.
    pub backup: bool,
    /// Smoothed round-trip time, in µs.
    pub rtt_us: u32,
    /// Its mean deviation, in µs.
    pub rttvar_us: u32,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Segments marked lost.
    pub lost: u32,
    /// Retransmissions since the subflow began.
    pub total_retrans: u32,
    /// Bytes acknowledged since the subflow began.
    pub bytes_acked: u64,
    /// Bytes received since the subflow began.
    pub bytes_received: u64,
    /// Bytes in the send buffer not yet sent.
    pub notsent_bytes: u32,
    /// The kernel's estimate of the delivery rate, in bit/s.
    pub delivery_rate_bit_s: u64,
}

impl TcpInfoRow {
    /// The statistics of a subflow with this address and port of the vehicle.
    pub fn new(t_ns: u64, path: PathId, subflow: Option<u16>, local: SocketAddr, transport: &Transport) -> TcpInfoRow {
        let micros = |duration: Duration| u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
        TcpInfoRow {
            t_ns,
            path,
            subflow,
            local: local.to_string(),
            remote: transport.peer.to_string(),
            token: transport.token,
            backup: transport.backup,
            rtt_us: micros(transport.rtt),
            rttvar_us: micros(transport.rttvar),
            cwnd: transport.cwnd,
            unacked: transport.unacked,
            lost: transport.lost,
            total_retrans: transport.retransmitted,
            bytes_acked: transport.bytes_acked,
            bytes_received: transport.bytes_received,
            notsent_bytes: transport.notsent_bytes,
            delivery_rate_bit_s: transport.delivery_bit_s.unwrap_or_default(),
        }
    }
}

/// What a strategy may see of one path at the end of a window (250 ms).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowRow {
    /// End of the window.
    pub t_ns: u64,
    /// The path.
    pub path: PathId,
    /// The values of its quantities; NaN: unknown.
    pub values: Values,
    /// Bytes that the traffic has delivered to the application since the start.
    pub delivered_bytes: u64,
}

/// One message of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRow {
    /// Sequence number, from 0.
    pub number: u64,
    /// Start of its write; for an object with a deadline, its generation time.
    pub sent_ns: u64,
    /// Time at which the connection accepted its last byte; `None` if it never
    /// did, and for traffic without deadlines.
    pub written_ns: Option<u64>,
    /// Time at which its last byte was read; `None` if it never arrived.
    pub received_ns: Option<u64>,
    /// Length including its header, in bytes.
    pub size_bytes: u32,
}

/// Ground truth of one link at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkRow {
    /// Time.
    pub t_ns: u64,
    /// The path.
    pub path: PathId,
    /// The vehicle's position, in m.
    pub x_m: f64,
    /// The vehicle's position, in m.
    pub y_m: f64,
    /// The vehicle's speed, in m/s.
    pub speed_m_s: f64,
    /// Distance to the serving RSU or station, in m, if there is one.
    pub distance_m: Option<f64>,
    /// Mean signal with shadowing, before fading, in dBm.
    pub rssi_dbm: f32,
    /// Capacity of the uplink, in Mbit/s.
    pub up_mbit_s: f64,
    /// Capacity of the downlink, in Mbit/s.
    pub down_mbit_s: f64,
    /// One-way delay after the bottleneck, in ms.
    pub delay_ms: f64,
    /// Probability of independent loss (0 to 1).
    pub loss: f64,
    /// Further signal figures.
    pub quality: Quality,
}

impl From<&Truth> for LinkRow {
    fn from(truth: &Truth) -> LinkRow {
        LinkRow {
            t_ns: truth.at.as_nanos(),
            path: truth.path,
            x_m: truth.position_m[0],
            y_m: truth.position_m[1],
            speed_m_s: truth.speed_m_s,
            distance_m: truth.distance_m,
            rssi_dbm: truth.rssi_dbm.map_or(f32::NAN, |rssi| rssi as f32),
            up_mbit_s: truth.up_mbit_s,
            down_mbit_s: truth.down_mbit_s,
            delay_ms: truth.delay_ms,
            loss: truth.loss,
            quality: truth.quality,
        }
    }
}

/// One change of the wanted state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionRow {
    /// Time.
    pub t_ns: u64,
    /// The path.
    pub path: PathId,
    /// The new wanted state.
    pub state: PathState,
}

/// One alarm of a sudden loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlarmRow {
    /// Time.
    pub t_ns: u64,
    /// The path.
    pub path: PathId,
    /// True if it was a false positive; none: not known yet.
    pub was_false: Option<bool>,
}

/// Decisions and alarms of an agent, each in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentRows {
    /// Decisions.
    pub decisions: Vec<DecisionRow>,
    /// Alarms.
    pub alarms: Vec<AlarmRow>,
}

impl AgentRows {
    /// Adds an output of the agent.
    pub fn note(&mut self, at: Instant, output: &Output) {
        let t_ns = at.as_nanos();
        match *output {
            Output::Decision { path, state, .. } => self.decisions.push(DecisionRow { t_ns, path, state }),
            Output::Alarm { path, alarm } => self.note_alarm(AlarmRow { t_ns, path, was_false: alarm.false_positive }),
            _ => {}
        }
    }

    /// Adds an alarm once: a later report whether it was a false positive belongs
    /// to the last alarm of its path.
    pub fn note_alarm(&mut self, alarm: AlarmRow) {
        match self.alarms.iter_mut().rfind(|row| row.path == alarm.path && row.was_false.is_none()) {
            Some(row) if alarm.was_false.is_some() => row.was_false = alarm.was_false,
            _ => self.alarms.push(alarm),
        }
    }
}

/// When the application read bytes of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The last time.
    pub last: Option<Instant>,
    /// The longest time between two reads.
    pub longest_gap: Duration,
}

impl Reads {
    /// Bytes were read.
    pub fn note(&mut self, now: Instant) {
        self.longest_gap = self.longest_gap.max(self.last.map_or(Duration::ZERO, |last| now.since(last)));
        self.last = Some(now);
    }
}

/// Input of [`crate::record::metrics`] besides the packets, each in order of time
/// (messages: of their sequence number).
#[derive(Clone, Copy, Debug, Default)]
pub struct RunRecords<'a> {
    /// Messages of the traffic.
    pub messages: &'a [MessageRow],
    /// The agent's decisions; none for strategies without an agent.
    pub decisions: &'a [DecisionRow],
    /// The agent's alarms.
    pub alarms: &'a [AlarmRow],
    /// Number of duplicate datagrams; none if messages are not datagrams.
    pub duplicates: Option<u64>,
    /// Reads of the byte stream.
    pub reads: Reads,
    /// IP bytes of echo requests and their answers; none if the scenario has no `[echo]`.
    pub echo_bytes: Option<u64>,
    /// Bytes of copies that a tunnel sent; none without one.
    pub copied_bytes: Option<u64>,
}
