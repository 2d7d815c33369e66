//! CUBIC (RFC 9438) with Linux's constants, and HyStart (Ha and Rhee 2011).

use crosslane_core::time::{Duration, Instant};

use super::Ack;

/// Growth constant in 1/1024 (RFC 9438 §4.1: 0.4; Linux `bic_scale` times 10).
const C: u64 = 410;
/// Units of time a second (Linux `BICTCP_HZ`).
const UNITS: f64 = 1024.0;
/// Multiplicative decrease in 1/1024 (Linux `beta`).
const BETA: u32 = 717;
/// Acknowledgements, in eighths of a window, by which Reno would grow by one segment: 3 (1 − β) / (1 + β) of RFC 9438
/// §4.3, inverted (Linux `beta_scale`).
const RENO_ACKS: u32 = 8 * (1024 + BETA) / 3 / (1024 - BETA);
/// Minimum window for HyStart, in segments.
const HYSTART_WINDOW: u32 = 16;
/// Number of samples whose minimum is the delay of a round.
const HYSTART_SAMPLES: u32 = 8;
/// Maximum spacing of acknowledgements within one packet train.
const HYSTART_SPACING: Duration = Duration::from_millis(2);

#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    last_max: u32,
    pub(super) epoch: Option<Epoch>,
    round: Round,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    began: Instant,
    origin: u32,
    /// Time from its beginning until the window is that of the origin, in [`UNITS`].
    k: u64,
    reno: u32,
    reno_acks: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Round {
    began: Instant,
    last_ack: Instant,
    end: u64,
    min: Option<Duration>,
    samples: u32,
}

impl Cubic {
    /// Updates HyStart's round.
    pub(super) fn note_rtt(&mut self, ack: &Ack, rtt: Duration) {
        if ack.una > self.round.end {
            self.round = Round { began: ack.now, last_ack: ack.now, end: ack.next, ..Round::default() };
        }
        self.round.min = Some(self.round.min.map_or(rtt, |min| min.min(rtt)));
        self.round.samples += 1;
    }

    /// HyStart: true if the train of acknowledgements is longer than the one-way
    /// delay, or the delay has risen by an eighth (at least 4 ms, at most 16 ms).
    pub(super) fn leaves_slow_start(&mut self, ack: &Ack, window: u32) -> bool {
        let Some(min) = ack.min_rtt.filter(|_| window >= HYSTART_WINDOW) else { return false };
        let round = &mut self.round;
        if ack.now.since(round.last_ack) <= HYSTART_SPACING {
            round.last_ack = ack.now;
            if ack.now.since(round.began) > min / 2 {
                return true;
            }
        }
        let rise = (min / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
        round.samples >= HYSTART_SAMPLES && round.min.is_some_and(|delay| delay > min + rise)
    }

    /// Number of acknowledged segments per increase of the window by one. In integers as Linux's `bictcp_update`: with
    /// windows of few segments what it rounds makes up to 7 % of the goodput (decision 125).
    pub(super) fn acks_for_one(&mut self, ack: &Ack, window: u32) -> u32 {
        let last_max = self.last_max;
        let epoch = self.epoch.get_or_insert_with(|| {
            let below = f64::from(last_max.saturating_sub(window));
            let k = libm::cbrt(below * UNITS / C as f64) * UNITS;
            Epoch { began: ack.now, origin: last_max.max(window), k: k as u64, reno: window, reno_acks: 0 }
        });
        let t = ack.now.since(epoch.began) + ack.min_rtt.unwrap_or_default();
        let t = (t.as_secs_f64() * UNITS) as u64;
        let offset = t.abs_diff(epoch.k).min(1 << 17);
        let change = ((C * offset * offset * offset) >> 40) as u32;
        let target = if t < epoch.k { epoch.origin.saturating_sub(change) } else { epoch.origin + change };
        let mut acks = if target > window { window / (target - window) } else { 100 * window };
        if last_max == 0 {
            acks = acks.min(20);
        }
        epoch.reno_acks += ack.delivered;
        let each = ((window * RENO_ACKS) >> 3).max(1);
        while epoch.reno_acks > each {
            epoch.reno_acks -= each;
            epoch.reno += 1;
        }
        if epoch.reno > window {
            acks = acks.min(window / (epoch.reno - window));
        }
        acks.max(2)
    }

    /// The window after a loss (fast convergence, RFC 9438 §4.7).
    pub(super) fn reduce(&mut self, window: u32) -> u32 {
        self.last_max = if window < self.last_max { window * (1024 + BETA) / 2048 } else { window };
        self.epoch = None;
        window * BETA / 1024
    }
}
