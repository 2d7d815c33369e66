//! The congestion window of a path.

use super::SendPath;
use crate::time::{Duration, Instant};

/// Target queueing delay of a full path.
pub(super) const QUEUE: Duration = Duration::from_millis(6);
/// The same in packets, for slow paths.
const QUEUE_PACKETS: f64 = 4.0;
/// Typical packet size, in bytes.
const PACKET_BYTES: f64 = 1500.0;
/// Initial congestion window.
pub(super) const INITIAL_CWND_BYTES: f64 = 16.0 * PACKET_BYTES;
/// Maximum congestion window, whatever rate and RTT the peer reports: 250 ms at 2 Gbit/s.
pub(in super::super) const MAX_CWND_BYTES: f64 = 64.0 * 1024.0 * 1024.0;
/// Mean delay of a report at the peer.
pub(super) const FEEDBACK_DELAY: Duration = Duration::from_millis(3);
/// Minimum length of a round.
pub(super) const MIN_ROUND: Duration = Duration::from_millis(10);
/// Maximum window in excess of rate × RTT, as time at the rate and as a factor. Most links buffer 50 ms or
/// more.
const MAX_GAIN_TIME: Duration = Duration::from_millis(20);
const MAX_GAIN: f64 = 2.0;
/// Share of lost packets in a round that stops the window's growth, in addition to twice the baseline loss.
const LOSSY_ROUND: f64 = 0.01;
/// Number of rounds over which the baseline loss is averaged.
const BASELINE_ROUNDS: f64 = 16.0;

/// Observations of one round, about one RTT long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    pub(super) since: Instant,
    pub(super) packets: u32,
    pub(super) lost: u32,
    pub(super) was_full: bool,
    pub(super) was_busy: bool,
    pub(super) min_rtt: Option<Duration>,
}

/// Min-RTT probe: the queue is emptied from time to time to measure the RTT without it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MinRttProbe {
    pub(super) until: Option<Instant>,
    pub(super) last: Instant,
}

impl<P: Clone> SendPath<P> {
    /// The congestion window, in bytes.
    pub(super) fn cwnd_bytes(&self) -> f64 {
        let slow_start_bytes =
            self.slow_start.as_ref().map_or(0.0, |slow_start| INITIAL_CWND_BYTES + slow_start.extra_bytes());
        self.measured_cwnd_bytes().unwrap_or(INITIAL_CWND_BYTES).max(slow_start_bytes).min(MAX_CWND_BYTES)
    }

    fn measured_cwnd_bytes(&self) -> Option<f64> {
        let (rate, min_rtt) = self.rate.bytes_s().zip(self.rtt.min())?;
        let min_bytes = QUEUE_PACKETS * PACKET_BYTES;
        if self.min_rtt_probe.until.is_some() {
            return Some((rate * (min_rtt + FEEDBACK_DELAY).as_secs_f64() * 0.8).max(min_bytes));
        }
        Some(
            (rate * (min_rtt + FEEDBACK_DELAY).as_secs_f64() * self.window_gain + self.queue_bytes(rate))
                .max(min_bytes),
        )
    }

    pub(super) fn queue_bytes(&self, rate: f64) -> f64 {
        (rate * self.queue.as_secs_f64()).max(QUEUE_PACKETS * PACKET_BYTES)
    }

    pub(super) fn end_round(&mut self, now: Instant) {
        let length = self.rtt.smoothed().max(MIN_ROUND);
        if now.since(self.round.since) < length {
            return;
        }
        if self.train.is_in_flight() {
            self.round = Round { since: now, ..Round::default() };
            return;
        }
        let round = core::mem::replace(&mut self.round, Round { since: now, ..Round::default() });
        let (Some(round_min), Some(min_rtt)) = (round.min_rtt, self.rtt.min()) else { return };
        if let Some(until) = self.min_rtt_probe.until {
            if now >= until {
                self.min_rtt_probe = MinRttProbe { until: None, last: now };
                self.rtt.set_min(now, round_min);
            }
            return;
        }
        let queue = round_min.saturating_sub(min_rtt);
        let target = match self.rate.bytes_s() {
            Some(rate) => Duration::from_secs_f64(self.queue_bytes(rate) / rate),
            None => self.queue,
        };
        let share = f64::from(round.lost) / f64::from(round.packets.max(1));
        let is_lossy = round.lost > 1 && share > LOSSY_ROUND + self.baseline_loss * 2.0;
        if !is_lossy {
            self.baseline_loss += (share - self.baseline_loss) / BASELINE_ROUNDS;
        }
        if round.was_busy
            && self
                .slow_start
                .as_mut()
                .is_some_and(|slow_start| slow_start.is_over(self.rate.last(), share, queue > target))
        {
            self.slow_start = None;
            self.rate.adopt();
        }
        if is_lossy && self.window_gain > 1.0 {
            self.window_gain = 1.0;
        } else if round.was_full && queue < target / 3 && !is_lossy {
            let max_gain = 1.0 + MAX_GAIN_TIME.as_secs_f64() / min_rtt.as_secs_f64();
            self.window_gain = (self.window_gain * 1.5).min(max_gain).min(MAX_GAIN);
        } else if queue > target {
            self.window_gain = (self.window_gain * 0.8).max(1.0);
        }
        let (shorter, longer) = (self.queue * 4 / 5, self.queue * 21 / 20);
        self.queue = if is_lossy { shorter.max(QUEUE / 4) } else { longer.min(QUEUE) };
        if queue > target * 2 || self.rtt.min_is_old(now) && round.was_full {
            let duration = (self.rtt.smoothed() + FEEDBACK_DELAY) * 2;
            if now.since(self.min_rtt_probe.last) > duration * 8 {
                self.min_rtt_probe.until = Some(now + duration);
            }
        }
    }
}
