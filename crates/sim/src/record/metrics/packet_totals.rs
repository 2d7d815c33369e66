//! Totals over the packets of a run, computed packet by packet, so that a run
//! does not need to keep the packets.

use crosslane_core::link::Direction;
use crosslane_core::path::PathId;

use super::Recovery;
use crate::record::retransmissions::{Repeat, Repeats};
use crate::record::rows::{PacketRow, SampleRow};
use crate::transport::segment::MptcpOptions;
use crate::world::WorldSample;

/// A path is lost after this time without a sample at the leave threshold.
const LOSS_NS: u64 = 1_000_000_000;

const SYN: u8 = 2;
const ACK: u8 = 16;

/// Totals over the packets of a run. Packets may be [added](Self::note) in order
/// of entry or of exit (dropped ones: of the drop).
#[derive(Clone, Debug, Default)]
pub struct PacketSums {
    /// Payload bytes that were sent before.
    pub repeated: Repeat,
    /// Payload bytes that each path delivered, in both directions.
    pub delivered_payload_bytes: Vec<u64>,
    /// Packets with payload that a link dropped, for any reason.
    pub lost_packets: u64,
    /// IP bytes that entered links, by [`Direction`].
    pub sent_ip_bytes: [u64; 2],
    repeats: Repeats,
    acknowledged_ns: Option<u64>,
    joined_ns: Option<u64>,
    join_syns: u32,
    detector: Option<RecoveryDetector>,
}

impl PacketSums {
    /// Empty totals of a run with this number of paths.
    pub fn new(paths: usize, recovery: Option<Recovery>) -> PacketSums {
        let detector = |rule| RecoveryDetector { rule, good_ns: None, lost: false, recoveries: Vec::new() };
        PacketSums {
            delivered_payload_bytes: vec![0; paths],
            detector: recovery.map(detector),
            ..PacketSums::default()
        }
    }

    /// Adds a packet that was delivered or dropped.
    pub fn note(&mut self, packet: &PacketRow) {
        let repeat = self.repeats.note(packet);
        self.repeated.reinjected_bytes += repeat.reinjected_bytes;
        self.repeated.retransmitted_bytes += repeat.retransmitted_bytes;
        let payload_bytes = u64::from(packet.payload_bytes);
        let delivered_bytes = if packet.delivered_ns.is_some() { payload_bytes } else { 0 };
        let lost = u64::from(packet.drop.is_some() && payload_bytes > 0);
        self.note_count(packet.path, packet.direction, [packet.ip_bytes.into(), delivered_bytes], lost);
        self.note_join(packet);
        let counts = |detector: &&mut RecoveryDetector| payload_bytes > 0 && detector.rule.path == packet.path;
        if let Some(detector) = self.detector.as_mut().filter(counts) {
            detector.note_data(packet);
        }
    }

    /// Adds the counters of a path and direction whose packets are not recorded:
    /// IP bytes sent and delivered, and packets lost.
    pub fn note_count(
        &mut self,
        path: PathId,
        direction: Direction,
        [sent_bytes, delivered_bytes]: [u64; 2],
        lost_packets: u64,
    ) {
        self.sent_ip_bytes[direction as usize] += sent_bytes;
        if let Some(sum) = self.delivered_payload_bytes.get_mut(usize::from(path.0)) {
            *sum += delivered_bytes;
        }
        self.lost_packets += lost_packets;
    }

    /// Adds a sample; call it before adding the packets that enter later.
    pub fn note_sample(&mut self, sample: &SampleRow) {
        let Some(detector) = &mut self.detector else { return };
        if let WorldSample::Cam(path, signal) | WorldSample::Radio(path, signal, _) = sample.sample
            && detector.rule.path == path
        {
            detector.note_signal(sample.t_ns, signal.rssi_dbm);
        }
    }

