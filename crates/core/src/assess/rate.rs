//! How much a path carries: rates of delivery per interval, and from them a
//! forecast with its uncertainty.
//!
//! An interval counts only if the subflow had something under way all the
//! time and was past its slow start: what the application, the scheduler or the
//! start limited says nothing about the path. The forecast for a horizon is a
//! lower quantile of the means over windows as long as the horizon, recent ones
//! weighing more, so that noise averages out over long horizons as it does in
//! the transfer, while a rate that wanders stays uncertain.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::{Assessor, Belief, Reason};
use crate::path::{Sample, SampleKind, Transport};
use crate::time::{Duration, Instant};

/// Length of an interval.
const INTERVAL: Duration = Duration::from_millis(100);
/// Intervals remembered: 20 s.
const INTERVALS: usize = 200;
/// Age at which an interval weighs half, in intervals: 10 s.
const HALF_LIFE: f64 = 100.0;
/// Intervals needed for a forecast.
const FEW: usize = 4;
/// Slow start is over after so many round trips (10 segments grow to 640).
const START_ROUNDS: u32 = 6;
/// Intervals in which a stall is looked for.
const STALL_WINDOW: usize = 5;
/// Horizon of the median that it is held against, in s.
const STALL_MEDIAN_S: f64 = 2.0;
/// Time after a start in which what the start cost is measured.
const START_WATCH: Duration = Duration::from_secs(1);
/// Starts remembered; the costliest of them is what the next one is taken for.
const STARTS: usize = 4;
/// Connections followed over one path; those beyond are not counted.
const MAX_CONNECTIONS: usize = 64;
/// Payload of a full MPTCP segment, in bytes.
const SEGMENT_BYTES: u64 = 1424;

/// The assessor: a path is good while its interface is up, and carries what its
/// [`History`] says.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    history: History,
    connections: BTreeMap<u32, Subflow>,
    belief: Belief,
    reason: Reason,
}

#[derive(Clone, Copy, Debug, Default)]
struct Subflow {
    bytes_acked: u64,
    queued_bytes: u64,
}

/// Rates that a path has shown.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Oldest first.
    intervals: VecDeque<Interval>,
    present: Option<Present>,
    busy_since: Option<Instant>,
    /// Bytes acknowledged since then, while the start is watched.
    start: Option<u64>,
    /// What the last starts cost, in s at full rate.
    start_costs_s: VecDeque<f64>,
    queued_bytes: u64,
    /// Least seen, and the latest.
    rtt: Duration,
    latest_rtt: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    bytes_s: f64,
    rtt: Duration,
}

/// The interval that has not ended.
#[derive(Clone, Copy, Debug)]
struct Present {
    began: Instant,
    bytes: u64,
    rtt: Duration,
    counts: bool,
}

impl History {
    /// What the path carries at least over the next `horizon_s`, with this
    /// confidence (0.5 to 1), in bytes a second; `None` while too little is known.
    pub fn at_least(&self, horizon_s: f64, confidence: f64) -> Option<f64> {
        let count = self.intervals.len();
        if count < FEW {
            return None;
        }
        let width = (horizon_s / INTERVAL.as_secs_f64()) as usize;
        let width = width.clamp(1, (count / 2).max(1));
        let mut sum: f64 = self.intervals.iter().take(width).map(|interval| interval.bytes_s).sum();
        let mut means = Vec::with_capacity(count - width + 1);
        for end in width..=count {
            means.push((sum / width as f64, libm::exp2((end as f64 - count as f64) / HALF_LIFE)));
            if let (Some(next), Some(first)) = (self.intervals.get(end), self.intervals.get(end - width)) {
                sum += next.bytes_s - first.bytes_s;
            }
        }
        means.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let wanted = (1.0 - confidence) * means.iter().map(|(_, weight)| weight).sum::<f64>();
        let mut below = 0.0;
        let found = means.iter().find(|(_, weight)| {
            below += weight;
            below >= wanted
        });
        found.map(|(mean, _)| mean.max(0.0))
    }

