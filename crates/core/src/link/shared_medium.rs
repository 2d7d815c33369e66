//! The air that the transmitters of an 802.11p link share.

use super::Channel;
use super::ieee80211p::{attempt_air_time, backoff, packet_error_rate};
use super::transmitter::{Serving, Transmitter};
use crate::rng::Rng;
use crate::time::{Duration, Instant};

/// One half-duplex channel: one frame at a time, of any transmitter.
#[derive(Clone, Debug)]
pub(super) struct SharedMedium {
    busy_until: Instant,
    on_air: Option<Try>,
    /// The transmitter that sent last. If several have waited equally long, the next
    /// one after it sends.
    last: Option<usize>,
    used: Duration,
    rng: Rng,
}

/// One try of one packet.
#[derive(Clone, Copy, Debug)]
struct Try {
    transmitter: usize,
    ends: Instant,
    received: bool,
    /// Tries that the packet has, this one included.
    limit: u8,
}

impl SharedMedium {
    pub(super) fn new(rng: Rng) -> SharedMedium {
        SharedMedium { busy_until: Instant::ZERO, on_air: None, last: None, used: Duration::ZERO, rng }
    }

    /// Completes every try that begins or ends by `now`.
    pub(super) fn advance(&mut self, now: Instant, transmitters: &mut [Transmitter]) {
        loop {
            if let Some(ended) = self.on_air {
                if ended.ends > now {
                    return;
                }
                self.on_air = None;
                transmitters[ended.transmitter].end_try(ended.ends, ended.received, ended.limit);
            }
            match self.contender(transmitters) {
                Some((transmitter, channel, head)) if head.since.max(self.busy_until) <= now => {
                    self.begin(transmitter, channel, head);
                }
                _ => return,
            }
        }
    }

    /// The transmitter that gets the air next: the one that has waited longest.
    fn contender(&self, transmitters: &[Transmitter]) -> Option<(usize, Channel, Serving)> {
        let count = transmitters.len();
        let next = self.last.map_or(0, |last| last + 1);
        let turns = (next..next + count).map(|turn| turn % count);
        let heads = turns.filter_map(|place| transmitters[place].head().map(|(channel, head)| (place, channel, head)));
        heads.min_by_key(|(.., head)| head.since)
    }

    /// IEEE 802.11 §10.3.4: a station that finds the air free sends without backoff;
    /// one that finds it busy, or has just sent, waits a random number of slots.
    fn begin(&mut self, transmitter: usize, channel: Channel, head: Serving) {
        let air_time = attempt_air_time(channel.rate, head.ip_bytes);
        let mut start = head.since.max(self.busy_until);
        let mut wanted = air_time;
        if head.since <= self.busy_until {
            let slots = backoff(&mut self.rng, head.tries);
            start = start + slots;
            wanted += slots;
        }
        start = start + self.wait_for_others(channel.share, wanted);
        let fade_db = if channel.nakagami_m.is_finite() {
            10.0 * libm::log10(self.rng.gamma_mean_one(channel.nakagami_m))
        } else {
            0.0
        };
        let error = packet_error_rate(channel.rate, channel.mean_snr_db + fade_db, head.ip_bytes);
        let ends = start + air_time;
        self.busy_until = ends;
        self.used += air_time;
        self.last = Some(transmitter);
        self.on_air = Some(Try { transmitter, ends, received: !self.rng.chance(error), limit: channel.tries });
    }

    /// How long other stations delay a try that takes `wanted` of the air: with the
    /// share s left to it, wanted · (1 − s)/s on average, exponentially distributed.
    /// Other stations are a mean field (after Bianchi, *Performance analysis of the
    /// IEEE 802.11 distributed coordination function*, 2000): they take their part of
    /// the time with equal probability at any moment, and the backoff pauses meanwhile.
    fn wait_for_others(&mut self, share: f64, wanted: Duration) -> Duration {
        if share >= 1.0 {
            return Duration::ZERO;
        }
        let share = share.max(Channel::LEAST_SHARE);
        let mean_ns = wanted.as_nanos() as f64 * (1.0 - share) / share;
        Duration::from_nanos((mean_ns * self.rng.exponential()) as u64)
    }

    /// Takes the air for another transmission as soon as it is free; returns its end.
    pub(super) fn occupy(&mut self, now: Instant, air_time: Duration) -> Instant {
        self.used += air_time;
        self.busy_until = self.busy_until.max(now) + air_time;
        self.busy_until
    }

    /// Air time taken so far.
    pub(super) fn used(&self) -> Duration {
        self.used
    }

    /// Discards this transmitter's packet on the air; the air stays taken.
    pub(super) fn abandon(&mut self, transmitter: usize) {
        self.on_air = self.on_air.filter(|current| current.transmitter != transmitter);
    }

    /// When a packet may next leave over the air.
    pub(super) fn next_event(&self, transmitters: &[Transmitter]) -> Option<Instant> {
        match self.on_air {
            // Another transmitter may go next, with a shorter delay.
            Some(current) => transmitters.iter().map(|transmitter| current.ends + transmitter.delay()).min(),
            None => self.contender(transmitters).map(|(_, _, head)| head.since.max(self.busy_until)),
        }
    }
}