    /// Share of this path in the payload bytes delivered (0 to 1); none if
    /// nothing was delivered.
    pub fn share(&self, path: PathId) -> Option<f64> {
        let total: u64 = self.delivered_payload_bytes.iter().sum();
        let part = *self.delivered_payload_bytes.get(usize::from(path.0))?;
        (total > 0).then(|| part as f64 / total as f64)
    }

    /// What was delivered costs, by the price of a byte over each path.
    pub(super) fn cost(&self, prices: &[f64]) -> f64 {
        self.delivered_payload_bytes.iter().zip(prices).map(|(&bytes, price)| bytes as f64 * price).sum()
    }

    /// Time from the first data acknowledgement at the vehicle to its first SYN
    /// with MP_JOIN, in ns. The kernel admits further subflows, and notifies
    /// the path manager, once data has been acknowledged.
    pub fn join_latency_ns(&self) -> Option<u64> {
        Some(self.joined_ns? - self.acknowledged_ns?)
    }

    /// The longest recovery, in ns; an incomplete one counts until `end_ns`.
    pub fn recovery_ns(&self, end_ns: u64) -> Option<u64> {
        let recoveries = &self.detector.as_ref()?.recoveries;
        recoveries.iter().map(|recovery| recovery.data_ns.unwrap_or(end_ns).saturating_sub(recovery.from_ns)).max()
    }

    /// Number of SYNs with MP_JOIN that the vehicle sent.
    pub fn join_syns(&self) -> u32 {
        self.join_syns
    }

    fn note_join(&mut self, packet: &PacketRow) {
        let is_join = packet.mptcp.contains(MptcpOptions::JOIN) && packet.tcp_flags & (SYN | ACK) == SYN;
        self.join_syns += u32::from(is_join && packet.direction == Direction::Up);
        match (packet.direction, self.acknowledged_ns) {
            (Direction::Down, None) if packet.data_ack > Some(0) => self.acknowledged_ns = packet.delivered_ns,
            (Direction::Up, Some(acknowledged_ns)) if packet.mptcp.contains(MptcpOptions::JOIN) => {
                let joins = packet.tcp_flags & (SYN | ACK) == SYN && packet.t_ns >= acknowledged_ns;
                if joins && self.joined_ns.is_none_or(|joined_ns| packet.t_ns < joined_ns) {
                    self.joined_ns = Some(packet.t_ns);
                }
            }
            _ => {}
        }
    }
}

/// Detects losses and recoveries, from the samples and data of its path.
#[derive(Clone, Debug)]
struct RecoveryDetector {
    rule: Recovery,
    good_ns: Option<u64>,
    lost: bool,
    recoveries: Vec<Recovered>,
}

/// A recovery after a loss: the sample above threshold and hysteresis, and the
/// first data on the path after it.
#[derive(Clone, Copy, Debug)]
struct Recovered {
    from_ns: u64,
    data_ns: Option<u64>,
}

impl RecoveryDetector {
    fn note_signal(&mut self, t_ns: u64, rssi_dbm: f32) {
        self.lost |= self.good_ns.is_some_and(|good_ns| t_ns >= good_ns + LOSS_NS);
        if self.lost && rssi_dbm >= self.rule.leave_dbm + self.rule.hysteresis_db {
            self.recoveries.push(Recovered { from_ns: t_ns, data_ns: None });
            self.lost = false;
        }
        if rssi_dbm >= self.rule.leave_dbm && !self.lost {
            self.good_ns = Some(t_ns);
        }
    }

    /// Updates the recoveries, from the newest back to the first one that had
    /// data before this packet.
    fn note_data(&mut self, packet: &PacketRow) {
        for recovery in self.recoveries.iter_mut().rev().filter(|recovery| packet.t_ns >= recovery.from_ns) {
            if recovery.data_ns.is_some_and(|data_ns| data_ns <= packet.t_ns) {
                break;
            }
            recovery.data_ns = Some(packet.t_ns);
        }
    }
}