    /// The greatest rate remembered, in bytes a second.
    pub fn peak(&self) -> Option<f64> {
        let rates = self.intervals.iter().map(|interval| interval.bytes_s);
        rates.max_by(f64::total_cmp)
    }

    /// The most time that half a second of carrying fell short of the median
    /// rate, in s: how long a path may pause that otherwise carries (BBR does
    /// for 0.2 s and a round trip each 10 s).
    pub fn longest_stall_s(&self) -> f64 {
        let Some(rate) = self.at_least(STALL_MEDIAN_S, 0.5).filter(|rate| *rate > 0.0) else { return 0.0 };
        let bytes_s: Vec<f64> = self.intervals.iter().map(|interval| interval.bytes_s).collect();
        let least = bytes_s.windows(STALL_WINDOW).map(|window| window.iter().sum::<f64>()).min_by(f64::total_cmp);
        let whole_s = STALL_WINDOW as f64 * INTERVAL.as_secs_f64();
        least.map_or(0.0, |sum| (whole_s - sum * INTERVAL.as_secs_f64() / rate).max(0.0))
    }

    /// The least round-trip time remembered; zero if there is none.
    pub fn least_rtt(&self) -> Duration {
        self.intervals.iter().map(|interval| interval.rtt).min().unwrap_or(self.rtt)
    }

    /// The latest round trip as a multiple of the least: above 1, what is sent
    /// queues in the network.
    pub fn queueing(&self) -> f64 {
        let least_s = self.least_rtt().as_secs_f64();
        if least_s > 0.0 { self.latest_rtt.as_secs_f64() / least_s } else { 1.0 }
    }

    /// Bytes acknowledged since it began to carry, if that was within the last
    /// second.
    pub fn started_bytes(&self) -> Option<u64> {
        if self.busy_since.is_none() { Some(0) } else { self.start }
    }

    /// What it costs to start when idle, in s at full rate: slow start, or what
    /// else congestion control does then. The most of the last few starts;
    /// `None` if none was seen.
    pub fn start_cost_s(&self) -> Option<f64> {
        self.start_costs_s.iter().copied().max_by(f64::total_cmp)
    }

    /// Bytes that are under way or wait on the path, and reach the peer over it
    /// even if it is given no more.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    fn note(&mut self, now: Instant, acked: u64, queued_bytes: u64, rtt: Duration) {
        self.queued_bytes = queued_bytes;
        self.latest_rtt = rtt;
        self.rtt = if self.rtt.is_zero() { rtt } else { self.rtt.min(rtt) };
        let busy = queued_bytes > 0;
        self.watch_start(now, acked, busy);
        let started = self.busy_since.is_some_and(|since| now.since(since) >= self.least_rtt() * START_ROUNDS);
        let present = self.present.get_or_insert(Present { began: now, bytes: 0, rtt, counts: false });
        present.bytes += acked;
        present.rtt = present.rtt.min(rtt);
        present.counts &= busy && started;
        let length = now.since(present.began);
        if length < INTERVAL {
            return;
        }
        if present.counts && length < INTERVAL * 2 {
            if self.intervals.len() == INTERVALS {
                self.intervals.pop_front();
            }
            let bytes_s = present.bytes as f64 / length.as_secs_f64();
            self.intervals.push_back(Interval { bytes_s, rtt: present.rtt });
        }
        self.present = Some(Present { began: now, bytes: 0, rtt, counts: busy && started });
    }
}

impl History {
    fn watch_start(&mut self, now: Instant, acked: u64, busy: bool) {
        let Some(since) = self.busy_since else {
            if busy {
                (self.busy_since, self.start) = (Some(now), Some(acked));
            }
            return;
        };
        let took = now.since(since);
        self.start = self.start.map(|bytes| bytes + acked);
        if (!busy || took >= START_WATCH)
            && let Some(bytes) = self.start.take()
            && let Some(rate) = self.at_least(took.as_secs_f64(), 0.5).filter(|rate| *rate > 0.0)
        {
            if self.start_costs_s.len() == STARTS {
                self.start_costs_s.pop_front();
            }
            self.start_costs_s.push_back((took.as_secs_f64() - bytes as f64 / rate).max(0.0));
        }
        if !busy {
            self.busy_since = None;
        }
    }
}

