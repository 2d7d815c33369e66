//! The signal of a roadside unit whose CAMs come from more than one sender.
//!
//! A unit sends a CAM each 100 ms at most. CAMs in its name that follow one another sooner
//! come from several senders, of which one is true. The weakest is taken to be: a forged
//! signal that is too strong draws data to a unit that is out of reach, one that is too weak
//! only makes all units alike. CAMs that are clearly stronger are ignored then, also when the
//! weak ones are lost. A unit that does not answer is not received with a good signal either:
//! of it only weak CAMs count.

use crate::time::{Duration, Instant};

/// T_GenCamMin is 100 ms (EN 302 637-2 clause 6.1.3); the rest is variation of the reception.
const MIN_CAM_INTERVAL: Duration = Duration::from_millis(80);
/// For this long after two CAMs that followed one another sooner, several senders are expected.
const MIXED: Duration = Duration::from_secs(5);
/// A CAM that is stronger than the level by more than this is another sender's, in dB: with
/// Nakagami fading of m = 3 one of 10⁷ is.
const MAX_RISE_DB: f32 = 10.0;
/// Level of a unit that does not answer, in dBm: hardly a frame arrives at 6 Mbit/s.
const SILENT_DBM: f32 = -90.0;
/// Weights of a stronger and a weaker CAM in the level.
const WEIGHTS: [f32; 2] = [0.25, 0.5];

/// The filter of one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CamFilter {
    /// When its last CAM arrived, ignored or not.
    last: Option<Instant>,
    mixed_until: Instant,
    /// Smoothed RSSI of what was accepted, in dBm.
    level_dbm: f32,
}

impl CamFilter {
    /// A filter of a unit whose first CAM has this RSSI.
    pub(super) fn new(rssi_dbm: f32) -> CamFilter {
        CamFilter { last: None, mixed_until: Instant::ZERO, level_dbm: rssi_dbm }
    }

    /// Whether a CAM counts.
    pub(super) fn accepts(&mut self, now: Instant, rssi_dbm: f32) -> bool {
        if self.last.replace(now).is_some_and(|last| now < last + MIN_CAM_INTERVAL) {
            self.mixed_until = now + MIXED;
        }
        let accepts = now >= self.mixed_until || rssi_dbm <= self.level_dbm + MAX_RISE_DB;
        if accepts {
            self.level_dbm += WEIGHTS[usize::from(rssi_dbm < self.level_dbm)] * (rssi_dbm - self.level_dbm);
        }
        accepts
    }

    /// The unit does not answer.
    pub(super) fn on_silence(&mut self, now: Instant) {
        (self.mixed_until, self.level_dbm) = (now + MIXED, self.level_dbm.min(SILENT_DBM));
    }
}
