//! How much may be under way on a path.

use super::SendPath;
use crate::time::{Duration, Instant};

/// Queue that is meant to stand in a path that is full.
pub(super) const QUEUE: Duration = Duration::from_millis(6);
/// The same in packets, for slow paths.
const QUEUE_PACKETS: f64 = 4.0;
/// A packet's usual size, in bytes.
const PACKET_BYTES: f64 = 1500.0;
/// What is under way at most before anything is known.
pub(super) const FIRST_BYTES: f64 = 16.0 * PACKET_BYTES;
/// What is under way at most, whatever the other end says of rate and round trip: 250 ms at 2 Gbit/s.
pub(in super::super) const WINDOW_MOST_BYTES: f64 = 64.0 * 1024.0 * 1024.0;
/// How long the other end holds a report back, about.
pub(super) const HOLD: Duration = Duration::from_millis(3);
/// Rounds are at least so long.
pub(super) const SHORTEST_ROUND: Duration = Duration::from_millis(10);
/// More than the rate times the round trip says: so much time of it, and at most so
/// many times. Most links hold 50 ms and more.
const BOOST_TIME: Duration = Duration::from_millis(20);
const MOST_BOOST: f64 = 2.0;
/// Share of a round's packets whose loss ends a path's growth, beyond twice what
/// is usual there.
const LOSSY_ROUND: f64 = 0.01;
/// Rounds over which the usual loss is taken.
const USUAL_ROUNDS: f64 = 16.0;

/// What was seen since a moment, about one round trip long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    pub(super) since: Instant,
    pub(super) packets: u32,
    pub(super) lost: u32,
    pub(super) was_full: bool,
    pub(super) was_busy: bool,
    pub(super) shortest: Option<Duration>,
}

/// The round trip is measured without a queue from time to time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MinRttProbe {
    pub(super) until: Option<Instant>,
    pub(super) last: Instant,
}

impl<P: Clone> SendPath<P> {
    /// Bytes that may be under way.
    pub(super) fn window(&self) -> f64 {
        let searched = self.slow_start.as_ref().map_or(0.0, |search| FIRST_BYTES + search.more_bytes());
        self.known_window().unwrap_or(FIRST_BYTES).max(searched).min(WINDOW_MOST_BYTES)
    }

    fn known_window(&self) -> Option<f64> {
        let (rate, base) = self.rate.bytes_s().zip(self.rtt.base())?;
        let least = QUEUE_PACKETS * PACKET_BYTES;
        if self.min_rtt_probe.until.is_some() {
            return Some((rate * (base + HOLD).as_secs_f64() * 0.8).max(least));
        }
        Some((rate * (base + HOLD).as_secs_f64() * self.window_gain + self.queue_bytes(rate)).max(least))
    }

    pub(super) fn queue_bytes(&self, rate: f64) -> f64 {
        (rate * self.queue.as_secs_f64()).max(QUEUE_PACKETS * PACKET_BYTES)
    }

    pub(super) fn end_round(&mut self, now: Instant) {
        let length = self.rtt.smoothed().max(SHORTEST_ROUND);
        if now.since(self.round.since) < length {
            return;
        }
        if self.train.is_in_flight() {
            self.round = Round { since: now, ..Round::default() };
            return;
        }
        let round = core::mem::replace(&mut self.round, Round { since: now, ..Round::default() });
        let (Some(shortest), Some(base)) = (round.shortest, self.rtt.base()) else { return };
        if let Some(until) = self.min_rtt_probe.until {
            if now >= until {
                self.min_rtt_probe = MinRttProbe { until: None, last: now };
                self.rtt.rebase(now, shortest);
            }
            return;
        }
        let queue = shortest.saturating_sub(base);
        let meant = match self.rate.bytes_s() {
            Some(rate) => Duration::from_secs_f64(self.queue_bytes(rate) / rate),
            None => self.queue,
        };
        let share = f64::from(round.lost) / f64::from(round.packets.max(1));
        let lossy = round.lost > 1 && share > LOSSY_ROUND + self.usual_loss * 2.0;
        if !lossy {
            self.usual_loss += (share - self.usual_loss) / USUAL_ROUNDS;
        }
        if round.was_busy
            && self.slow_start.as_mut().is_some_and(|search| search.ends(self.rate.last(), share, queue > meant))
        {
            self.slow_start = None;
            self.rate.adopt();
        }
        if lossy && self.window_gain > 1.0 {
            self.window_gain = 1.0;
        } else if round.was_full && queue < meant / 3 && !lossy {
            let most = 1.0 + BOOST_TIME.as_secs_f64() / base.as_secs_f64();
            self.window_gain = (self.window_gain * 1.5).min(most).min(MOST_BOOST);
        } else if queue > meant {
            self.window_gain = (self.window_gain * 0.8).max(1.0);
        }
        let (shorter, longer) = (self.queue * 4 / 5, self.queue * 21 / 20);
        self.queue = if lossy { shorter.max(QUEUE / 4) } else { longer.min(QUEUE) };
        if queue > meant * 2 || self.rtt.is_old(now) && round.was_full {
            let takes = (self.rtt.smoothed() + HOLD) * 2;
            if now.since(self.min_rtt_probe.last) > takes * 8 {
                self.min_rtt_probe.until = Some(now + takes);
            }
        }
    }
}
