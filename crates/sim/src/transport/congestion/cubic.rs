//! CUBIC (RFC 9438) with Linux's constants, and HyStart (Ha and Rhee 2011).

use crosslane_core::time::{Duration, Instant};

use super::Ack;

/// Growth constant (RFC 9438 §4.1; Linux 410/1024 · 1/1000 … = 0.4).
const C: f64 = 0.4;
/// Multiplicative decrease (Linux: 717/1024).
const BETA: f64 = 717.0 / 1024.0;
/// Acknowledgements, in windows, by which Reno would grow by one segment:
/// 3 (1 − β) / (1 + β) of RFC 9438 §4.3, inverted.
const RENO_ACKS: f64 = (1.0 + BETA) / (3.0 * (1.0 - BETA));
/// Minimum window for HyStart, in segments.
const HYSTART_WINDOW: u32 = 16;
/// Number of samples whose minimum is the delay of a round.
const HYSTART_SAMPLES: u32 = 8;
/// Maximum spacing of acknowledgements within one packet train.
const HYSTART_SPACING: Duration = Duration::from_millis(2);

#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    last_max: f64,
    pub(super) epoch: Option<Epoch>,
    round: Round,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    began: Instant,
    origin: f64,
    k_s: f64,
    reno: f64,
    reno_acks: f64,
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

    /// Number of acknowledged segments per increase of the window by one.
    pub(super) fn acks_for_one(&mut self, ack: &Ack, window: u32) -> f64 {
        let current = f64::from(window);
        let last_max = self.last_max;
        let epoch = self.epoch.get_or_insert_with(|| {
            let below = (last_max - current).max(0.0);
            Epoch {
                began: ack.now,
                origin: last_max.max(current),
                k_s: libm::cbrt(below / C),
                reno: current,
                reno_acks: 0.0,
            }
        });
        let t_s = (ack.now.since(epoch.began) + ack.min_rtt.unwrap_or_default()).as_secs_f64();
        let offset_s = t_s - epoch.k_s;
        let target = epoch.origin + C * offset_s * offset_s * offset_s;
        let mut acks = if target > current { current / (target - current) } else { 100.0 * current };
        if last_max == 0.0 {
            acks = acks.min(20.0);
        }
        epoch.reno_acks += f64::from(ack.delivered);
        let each = current * RENO_ACKS;
        while epoch.reno_acks > each {
            epoch.reno_acks -= each;
            epoch.reno += 1.0;
        }
        if epoch.reno > current {
            acks = acks.min(current / (epoch.reno - current));
        }
        acks.max(2.0)
    }

    /// The window after a loss (fast convergence, RFC 9438 §4.7).
    pub(super) fn reduce(&mut self, window: u32) -> u32 {
        let current = f64::from(window);
        self.last_max = if current < self.last_max { current * (1.0 + BETA) / 2.0 } else { current };
        self.epoch = None;
        (current * BETA) as u32
    }
}
