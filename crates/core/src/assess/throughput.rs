//! How much a path carries: rates of delivery per interval, and from them a
//! forecast with its uncertainty.
//!
//! An interval counts only if the subflow had something under way all the
//! time and was past its slow start: what the application, the scheduler or the
//! start limited says nothing about the path. The forecast is the level, the
//! mean of the last seconds. How far it can be trusted over a horizon is known
//! from windows of that length: what they carried as a part of the level before
//! them, of which a lower quantile is told. So noise averages out over long
//! horizons as it does in the transfer, and a rate that wanders stays uncertain.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::stalls::MAX_SUBFLOWS;
use super::{Assessor, Belief, Reason};
use crate::path::{Sample, SampleKind, Transport};
use crate::time::{Duration, Instant};

/// Length of an interval.
const INTERVAL: Duration = Duration::from_millis(100);
/// Intervals remembered: 40 s.
const INTERVALS: usize = 400;
/// Intervals of which the level is the mean: 2 s.
const LEVEL: usize = 20;
/// Intervals that are looked back on, counted or not: 1 s.
const RECENT: usize = 10;
/// Horizons for which errors of forecasts are kept, in intervals.
const HORIZONS: [usize; 6] = [5, 10, 20, 40, 80, 160];
/// Intervals needed for a forecast.
const FEW: usize = 4;
/// Slow start is over after so many round trips (10 segments grow to 640).
const START_ROUNDS: u32 = 6;
/// Time after a start in which what the start cost is measured.
const START_WATCH: Duration = Duration::from_secs(1);
/// Starts remembered; the costliest of them is what the next one is taken for.
const STARTS: usize = 4;
/// A path of which nothing was heard for so long has no subflow.
const SILENT: Duration = Duration::from_millis(250);
/// A path that had nothing under way for so long starts anew.
const IDLE: Duration = Duration::from_millis(1000);
/// A subflow that was not seen for so long is gone, and how often that is looked for.
const GONE: Duration = Duration::from_secs(5);
const SWEEP: Duration = Duration::from_secs(1);
/// Payload of a full MPTCP segment, in bytes.
const SEGMENT_BYTES: u64 = 1424;

/// The assessor: a path is good while its interface is up, and carries what its
/// [`History`] says.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    history: History,
    subflows: BTreeMap<(u32, SocketAddr), Subflow>,
    /// What is queued on all of them together.
    queued_bytes: u64,
    swept: Instant,
    belief: Belief,
    reason: Reason,
}

#[derive(Clone, Copy, Debug, Default)]
struct Subflow {
    seen: Instant,
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
    /// When it was last heard of, and when an interval last counted.
    heard: Instant,
    counted: Instant,
    /// When something was last under way, and when nothing was.
    busy: Instant,
    idle_at: Instant,
    /// What was acknowledged per interval in the last second, in bytes a second,
    /// and the part of it in which nothing was under way.
    lately: VecDeque<(f64, f64)>,
    /// What was carried over each of [`HORIZONS`] as a part of the level
    /// before, in rising order.
    ratios: [Vec<f64>; HORIZONS.len()],
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
    /// Looks, and those that found nothing under way.
    looks: u32,
    idle: u32,
}

impl History {
    /// Over how many windows of this length it has been seen, and what part of
    /// the level before them it carried at least, with this confidence (0.5 to
    /// 1). Time since it was last seen counts as part of the window.
    pub fn evidence(&self, horizon_s: f64, confidence: f64) -> (f64, f64) {
        let ahead_s = (horizon_s + self.heard.since(self.counted).as_secs_f64()).max(INTERVAL.as_secs_f64());
        let seen_s = self.intervals.len() as f64 * INTERVAL.as_secs_f64();
        let ahead = ahead_s / INTERVAL.as_secs_f64();
        let place = HORIZONS.iter().rposition(|&horizon| horizon as f64 <= ahead).unwrap_or(0);
        let known = self.ratios.iter().take(place + 1).rev().find(|ratios| !ratios.is_empty());
        let ratio = known.and_then(|ratios| ratios.get(((1.0 - confidence) * ratios.len() as f64) as usize));
        ratio.map_or((0.0, 1.0), |ratio| (seen_s / ahead_s, ratio.min(1.0)))
    }

    /// What it carries, in bytes a second: the mean of the last two seconds that
    /// counted or, if that is less, of as long as `horizon_s`; `None` while too
    /// little is known.
    pub fn level(&self, horizon_s: f64) -> Option<f64> {
        let mean = |count: usize| {
            let count = count.min(self.intervals.len());
            self.intervals.iter().rev().take(count).map(|interval| interval.bytes_s).sum::<f64>() / count as f64
        };
        let count = (horizon_s / INTERVAL.as_secs_f64()) as usize;
        (self.intervals.len() >= FEW).then(|| mean(LEVEL).min(mean(count.max(LEVEL))))
    }

    /// What was acknowledged within the last second, whoever limited it, in
    /// bytes a second.
    pub fn lately(&self) -> f64 {
        self.lately.iter().map(|(bytes_s, _)| bytes_s).sum::<f64>() / RECENT as f64
    }

    /// Part of the last second in which nothing was under way.
    pub fn idle_share(&self) -> f64 {
        self.lately.iter().map(|(_, idle)| idle).sum::<f64>() / RECENT as f64
    }

