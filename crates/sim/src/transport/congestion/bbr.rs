//! A model of BBR version 1 (Cardwell et al., *BBR: Congestion-Based Congestion
//! Control*, ACM Queue 14, 2016; Linux `tcp_bbr.c`).
//!
//! Modelled: the windowed maximum of the delivery rate over ten rounds, the
//! least round-trip time over ten seconds, startup, drain, the eight phases of
//! bandwidth probing, the 200 ms of four packets that probe the round-trip
//! time. Not modelled: the policer detection, the extra window for aggregated
//! acknowledgements, and packet conservation in recovery.

use std::collections::VecDeque;

use crosslane_core::time::{Duration, Instant};

const STARTUP_GAIN: f64 = 2.89;
const WINDOW_GAIN: f64 = 2.0;
const PHASES: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Rounds over which the greatest rate counts.
const RATE_ROUNDS: u64 = 10;
/// How long a least round-trip time counts.
const RTT_WINDOW: Duration = Duration::from_secs(10);
/// How long the window stays at [`LEAST_WINDOW`] to find a new one.
const PROBE_RTT: Duration = Duration::from_millis(200);
const LEAST_WINDOW: u32 = 4;
/// The pipe is full when the rate grew by less than a quarter in so many
/// rounds.
const FULL_ROUNDS: u32 = 3;
/// BBR paces by 1 % below its estimate.
const MARGIN: f64 = 0.99;

/// What the network delivered, from one acknowledgement
/// (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// When the acknowledgement came.
    pub now: Instant,
    /// Segments delivered since the acknowledged segment was sent.
    pub delivered: u64,
    /// In what time.
    pub interval: Duration,
    /// Segments delivered in all before the acknowledged one was sent.
    pub prior_delivered: u64,
    /// Segments delivered in all.
    pub total_delivered: u64,
    /// Round-trip time, where measured.
    pub rtt: Option<Duration>,
    /// The application did not fill the window when the segment was sent.
    pub app_limited: bool,
    /// Segments in flight.
    pub in_flight: u32,
    /// Segments newly delivered.
    pub newly: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Startup,
    Drain,
    ProbeRate { phase: usize, since: Instant },
    ProbeRtt { until: Option<Instant> },
}

#[derive(Clone, Debug)]
pub(super) struct Bbr {
    state: State,
    /// (round, segments a second), falling: the front is the maximum.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    round_ends: u64,
    least_rtt: Option<(Duration, Instant)>,
    full_rate: f64,
    full_rounds: u32,
    filled: bool,
    window_before: u32,
}

impl Default for Bbr {
    fn default() -> Bbr {
        Bbr {
            state: State::Startup,
            rates: VecDeque::new(),
            round: 0,
            round_ends: 0,
            least_rtt: None,
            full_rate: 0.0,
            full_rounds: 0,
            filled: false,
            window_before: LEAST_WINDOW,
        }
    }
}

impl Bbr {
    /// The window after a sample.
    pub(super) fn on_sample(&mut self, sample: &RateSample, window: u32) -> u32 {
        let new_round = sample.prior_delivered >= self.round_ends;
        if new_round {
            self.round += 1;
            self.round_ends = sample.total_delivered;
        }
        self.note_rate(sample);
        if new_round {
            self.look_whether_full(sample);
        }
        self.follow_cycle(sample, window);
        self.note_rtt(sample, window);
        self.window(sample, window)
    }

    /// Bytes a second.
    pub(super) fn pace(&self, segment_bytes: u32) -> Option<f64> {
        let rate = self.rates.front().map(|&(_, rate)| rate)?;
        Some(rate * self.gain() * MARGIN * f64::from(segment_bytes))
    }

    fn gain(&self) -> f64 {
        match self.state {
            State::Startup => STARTUP_GAIN,
            State::Drain => 1.0 / STARTUP_GAIN,
            State::ProbeRate { phase, .. } => PHASES[phase],
            State::ProbeRtt { .. } => 1.0,
        }
    }

