//! A roadside unit in reach, and whether its path is taken to carry data.

use super::cam_filter::CamFilter;
use super::proof::Proof;
use crate::assess::Belief;
use crate::path::Position;
use crate::time::{Duration, Instant};

/// Longest period of CAMs (EN 302 637-2 clause 6.1.3: T_GenCamMax).
const MAX_CAM_PERIOD: Duration = Duration::from_secs(1);
/// While no unit has ever answered, one whose signal is good keeps its slot for this long
/// without data delivered over its path.
const GRACE: Duration = Duration::from_secs(1);
/// A unit that lost its slot because it did not answer takes no other's slot for this long.
const PENALTY: Duration = Duration::from_secs(1);
/// A unit is probed from this RSSI on, in dBm: the receiver sensitivity at the lowest rate in
/// a 10 MHz channel (IEEE 802.11-2020 table 17-18).
const MIN_PROBE_DBM: f32 = -85.0;

/// A unit in reach, as [`ConnectionManager::units`](super::ConnectionManager::units) shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Its slot, if it has one.
    pub slot: Option<u8>,
    /// When its last CAM arrived.
    pub last_cam: Instant,
    /// Its smoothed RSSI, in dBm.
    pub rssi_dbm: f32,
    /// Its position, as its last CAM states it.
    pub position: Option<Position>,
    /// What the agent believes of its path.
    pub belief: Belief,
    pub(super) filter: CamFilter,
    /// What proves that it is in reach, since it has its slot.
    pub(super) proof: Proof,
    /// Whether it answers, as last reported.
    pub(super) answers: Option<bool>,
    /// When it last lost its slot because it did not answer.
    pub(super) refuted: Option<Instant>,
}

impl Unit {
    /// A unit of which a first CAM arrived.
    pub(super) fn new(now: Instant, rssi_dbm: f32) -> Unit {
        Unit {
            slot: None,
            last_cam: now,
            rssi_dbm,
            position: None,
            belief: Belief::Unknown,
            filter: CamFilter::new(rssi_dbm),
            proof: Proof::default(),
            answers: None,
            refuted: None,
        }
    }

    /// Whether it takes a slot with its next CAM if it can.
    pub(super) fn waits(&self, now: Instant) -> bool {
        let is_barred = self.refuted.is_some_and(|at| now < at + PENALTY);
        self.slot.is_none() && !is_barred && now < self.last_cam + MAX_CAM_PERIOD
    }

    /// When it is to be probed next: while its CAMs arrive, or its path is taken to carry.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        let at = self.proof.probe_at();
        let counts = at < self.last_cam + MAX_CAM_PERIOD || matches!(self.belief, Belief::Good | Belief::Fading);
        (self.slot.is_some() && self.rssi_dbm >= MIN_PROBE_DBM && counts).then_some(at)
    }
}

/// What answers say at a time.
#[derive(Clone, Copy)]
pub(super) struct Evidence {
    pub(super) now: Instant,
    /// Some unit has answered.
    pub(super) exists: bool,
}

impl Evidence {
    /// Whether a unit ought to have answered, and did not.
    pub(super) fn lacks(self, unit: &Unit) -> bool {
        let had_time = self.exists || (unit.belief == Belief::Good && self.now >= unit.proof.opened() + GRACE);
        had_time && unit.proof.is_refuted(self.now)
    }

    /// Whether a unit is believed to carry, and nothing speaks against it.
    pub(super) fn carries(self, unit: &Unit) -> bool {
        matches!(unit.belief, Belief::Good | Belief::Fading) && !self.lacks(unit)
    }

    /// Whether a unit's path is lost. Of one radio all paths stall at once: a stalled one
    /// of a unit that answered is not lost.
    pub(super) fn is_lost(self, unit: &Unit) -> bool {
        match unit.belief {
            Belief::Lost => true,
            Belief::Stalled => !unit.proof.is_given(self.now),
            Belief::Good | Belief::Fading | Belief::Unknown => self.lacks(unit),
        }
    }
}
