//! Throughput of a path: delivery rates per interval, and a forecast with its
//! uncertainty.
//!
//! An interval counts only if the subflow had data in flight throughout and was past
//! its slow start: a rate limited by the application, the scheduler or the start says
//! nothing about the path. The forecast is the mean rate of the last seconds. Its
//! confidence over a horizon is taken from windows of that length: a lower quantile of
//! the ratio of what they carried to the mean rate before them. So noise averages out
//! over long horizons, as it does in the transfer, and a varying rate stays uncertain.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::stalls::MAX_SUBFLOWS;
use super::{Assessor, Belief, EXPIRY, SEGMENT_BYTES, check_is_due};
use crate::path::{Sample, SampleKind, Transport};
use crate::reason::Reason;
use crate::recent::push_recent;
use crate::time::{Duration, Instant};

mod prediction;

use prediction::{Prediction, SOON};

/// Length of an interval.
const INTERVAL: Duration = Duration::from_millis(100);
/// Intervals remembered: 40 s.
const INTERVALS: usize = 400;
/// Intervals over which the mean rate is taken: 2 s.
const MEAN_INTERVALS: usize = 20;
/// Recent intervals, counted or not: 1 s.
const RECENT: usize = 10;
/// Horizons for which forecast errors are kept, in intervals.
const HORIZONS: [usize; 6] = [5, 10, 20, 40, 80, 160];
/// Intervals needed for a forecast.
const MIN_INTERVALS: usize = 4;
/// Slow start is over after this many RTTs (10 segments grow to 640).
const START_ROUNDS: u32 = 6;
/// Time after a start in which its cost is measured.
const START_WATCH: Duration = Duration::from_secs(1);
/// Starts remembered; the next one is expected to cost as much as the costliest.
const STARTS: usize = 4;
/// A path without a sample for this long has no subflow.
const SILENT: Duration = Duration::from_millis(250);
/// A path with nothing in flight for this long starts again.
const IDLE: Duration = Duration::from_millis(1000);

/// The assessor: a path is good while its interface is up; its rates are in the
/// [`History`].
#[derive(Clone, Debug, Default)]
pub struct Rate {
    history: History,
    subflows: BTreeMap<(u32, SocketAddr), Subflow>,
    swept: Instant,
    belief: Belief,
    reason: Reason,
}

#[derive(Clone, Copy, Debug, Default)]
struct Subflow {
    observed: Instant,
    bytes_acked: u64,
    queued_bytes: u64,
}

/// Observed rates of a path.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Oldest first.
    intervals: VecDeque<Interval>,
    present: Option<Present>,
    busy_since: Option<Instant>,
    /// Bytes acknowledged since then, while the start is measured.
    start: Option<u64>,
    /// Cost of the last starts, in s at full rate.
    start_costs_s: VecDeque<f64>,
    /// On all subflows together.
    queued_bytes: u64,
    /// Minimum and latest RTT.
    rtt: Duration,
    latest_rtt: Duration,
    /// Time of the last sample, and of the last interval that counted.
    sampled: Instant,
    counted: Instant,
    /// When data was last in flight, and when none was.
    busy: Instant,
    idle_at: Instant,
    /// For each interval of the last second, bytes/s acknowledged and the part of it
    /// with nothing in flight.
    recent: VecDeque<(f64, f64)>,
    /// Ratios of what was carried over each of [`HORIZONS`] to the mean rate before, in
    /// rising order.
    ratios: [Vec<f64>; HORIZONS.len()],
    predictions: [Prediction; SOON],
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    bytes_s: f64,
    rtt: Duration,
}

/// The current interval.
#[derive(Clone, Copy, Debug)]
struct Present {
    began: Instant,
    bytes: u64,
    rtt: Duration,
    counts: bool,
    /// Samples, and those with nothing in flight.
    samples: u32,
    idle: u32,
}

impl History {
    /// The number of windows of this length observed, and the minimum ratio of what
    /// they carried to the mean rate before, at this confidence (0.5 to 1). Time since
    /// the last interval that counted is part of the window.
    pub fn forecast_ratio(&self, horizon_s: f64, confidence: f64) -> (f64, f64) {
        self.ratio(horizon_s, confidence, |place| &self.ratios[place])
    }

    /// The same with the ratio to the [predicted rate](Self::predicted_rate), where the window is one that is predicted.
    pub fn predicted_ratio(&self, horizon_s: f64, confidence: f64) -> (f64, f64) {
        let ratios = |place: usize| {
            self.predictions.get(place).map_or(&self.ratios[place], |prediction: &Prediction| &prediction.ratios)
        };
        self.ratio(horizon_s, confidence, ratios)
    }