    fn note_rate(&mut self, sample: &RateSample) {
        let seconds = sample.interval.as_secs_f64();
        if seconds <= 0.0 || sample.delivered == 0 {
            return;
        }
        let rate = sample.delivered as f64 / seconds;
        let best = self.rates.front().map_or(0.0, |&(_, rate)| rate);
        if sample.app_limited && rate < best {
            return;
        }
        while self.rates.back().is_some_and(|&(_, known)| known <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, rate));
        while self.rates.len() > 1 && self.rates.front().is_some_and(|&(round, _)| round + RATE_ROUNDS < self.round) {
            self.rates.pop_front();
        }
    }

    fn look_whether_full(&mut self, sample: &RateSample) {
        if self.filled || sample.app_limited {
            return;
        }
        let rate = self.rates.front().map_or(0.0, |&(_, rate)| rate);
        if rate >= self.full_rate * 1.25 {
            (self.full_rate, self.full_rounds) = (rate, 0);
            return;
        }
        self.full_rounds += 1;
        self.filled = self.full_rounds >= FULL_ROUNDS;
    }

    /// Segments that fill the way, times a gain.
    fn bdp(&self, gain: f64) -> Option<f64> {
        let rate = self.rates.front().map(|&(_, rate)| rate)?;
        let (rtt, _) = self.least_rtt?;
        Some(rate * rtt.as_secs_f64() * gain)
    }

    fn follow_cycle(&mut self, sample: &RateSample, _window: u32) {
        let in_flight = f64::from(sample.in_flight);
        match self.state {
            State::Startup if self.filled => self.state = State::Drain,
            State::Drain if self.bdp(1.0).is_some_and(|bdp| in_flight <= bdp) => self.probe_rate(sample.now),
            State::ProbeRate { phase, since } => {
                let length = self.least_rtt.map_or(Duration::ZERO, |(rtt, _)| rtt);
                let over = sample.now.since(since) > length;
                let filled = self.bdp(PHASES[phase]).is_none_or(|bdp| in_flight >= bdp);
                let drained = self.bdp(1.0).is_none_or(|bdp| in_flight <= bdp);
                let next = match PHASES[phase] {
                    gain if gain > 1.0 => over && filled,
                    gain if gain < 1.0 => over || drained,
                    _ => over,
                };
                if next {
                    self.state = State::ProbeRate { phase: (phase + 1) % PHASES.len(), since: sample.now };
                }
            }
            _ => {}
        }
    }

    fn probe_rate(&mut self, now: Instant) {
        // Linux begins at random, but never with the phase that drains.
        self.state = State::ProbeRate { phase: 2, since: now };
    }

    fn note_rtt(&mut self, sample: &RateSample, window: u32) {
        let expired = self.least_rtt.is_some_and(|(_, at)| sample.now.since(at) > RTT_WINDOW);
        if let Some(rtt) = sample.rtt
            && self.least_rtt.is_none_or(|(least, _)| rtt <= least || expired)
        {
            self.least_rtt = Some((rtt, sample.now));
        }
        match self.state {
            State::ProbeRtt { until: None } if sample.in_flight <= LEAST_WINDOW => {
                self.state = State::ProbeRtt { until: Some(sample.now + PROBE_RTT) };
            }
            State::ProbeRtt { until: Some(until) } if sample.now >= until => {
                self.least_rtt = self.least_rtt.map(|(rtt, _)| (rtt, sample.now));
                match self.filled {
                    true => self.probe_rate(sample.now),
                    false => self.state = State::Startup,
                }
            }
            State::ProbeRtt { .. } => {}
            _ if expired => {
                self.window_before = window;
                self.state = State::ProbeRtt { until: None };
            }
            _ => {}
        }
    }

    fn window(&mut self, sample: &RateSample, window: u32) -> u32 {
        if matches!(self.state, State::ProbeRtt { .. }) {
            return window.min(LEAST_WINDOW);
        }
        let restored = window.max(std::mem::replace(&mut self.window_before, 0));
        let gain = if self.filled { WINDOW_GAIN } else { STARTUP_GAIN };
        let Some(bdp) = self.bdp(gain) else { return restored + sample.newly };
        // Three bursts more, so that delayed acknowledgements starve nobody.
        let target = libm::ceil(bdp) as u32 + 3;
        let wanted = match self.filled {
            true => (restored + sample.newly).min(target),
            false if restored < target => restored + sample.newly,
            false => restored,
        };
        wanted.max(LEAST_WINDOW)
    }
}
