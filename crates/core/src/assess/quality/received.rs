//! One subflow: how late what is received comes, as far as a receiver can tell.
//!
//! The receiver's RTT ends when data arrives that answers an acknowledgement. The peer may have had nothing to send
//! meanwhile: at most since it sent what arrived before. What exceeds that was spent in the network. A delay does not grow
//! faster than time passes: a receiver also measures how long a window takes (Linux `tcp_rcv_rtt_measure`), which says nothing.

use super::evidence::{Evidence, Sign};
use crate::assess::SAMPLE_INTERVAL;
use crate::assess::averages::{DEVIATIONS, MAX_USUAL_MS, Spread, UNUSUAL, USUAL_S, USUAL_SHARE, ms, share};
use crate::path::Transport;
use crate::time::{Duration, Instant};

/// Weight of a sample in the receiver's RTT (Linux `tcp_rcv_rtt_update`); a shorter one may count at once.
const RTT_WEIGHT: f64 = 0.125;
/// What is more than this, in ms, is no chance of sampling: two intervals.
const LEAST_MS: f64 = 20.0;
/// Part of the time in which a message is not late that it may wait.
const WAIT_SHARE: f64 = 0.3;
/// More than a first window (RFC 6928) arrives without a longer pause than two sampling intervals, at a rate of a segment in
/// each: its queue is its own.
const PAUSE: Duration = Duration::from_millis(20);
const MUCH_BYTES: u64 = 10 * 1448;
const MUCH_BIT_S: f64 = 1448.0 * 8.0 / SAMPLE_INTERVAL.as_secs_f64();
/// For so long after that: a sender over several paths pauses on each.
const MUCH_FOR: Duration = Duration::from_secs(2);

/// What arrives over one subflow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    /// When data arrived last, and the bytes received by then.
    last: Option<(Instant, u64)>,
    /// The same when the last longer pause ended.
    began: (Instant, u64),
    /// When so much arrived last that it waited for itself.
    much: Option<Instant>,
    /// The receiver's RTT and the segments received, at the last sample.
    rtt_ms: Option<f64>,
    segments: u32,
    /// When a delay was measured last, and that, pauses of the sender included.
    measured: Instant,
    delay_ms: Option<f64>,
    usual: Spread,
    excess_ms: f64,
}

impl Received {
    /// Processes the statistics.
    pub(super) fn observe(&mut self, now: Instant, transport: &Transport) {
        let bytes = transport.bytes_received;
        let rtt_ms = core::mem::replace(&mut self.rtt_ms, transport.receive_rtt.map(ms));
        let segments = transport
            .segments_received
            .wrapping_sub(core::mem::replace(&mut self.segments, transport.segments_received));
        let Some((last, before)) = self.last.filter(|(_, before)| bytes >= *before) else {
            (self.last, self.began) = (Some((now, bytes)), (now, bytes));
            return;
        };
        if bytes == before {
            return;
        }
        self.last = Some((now, bytes));
        if now.since(last) > PAUSE {
            self.began = (now, bytes);
        }
        if self.is_much(now, bytes) {
            self.much = Some(now);
        }
        let (Some(least), Some(was), Some(is)) = (transport.min_rtt.map(ms), rtt_ms, self.rtt_ms) else { return };
        if is == was {
            return;
        }
        // Each segment may have moved it.
        let kept = libm::pow(1.0 - RTT_WEIGHT, f64::from(segments.max(1)));
        let sample_ms = if is > was { was + (is - was) / (1.0 - kept) } else { is };
        let (delay_ms, elapsed) = (sample_ms - least, now.since(self.measured));
        let before_ms = self.delay_ms.unwrap_or(f64::INFINITY);
        if delay_ms > before_ms + ms(elapsed) + LEAST_MS {
            return;
        }
        (self.delay_ms, self.measured) = (Some(delay_ms), now);
        self.excess_ms = if before_ms.is_finite() { (delay_ms - ms(now.since(last))).max(0.0) } else { 0.0 };
        let most_ms = (self.usual.end(DEVIATIONS) + LEAST_MS).min(MAX_USUAL_MS);
        self.usual.follow(self.excess_ms.min(most_ms), share(elapsed, USUAL_S).min(USUAL_SHARE));
    }

    /// Whether so much arrives that it waits for itself.
    fn is_much(&self, now: Instant, bytes: u64) -> bool {
        let (since, before) = self.began;
        let bytes = bytes - before;
        bytes >= MUCH_BYTES && bytes as f64 * 8.0 >= MUCH_BIT_S * now.since(since).as_secs_f64()
    }

    /// What says that messages come late.
    pub(super) fn evidence(&self, now: Instant, late_ms: f64) -> Option<Evidence> {
        let limit = (UNUSUAL * self.usual.end(DEVIATIONS)).max(WAIT_SHARE * late_ms).max(LEAST_MS);
        let is_much = self.much.is_some_and(|at| now.since(at) < MUCH_FOR);
        let is_late = self.measured == now && self.excess_ms > limit && !is_much;
        let sign = if self.excess_ms > late_ms { Sign::ReceivedLate } else { Sign::Received };
        is_late.then_some(Evidence { sign, figure: self.excess_ms, limit })
    }
}