    fn ratio<'a>(&self, horizon_s: f64, confidence: f64, ratios: impl Fn(usize) -> &'a Vec<f64>) -> (f64, f64) {
        let ahead_s = (horizon_s + self.sampled.since(self.counted).as_secs_f64()).max(INTERVAL.as_secs_f64());
        let observed_s = self.observed_s();
        let ahead = ahead_s / INTERVAL.as_secs_f64();
        let place = HORIZONS.iter().rposition(|&horizon| horizon as f64 <= ahead).unwrap_or(0);
        let known = (0..=place).rev().map(ratios).find(|ratios| !ratios.is_empty());
        let ratio = known.and_then(|ratios| ratios.get(((1.0 - confidence) * ratios.len() as f64) as usize));
        ratio.map_or((0.0, 1.0), |ratio| (observed_s / ahead_s, ratio.min(1.0)))
    }

    /// Mean rate, in bytes/s, over the last two seconds that counted or, if that is
    /// less, over `horizon_s`; `None` while too little is known.
    pub fn mean_rate(&self, horizon_s: f64) -> Option<f64> {
        self.mean_rates(horizon_s).map(|[latest, longer]| latest.min(longer))
    }

    /// The same with the greater of both.
    pub fn best_rate(&self, horizon_s: f64) -> Option<f64> {
        self.mean_rates(horizon_s).map(|[latest, longer]| latest.max(longer))
    }

    fn mean_rates(&self, horizon_s: f64) -> Option<[f64; 2]> {
        let mean = |count: usize| {
            let count = count.min(self.intervals.len());
            self.intervals.iter().rev().take(count).map(|interval| interval.bytes_s).sum::<f64>() / count as f64
        };
        let count = (horizon_s / INTERVAL.as_secs_f64()) as usize;
        (self.intervals.len() >= MIN_INTERVALS).then(|| [MEAN_INTERVALS, count.max(MEAN_INTERVALS)].map(mean))
    }

    /// How much less than predicted a second in five carried at least, as a part of the prediction; 0 while none was
    /// observed. It is about nil on a path of constant rate, also if BBR probes its RTT: such a probe is in a second in
    /// seven.
    pub fn shortfall(&self) -> f64 {
        let [_, Prediction { ratios: second, .. }, _] = &self.predictions;
        second.get(second.len() / 5).map_or(0.0, |ratio| (1.0 - ratio).max(0.0))
    }

    /// Time for which its rate was observed, in s.
    pub fn observed_s(&self) -> f64 {
        self.intervals.len() as f64 * INTERVAL.as_secs_f64()
    }

    /// Rate acknowledged within the last second, whatever limited it, in bytes/s.
    pub fn recent_rate(&self) -> f64 {
        self.recent.iter().map(|(bytes_s, _)| bytes_s).sum::<f64>() / RECENT as f64
    }

    /// Part of the last second with nothing in flight.
    pub fn idle_share(&self) -> f64 {
        self.recent.iter().map(|(_, idle)| idle).sum::<f64>() / RECENT as f64
    }

    /// Compares what was carried with the mean rate before it.
    fn update_ratios(&mut self) {
        let mut sums = Vec::with_capacity(self.intervals.len() + 1);
        sums.push(0.0);
        for interval in &self.intervals {
            sums.push(sums.last().copied().unwrap_or(0.0) + interval.bytes_s);
        }
        for (ratios, horizon) in self.ratios.iter_mut().zip(HORIZONS) {
            ratios.clear();
            for at in (MEAN_INTERVALS..sums.len().saturating_sub(horizon)).step_by(2) {
                let before = (sums[at] - sums[at - MEAN_INTERVALS]) / MEAN_INTERVALS as f64;
                if before > 0.0 {
                    ratios.push((sums[at + horizon] - sums[at]) / horizon as f64 / before);
                }
            }
            ratios.sort_by(f64::total_cmp);
        }
        self.choose_methods(&sums);
    }

    /// True if a subflow exists: its last sample is recent.
    pub fn is_open(&self, now: Instant) -> bool {
        !self.rtt.is_zero() && now.since(self.sampled) < SILENT
    }

    /// The highest rate remembered, in bytes/s.
    pub fn peak(&self) -> Option<f64> {
        self.intervals.iter().map(|interval| interval.bytes_s).max_by(f64::total_cmp)
    }

    /// The minimum round-trip time remembered; zero if there is none.
    pub fn min_rtt(&self) -> Duration {
        self.intervals.iter().map(|interval| interval.rtt).min().unwrap_or(self.rtt)
    }

    /// The latest round-trip time as a multiple of the minimum: above 1, data queues in
    /// the network.
    pub fn queueing(&self) -> f64 {
        let min_s = self.min_rtt().as_secs_f64();
        if min_s > 0.0 { self.latest_rtt.as_secs_f64() / min_s } else { 1.0 }
    }

    /// Bytes acknowledged since it began to carry, if that was within the last
    /// second.
    pub fn started_bytes(&self) -> Option<u64> {
        if self.busy_since.is_none() { Some(0) } else { self.start }
    }

    /// True if it carried recently enough to need no start.
    pub fn is_warm(&self) -> bool {
        self.busy_since.is_some()
    }

    /// Cost of a start after an idle period, in s at full rate: slow start, or what
    /// else congestion control does then. The maximum of the last few starts; `None` if
    /// none was observed.
    pub fn start_cost_s(&self) -> Option<f64> {
        self.start_costs_s.iter().copied().max_by(f64::total_cmp)
    }

    /// Bytes in flight or waiting on the path, which reach the peer over it even if it
    /// gets no more.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    fn record(&mut self, now: Instant, acked: u64, rtt: Duration) {
        if now.since(self.sampled) >= SILENT {
            // This is a new subflow.
            (self.present, self.busy_since, self.start) = (None, None, None);
        }
        self.sampled = now;
        self.latest_rtt = rtt;
        self.rtt = if self.rtt.is_zero() { rtt } else { self.rtt.min(rtt) };
        let busy = self.queued_bytes > 0;
        self.measure_start(now, acked, busy);
        if !busy {
            self.idle_at = now;
        }
        // Data on an idle path is acknowledged an RTT later.
        let started = now.since(self.idle_at) >= rtt
            && self.busy_since.is_some_and(|since| now.since(since) >= self.min_rtt() * START_ROUNDS);
        let present =
            self.present.get_or_insert(Present { began: now, bytes: 0, rtt, counts: false, samples: 0, idle: 0 });
        present.bytes += acked;
        present.rtt = present.rtt.min(rtt);
        present.counts &= busy && started;
        present.samples += 1;
        present.idle += u32::from(!busy);
        let length = now.since(present.began);
        if length < INTERVAL {
            return;
        }
        let bytes_s = present.bytes as f64 / length.as_secs_f64();
        push_recent(&mut self.recent, RECENT, (bytes_s, f64::from(present.idle) / f64::from(present.samples)));
        if present.counts && length < INTERVAL * 2 {
            push_recent(&mut self.intervals, INTERVALS, Interval { bytes_s, rtt: present.rtt });
            self.counted = now;
            self.update_ratios();
        }
        self.present = Some(Present { began: now, bytes: 0, rtt, counts: busy && started, samples: 0, idle: 0 });
    }

    fn measure_start(&mut self, now: Instant, acked: u64, busy: bool) {
        let Some(since) = self.busy_since else {
            if busy {
                (self.busy_since, self.start, self.busy) = (Some(now), Some(acked), now);
            }
            return;
        };
        let took = now.since(since);
        self.start = self.start.map(|bytes| bytes + acked);
        if (!busy || took >= START_WATCH)
            && let Some(bytes) = self.start.take()
            && let Some(rate) = self.mean_rate(0.0).filter(|rate| *rate > 0.0)
        {
            push_recent(&mut self.start_costs_s, STARTS, (took.as_secs_f64() - bytes as f64 / rate).max(0.0));
        }
        if busy {
            self.busy = now;
        } else if now.since(self.busy) >= IDLE {
            self.busy_since = None;
        }
    }
}

