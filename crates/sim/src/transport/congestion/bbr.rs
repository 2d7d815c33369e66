//! A model of BBR version 1 (Cardwell et al., *BBR: Congestion-Based Congestion
//! Control*, ACM Queue 14, 2016) as in Linux 6.18 (`tcp_bbr.c`; comments name the
//! corresponding functions).
//!
//! Not modelled: the long-term rate of a policer (`bbr_lt_bw_sampling`) and the
//! segments held by the pacer (`bbr_packets_in_net_at_edt`).

use std::collections::VecDeque;

use crosslane_core::time::{Duration, Instant};

use super::INITIAL_WINDOW;
use super::sample::{RateSample, RecoveryState};

/// Gain of startup, 2 / ln 2: the rate doubles each round.
const STARTUP_GAIN: f64 = 2.89;
const WINDOW_GAIN: f64 = 2.0;
const PHASES: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Window of the maximum rate, in rounds.
const RATE_ROUNDS: u64 = 10;
/// Window of the minimum round-trip time.
const RTT_WINDOW: Duration = Duration::from_secs(10);
/// Time for which the window is [`MIN_WINDOW`] to measure a new minimum.
const PROBE_RTT: Duration = Duration::from_millis(200);
const MIN_WINDOW: u32 = 4;
/// The pipe is full if the rate grew by less than a quarter in this number of
/// rounds.
const FULL_ROUNDS: u32 = 3;
/// BBR paces 1 % below its estimate.
const MARGIN: f64 = 0.99;
/// Below this rate, in bytes per second, segments are sent one by one.
const MIN_BURST_RATE: f64 = 150_000.0;
const BURST_MAX: u32 = 127;
/// Rounds of each of the two windows of ACK aggregation.
const AGGREGATION_ROUNDS: u32 = 5;
/// Maximum of the aggregation's addition to the window, in seconds of the rate.
const AGGREGATION_MAX_S: f64 = 0.1;
/// Payload of a full segment in Linux's pacing (`mss_cache`, without MPTCP's
/// options: on a subflow BBR paces 1.7 % faster than intended).
const SEGMENT_BYTES: f64 = 1448.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Mode {
    #[default]
    Startup,
    Drain,
    ProbeRate {
        phase: usize,
        since: Instant,
    },
    ProbeRtt {
        until: Option<Instant>,
        round_over: bool,
    },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Bbr {
    mode: Mode,
    /// (round, segments per second), descending: the front is the maximum.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    round_ends: u64,
    round_start: bool,
    min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    full_rate: f64,
    full_rounds: u32,
    filled: bool,
    /// Transmission restarts after the application paused.
    restarts_from_idle: bool,
    /// Pacing rate, in segments per second (`sk_pacing_rate`).
    pace: Option<f64>,
    /// Window before recovery or ProbeRTT.
    window_before: u32,
    recovery: RecoveryState,
    conserves_packets: bool,
    aggregation: Aggregation,
}

/// Segments acknowledged in excess of the rate (`extra_acked`).
#[derive(Clone, Copy, Debug, Default)]
struct Aggregation {
    since: Instant,
    acked: f64,
    /// Maximum of the current window of rounds, and of the previous one.
    max: [f64; 2],
    rounds: u32,
}

impl Bbr {
    /// Completes the handshake, which took `rtt` (`bbr_init`).
    pub(super) fn begin(&mut self, now: Instant, rtt: Duration) {
        (self.min_rtt, self.min_rtt_at) = (Some(rtt), now);
        self.pace = Some(f64::from(INITIAL_WINDOW) / rtt.as_secs_f64().max(1e-6) * STARTUP_GAIN * MARGIN);
        self.aggregation.since = now;
    }

    /// Notes a transmission with nothing in flight (`bbr_cwnd_event`); returns the
    /// window. BBR detects an idle period only if the samples are
    /// application-limited.
    pub(super) fn on_start(&mut self, now: Instant, app_limited: bool, window: u32) -> u32 {
        if !app_limited {
            return window;
        }
        self.restarts_from_idle = true;
        (self.aggregation.since, self.aggregation.acked) = (now, 0.0);
        match self.mode {
            Mode::ProbeRate { .. } => self.set_pace(1.0),
            Mode::ProbeRtt { until, .. } => return self.end_probe_rtt(now, until, window),
            Mode::Startup | Mode::Drain => {}
        }
        window
    }

    /// Notes the start of recovery or a timeout (`bbr_ssthresh`,
    /// `bbr_save_cwnd`).
    pub(super) fn on_loss(&mut self, window: u32) {
        let undisturbed = self.recovery == RecoveryState::None && !self.probes_rtt();
        self.window_before = if undisturbed { window } else { self.window_before.max(window) };
    }

    /// A recovery was spurious (`bbr_undo_cwnd`).
    pub(super) fn on_undo(&mut self) {
        (self.full_rate, self.full_rounds) = (0.0, 0);
    }

    /// Notes a timeout (`bbr_set_state`).
    pub(super) fn on_timeout(&mut self) {
        (self.recovery, self.full_rate) = (RecoveryState::Loss, 0.0);
    }

    /// Processes a sample; returns the window (`bbr_main`).
    pub(super) fn on_sample(&mut self, sample: &RateSample, window: u32) -> u32 {
        self.note_rate(sample);
        self.note_aggregation(sample, window);
        self.advance_cycle(sample);
        self.check_full(sample);
        self.check_drain(sample);
        let window = self.note_rtt(sample, window);
        self.set_pace(self.gain());
        self.window(sample, window)
    }

    /// Pacing rate, in bytes per second.
    pub(super) fn pace(&self) -> Option<f64> {
        self.pace.map(|pace| pace * SEGMENT_BYTES)
    }

    /// True in ProbeRTT: rate samples then count as application-limited
    /// (`bbr_update_min_rtt`).
    pub(super) fn probes_rtt(&self) -> bool {
        matches!(self.mode, Mode::ProbeRtt { .. })
    }

    fn gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => STARTUP_GAIN,
            Mode::Drain => 1.0 / STARTUP_GAIN,
            Mode::ProbeRate { phase, .. } => PHASES[phase],
            Mode::ProbeRtt { .. } => 1.0,
        }
    }

    fn window_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup | Mode::Drain => STARTUP_GAIN,
            Mode::ProbeRate { .. } => WINDOW_GAIN,
            Mode::ProbeRtt { .. } => 1.0,
        }
    }

    /// `bbr_max_bw`, in segments per second.
    fn rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |&(_, rate)| rate)
    }

    /// `bbr_set_pacing_rate`: until the pipe is full, the rate does not decrease.
    fn set_pace(&mut self, gain: f64) {
        let pace = self.rate() * gain * MARGIN;
        if self.filled || self.pace.is_none_or(|current| pace > current) {
            self.pace = (pace > 0.0).then_some(pace);
        }
    }

    /// `bbr_update_bw`.
    fn note_rate(&mut self, sample: &RateSample) {
        self.round_start = false;
        let Some(rate) = sample.rate() else { return };
        if sample.prior_delivered >= self.round_ends {
            self.round += 1;
            self.round_ends = sample.total_delivered;
            (self.round_start, self.conserves_packets) = (true, false);
        }
        if sample.app_limited && rate < self.rate() {
            return;
        }
        while self.rates.back().is_some_and(|&(_, current)| current <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((self.round, rate));
        while self.rates.len() > 1 && self.rates.front().is_some_and(|&(round, _)| round + RATE_ROUNDS < self.round) {
            self.rates.pop_front();
        }
    }

    /// `bbr_update_ack_aggregation`.
    fn note_aggregation(&mut self, sample: &RateSample, window: u32) {
        if sample.rate().is_none() {
            return;
        }
        let rate = self.rate();
        let aggregation = &mut self.aggregation;
        if self.round_start {
            aggregation.rounds += 1;
            if aggregation.rounds >= AGGREGATION_ROUNDS {
                (aggregation.rounds, aggregation.max) = (0, [0.0, aggregation.max[0]]);
            }
        }
        let mut expected = libm::floor(rate * sample.now.since(aggregation.since).as_secs_f64());
        if aggregation.acked <= expected {
            (aggregation.acked, aggregation.since, expected) = (0.0, sample.now, 0.0);
        }
        aggregation.acked += f64::from(sample.newly);
        aggregation.max[0] = aggregation.max[0].max((aggregation.acked - expected).min(f64::from(window)));
    }

    /// `bbr_ack_aggregation_cwnd`, in segments.
    fn aggregated(&self) -> f64 {
        let [now, before] = self.aggregation.max;
        if self.filled { now.max(before).min(libm::floor(self.rate() * AGGREGATION_MAX_S)) } else { 0.0 }
    }

    /// `bbr_is_next_cycle_phase`.
    fn advance_cycle(&mut self, sample: &RateSample) {
        let Mode::ProbeRate { phase, since } = self.mode else { return };
        let over = self.min_rtt.is_none_or(|min| sample.now.since(since) > min);
        let in_flight = sample.in_flight[0];
        let next = match PHASES[phase] {
            gain if gain > 1.0 => over && (sample.losses > 0 || in_flight + self.burst() >= self.inflight(gain)),
            gain if gain < 1.0 => over || in_flight <= self.inflight(1.0),
            _ => over,
        };
        if next {
            self.mode = Mode::ProbeRate { phase: (phase + 1) % PHASES.len(), since: sample.now };
        }
    }

    /// `bbr_check_full_bw_reached`.
    fn check_full(&mut self, sample: &RateSample) {
        if self.filled || !self.round_start || sample.app_limited {
            return;
        }
        if self.rate() >= self.full_rate * 1.25 {
            (self.full_rate, self.full_rounds) = (self.rate(), 0);
            return;
        }
        self.full_rounds += 1;
        self.filled = self.full_rounds >= FULL_ROUNDS;
    }

    /// `bbr_check_drain`.
    fn check_drain(&mut self, sample: &RateSample) {
        if self.mode == Mode::Startup && self.filled {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && sample.in_flight[1] <= self.inflight(1.0) {
            self.reset_mode(sample.now);
        }
    }

    /// `bbr_update_min_rtt`; returns the window. Since Linux 5.10 an RTT equal to the minimum does not postpone ProbeRTT.
    fn note_rtt(&mut self, sample: &RateSample, mut window: u32) -> u32 {
        let expired = sample.now.since(self.min_rtt_at) > RTT_WINDOW;
        if let Some(rtt) = sample.rtt
            && (expired || self.min_rtt.is_none_or(|min| rtt < min))
        {
            (self.min_rtt, self.min_rtt_at) = (Some(rtt), sample.now);
        }
        if expired && !self.restarts_from_idle && !self.probes_rtt() {
            self.mode = Mode::ProbeRtt { until: None, round_over: false };
            self.window_before = self.window_before.max(window);
        }
        match &mut self.mode {
            Mode::ProbeRtt { until: until @ None, .. } if sample.in_flight[1] <= MIN_WINDOW => {
                *until = Some(sample.now + PROBE_RTT);
                self.round_ends = sample.total_delivered;
            }
            Mode::ProbeRtt { until: until @ Some(_), round_over } => {
                *round_over |= self.round_start;
                let until = until.filter(|_| *round_over);
                window = self.end_probe_rtt(sample.now, until, window);
            }
            _ => {}
        }
        self.restarts_from_idle &= sample.delivered == 0;
        window
    }

    /// `bbr_check_probe_rtt_done`; returns the window.
    fn end_probe_rtt(&mut self, now: Instant, until: Option<Instant>, window: u32) -> u32 {
        if until.is_none_or(|until| now <= until) {
            return window;
        }
        self.min_rtt_at = now;
        self.reset_mode(now);
        window.max(self.window_before)
    }

    /// `bbr_reset_mode`. Linux starts the cycle in a random phase, except the
    /// draining one; here the round number determines the phase.
    fn reset_mode(&mut self, now: Instant) {
        let phase = [0, 2, 3, 4, 5, 6, 7][(self.round % 7) as usize];
        self.mode = if self.filled { Mode::ProbeRate { phase, since: now } } else { Mode::Startup };
    }

    /// `bbr_bdp`: bandwidth-delay product in segments, times a gain.
    fn bdp(&self, gain: f64) -> f64 {
        let initial = f64::from(INITIAL_WINDOW);
        self.min_rtt.map_or(initial, |rtt| libm::ceil(self.rate() * rtt.as_secs_f64() * gain))
    }

    /// `bbr_inflight`.
    fn inflight(&self, gain: f64) -> u32 {
        self.budget(self.bdp(gain))
    }

    /// `bbr_quantization_budget`: adds three bursts, rounds up to an even number,
    /// and adds two segments in the probing phase.
    fn budget(&self, segments: f64) -> u32 {
        let even = (segments as u32 + 3 * self.burst()).next_multiple_of(2);
        even + if matches!(self.mode, Mode::ProbeRate { phase: 0, .. }) { 2 } else { 0 }
    }

    /// `bbr_tso_segs_goal`: segments per burst, about 1 ms of the rate.
    fn burst(&self) -> u32 {
        let pace = self.pace().unwrap_or_default();
        let min = if pace < MIN_BURST_RATE { 1 } else { 2 };
        ((pace / 1024.0 / SEGMENT_BYTES) as u32).clamp(min, BURST_MAX)
    }

    /// `bbr_set_cwnd`.
    fn window(&mut self, sample: &RateSample, window: u32) -> u32 {
        let mut window = self.recover_or_restore(sample, window);
        if !self.conserves_packets {
            let target = self.budget(self.bdp(self.window_gain()) + self.aggregated());
            let grown = window + sample.newly;
            window = match self.filled {
                true => grown.min(target),
                false if window < target || sample.total_delivered < u64::from(INITIAL_WINDOW) => grown,
                false => window,
            };
            window = window.max(MIN_WINDOW);
        }
        if self.probes_rtt() { window.min(MIN_WINDOW) } else { window }
    }

    /// `bbr_set_cwnd_to_recover_or_restore`: packet conservation in the first
    /// round of recovery; at its end the window is restored.
    fn recover_or_restore(&mut self, sample: &RateSample, window: u32) -> u32 {
        let mut window = window.saturating_sub(sample.losses).max(1);
        let before = std::mem::replace(&mut self.recovery, sample.recovery);
        if sample.recovery == RecoveryState::Recovery && before != RecoveryState::Recovery {
            self.conserves_packets = true;
            self.round_ends = sample.total_delivered;
            window = sample.in_flight[1] + sample.newly;
        } else if sample.recovery == RecoveryState::None && before != RecoveryState::None {
            self.conserves_packets = false;
            window = window.max(self.window_before);
        }
        if self.conserves_packets { window.max(sample.in_flight[1] + sample.newly) } else { window }
    }
}

#[cfg(test)]
mod tests;