impl Rate {
    fn watch(&mut self, now: Instant, transport: &Transport) {
        if self.connections.len() >= MAX_CONNECTIONS && !self.connections.contains_key(&transport.token) {
            return;
        }
        let subflow = self.connections.entry(transport.token).or_default();
        // A subflow that was opened anew counts from 0.
        let acked = transport.bytes_acked.checked_sub(subflow.bytes_acked).unwrap_or(transport.bytes_acked);
        let queued_bytes = u64::from(transport.unacked) * SEGMENT_BYTES + u64::from(transport.notsent_bytes);
        *subflow = Subflow { bytes_acked: transport.bytes_acked, queued_bytes };
        let queued = self.connections.values().map(|subflow| subflow.queued_bytes).sum();
        self.history.note(now, acked, queued, transport.rtt);
    }
}

impl Assessor for Rate {
    fn observe(&mut self, now: Instant, sample: &Sample) {
        match &sample.kind {
            SampleKind::Transport(transport) => self.watch(now, transport),
            SampleKind::Link { up } => {
                self.belief = if *up { Belief::Good } else { Belief::Lost };
                let (rule, because) = if *up { ("rate.up", "up") } else { ("rate.down", "down") };
                let because = alloc::format!("the interface is {because}");
                self.reason = Reason { rule, because, ..Reason::default() };
            }
            SampleKind::Signal { .. } => {}
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
pub(crate) mod tests {
    use super::*;

    /// A history of so many intervals at these rates, over and over.
    pub(crate) fn history(rates: &[f64], count: usize) -> History {
        let rtt = Duration::from_millis(100);
        let intervals = rates.iter().cycle().take(count).map(|&bytes_s| Interval { bytes_s, rtt });
        History { intervals: intervals.collect(), rtt, ..History::default() }
    }

    fn fed(bytes_each_10_ms: impl Fn(u64) -> u64, unacked: u32) -> History {
        let mut rate = Rate::default();
        let mut bytes_acked = 0;
        for step in 0..400 {
            bytes_acked += bytes_each_10_ms(step);
            let rtt = Duration::from_millis(50);
            rate.watch(
                Instant::from_millis(step * 10),
                &Transport {
                    token: 1,
                    rtt,
                    rttvar: Duration::ZERO,
                    unacked,
                    delivered: 0,
                    bytes_acked,
                    notsent_bytes: 0,
                    bytes_received: 0,
                },
            );
        }
        rate.history
    }

    #[test]
    fn a_steady_rate_is_forecast_exactly_and_its_slow_start_forgotten() {
        let history = fed(|step| if step < 25 { 100 } else { 10_000 }, 10);
        assert_eq!(history.at_least(1.0, 0.95), Some(1e6));
    }

    #[test]
    fn what_the_application_limited_says_nothing_about_the_path() {
        assert_eq!(fed(|_| 10_000, 0).at_least(1.0, 0.95), None);
    }

    #[test]
    fn noise_averages_out_over_a_long_horizon_and_a_drop_does_not() {
        let noisy = history(&[0.5e6, 1.5e6], 100);
        assert_eq!(noisy.at_least(0.1, 0.95), Some(0.5e6));
        assert_eq!(noisy.at_least(4.0, 0.95), Some(1e6));
        let mut dropped = history(&[1e6], 100);
        dropped.intervals.extend(history(&[0.2e6], 100).intervals);
        assert!(dropped.at_least(4.0, 0.95).is_some_and(|rate| rate < 0.21e6));
    }

    #[test]
    fn more_confidence_never_promises_more() {
        let history = history(&[1e6, 0.2e6, 0.9e6, 0.5e6, 0.7e6], 60);
        for horizon in 1..40 {
            let of = |confidence| history.at_least(f64::from(horizon) * 0.1, confidence);
            assert!(of(0.99) <= of(0.9) && of(0.9) <= of(0.5), "{horizon}");
        }
    }
}