impl Rate {
    fn watch(&mut self, now: Instant, transport: &Transport) {
        if check_is_due(&mut self.swept, now) {
            self.subflows.retain(|_, subflow| now.since(subflow.observed) < EXPIRY);
            self.history.queued_bytes = self.subflows.values().map(|subflow| subflow.queued_bytes).sum();
        }
        let key = (transport.token, transport.peer);
        if self.subflows.len() >= MAX_SUBFLOWS && !self.subflows.contains_key(&key) {
            return;
        }
        let subflow = self.subflows.entry(key).or_default();
        // A subflow that was opened again counts from 0.
        let acked = transport.bytes_acked.checked_sub(subflow.bytes_acked).unwrap_or(transport.bytes_acked);
        let queued_bytes = u64::from(transport.unacked) * u64::from(SEGMENT_BYTES) + u64::from(transport.notsent_bytes);
        self.history.queued_bytes = self.history.queued_bytes - subflow.queued_bytes + queued_bytes;
        *subflow = Subflow { observed: now, bytes_acked: transport.bytes_acked, queued_bytes };
        self.history.record(now, acked, transport.rtt);
    }
}

impl Assessor for Rate {
    fn observe(&mut self, now: Instant, sample: &Sample) {
        match &sample.kind {
            SampleKind::Transport(transport) => self.watch(now, transport),
            SampleKind::Link { up } => {
                (self.belief, self.reason) = match up {
                    true => (Belief::Good, Reason::plain("rate.up", "the interface is up")),
                    false => (Belief::Lost, Reason::plain("rate.down", "the interface is down")),
                };
            }
            _ => {}
        }
    }

    fn advance(&mut self, _: Instant) {}

    fn belief(&self) -> (Belief, &Reason) {
        (self.belief, &self.reason)
    }

    fn history(&self) -> Option<&History> {
        Some(&self.history)
    }
}

#[cfg(test)]
pub(crate) mod tests;