    /// Holds what was carried against the level before it.
    fn learn(&mut self) {
        let mut sums = Vec::with_capacity(self.intervals.len() + 1);
        sums.push(0.0);
        for interval in &self.intervals {
            sums.push(sums.last().copied().unwrap_or(0.0) + interval.bytes_s);
        }
        for (ratios, horizon) in self.ratios.iter_mut().zip(HORIZONS) {
            ratios.clear();
            for at in (LEVEL..sums.len().saturating_sub(horizon)).step_by(2) {
                let before = (sums[at] - sums[at - LEVEL]) / LEVEL as f64;
                if before > 0.0 {
                    ratios.push((sums[at + horizon] - sums[at]) / horizon as f64 / before);
                }
            }
            ratios.sort_by(f64::total_cmp);
        }
    }

    /// True if there is a subflow: it was heard of just now.
    pub fn is_open(&self, now: Instant) -> bool {
        !self.rtt.is_zero() && now.since(self.heard) < SILENT
    }

    /// The greatest rate remembered, in bytes a second.
    pub fn peak(&self) -> Option<f64> {
        let rates = self.intervals.iter().map(|interval| interval.bytes_s);
        rates.max_by(f64::total_cmp)
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

    /// True if it carried so lately that it need not start anew.
    pub fn is_warm(&self) -> bool {
        self.busy_since.is_some()
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
        if now.since(self.heard) >= SILENT {
            // Another subflow than the one before.
            (self.present, self.busy_since, self.start) = (None, None, None);
        }
        self.heard = now;
        self.queued_bytes = queued_bytes;
        self.latest_rtt = rtt;
        self.rtt = if self.rtt.is_zero() { rtt } else { self.rtt.min(rtt) };
        let busy = queued_bytes > 0;
        self.watch_start(now, acked, busy);
        if !busy {
            self.idle_at = now;
        }
        // What is given to an idle path is acknowledged a round trip later.
        let started = now.since(self.idle_at) >= rtt
            && self.busy_since.is_some_and(|since| now.since(since) >= self.least_rtt() * START_ROUNDS);
        let present =
            self.present.get_or_insert(Present { began: now, bytes: 0, rtt, counts: false, looks: 0, idle: 0 });
        present.bytes += acked;
        present.rtt = present.rtt.min(rtt);
        present.counts &= busy && started;
        present.looks += 1;
        present.idle += u32::from(!busy);
        let length = now.since(present.began);
        if length < INTERVAL {
            return;
        }
        if self.lately.len() == RECENT {
            self.lately.pop_front();
        }
        let idle = f64::from(present.idle) / f64::from(present.looks);
        self.lately.push_back((present.bytes as f64 / length.as_secs_f64(), idle));
        if present.counts && length < INTERVAL * 2 {
            if self.intervals.len() == INTERVALS {
                self.intervals.pop_front();
            }
            let bytes_s = present.bytes as f64 / length.as_secs_f64();
            self.intervals.push_back(Interval { bytes_s, rtt: present.rtt });
            self.counted = now;
            self.learn();
        }
        self.present = Some(Present { began: now, bytes: 0, rtt, counts: busy && started, looks: 0, idle: 0 });
    }
}

impl History {
    fn watch_start(&mut self, now: Instant, acked: u64, busy: bool) {
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
            && let Some(rate) = self.level(0.0).filter(|rate| *rate > 0.0)
        {
            if self.start_costs_s.len() == STARTS {
                self.start_costs_s.pop_front();
            }
            self.start_costs_s.push_back((took.as_secs_f64() - bytes as f64 / rate).max(0.0));
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
        self.sweep(now);
        let key = (transport.token, transport.peer);
        if self.subflows.len() >= MAX_SUBFLOWS && !self.subflows.contains_key(&key) {
            return;
        }
        let subflow = self.subflows.entry(key).or_default();
        // A subflow that was opened anew counts from 0.
        let acked = transport.bytes_acked.checked_sub(subflow.bytes_acked).unwrap_or(transport.bytes_acked);
        let queued_bytes = u64::from(transport.unacked) * SEGMENT_BYTES + u64::from(transport.notsent_bytes);
        self.queued_bytes = self.queued_bytes - subflow.queued_bytes + queued_bytes;
        *subflow = Subflow { seen: now, bytes_acked: transport.bytes_acked, queued_bytes };
        self.history.note(now, acked, self.queued_bytes, transport.rtt);
    }

    /// What is queued on a subflow that is gone waits there no more.
    fn sweep(&mut self, now: Instant) {
        if now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        self.subflows.retain(|_, subflow| now.since(subflow.seen) < GONE);
        self.queued_bytes = self.subflows.values().map(|subflow| subflow.queued_bytes).sum();
    }
}

impl Assessor for Rate {
    fn observe(&mut self, now: Instant, sample: &Sample) {
        match &sample.kind {
            SampleKind::Transport(transport) => self.watch(now, transport),
            SampleKind::Link { up } => {
                self.belief = if *up { Belief::Good } else { Belief::Lost };
                let (rule, text) = if *up { ("rate.up", "up") } else { ("rate.down", "down") };
                let text = alloc::format!("the interface is {text}");
                self.reason = Reason { rule, text, ..Reason::default() };
            }
            SampleKind::Signal { .. } | SampleKind::Break(_) | SampleKind::Counters(_) => {}
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
