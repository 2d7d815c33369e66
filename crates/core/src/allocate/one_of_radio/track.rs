//! What is known of a path over a shared radio beyond its belief.

use super::DRAIN;
use crate::allocate::{Latest, PathInput};
use crate::assess::Belief;
use crate::path::PathState;
use crate::time::{Duration, Instant};

/// How long a frame for a station that is gone holds up others: seven tries with the
/// contention windows of best effort (IEEE 802.11-2020, table 9-155: 15 to 1023 slots of
/// 13 µs) and the time that each takes at 18 Mbit/s.
pub(super) const FRAME_HOLD: Duration = Duration::from_micros(16_500);
/// Segments of a first window (RFC 6928).
const FIRST_WINDOW: u32 = 10;

/// What is known of a path beyond its belief.
#[derive(Clone, Copy, Debug)]
pub(super) struct Track {
    /// Station of the last sample, its time, and the smoothed signal, in dBm.
    pub(super) signal: Option<(Option<u32>, Instant, f64)>,
    pub(super) is_active: bool,
    /// When it last carried, from and to.
    pub(super) carried: Option<[Instant; 2]>,
    /// When it last had a subflow.
    pub(super) proven: Option<Instant>,
    /// A connection, its segments delivered over the path, and when more were.
    pub(super) delivered: Option<(u32, u32, Option<Instant>)>,
    /// Least round-trip time of a subflow.
    pub(super) min_rtt: Option<Duration>,
    /// When it was first believed to be stalled.
    pub(super) stalled: Option<Instant>,
    /// Segments that were unacknowledged, before it stalled.
    pub(super) unacked: u32,
    /// Whether its roadside unit answers, if that is known.
    pub(super) answers: Option<bool>,
}

impl Track {
    /// Of a path of which nothing is known.
    pub(super) const NONE: Track = Track {
        signal: None,
        is_active: false,
        carried: None,
        proven: None,
        delivered: None,
        min_rtt: None,
        stalled: None,
        unacked: 0,
        answers: None,
    };

    pub(super) fn observe(&mut self, now: Instant, input: &PathInput, latest: &Latest, smoothing: Duration) {
        self.stalled = (input.belief == Belief::Stalled).then(|| self.stalled.unwrap_or(now));
        if input.was == PathState::Active {
            let since = self.carried.filter(|_| self.is_active).map_or(now, |[since, _]| since);
            self.carried = Some([since, now]);
        }
        self.is_active = input.was == PathState::Active;
        self.answers = latest.answers.map(|(_, answers)| answers);
        self.proven = latest.transport.map(|(at, _)| at);
        self.signal = self.signal.filter(|_| latest.signal.is_some());
        if let Some((at, signal)) = latest.signal
            && self.signal.is_none_or(|(_, then, _)| at > then)
        {
            let dbm = f64::from(signal.rssi_dbm);
            // A roadside unit may have taken the place of another.
            let same = self.signal.filter(|(station, ..)| *station == signal.station);
            let smoothed = same.map_or(dbm, |(_, then, before)| {
                let weight = 1.0 - libm::exp(-at.since(then).as_secs_f64() / smoothing.as_secs_f64().max(1e-9));
                before + weight * (dbm - before)
            });
            self.signal = Some((signal.station, at, smoothed));
        }
        if let Some((at, transport)) = latest.transport {
            self.min_rtt = transport.min_rtt;
            if self.stalled.is_none() {
                self.unacked = transport.unacked;
            }
            let known = self.delivered.filter(|(token, ..)| *token == transport.token);
            if known.is_none_or(|(_, delivered, _)| delivered != transport.delivered) {
                self.delivered = Some((transport.token, transport.delivered, known.map(|_| at)));
            }
        }
    }

    /// When the last of its frames is gone, if its station has been since the last delivery.
    /// With less than a first window in flight, others find room at once.
    pub(super) fn drained_at(&self) -> Option<Instant> {
        let frames = if self.unacked > FIRST_WINDOW { self.unacked } else { 0 };
        Some(self.delivered_at()? + FRAME_HOLD.saturating_mul(frames).min(DRAIN))
    }

    pub(super) fn dbm(&self) -> f64 {
        self.signal.map_or(f64::NEG_INFINITY, |(.., dbm)| dbm)
    }

    pub(super) fn delivered_at(&self) -> Option<Instant> {
        self.delivered.and_then(|(.., at)| at)
    }
}
