//! The sender of a subflow: segments in flight, queued data, and the time of the
//! next transmission.

use crosslane_core::time::{Duration, Instant};

use super::clock::Ticks;
use super::congestion::{Congestion, Control, RecoveryState};
use super::receiver::Mapping;
use super::rtt::{RTO_MIN, Rtt};

mod acknowledgement;
mod buffer;
mod in_flight;
mod loss;
mod pacer;
mod queue;
mod rate;
mod reordering;
mod undo;
mod usage;

use buffer::SendBuffer;
use in_flight::{InFlight, Sent};
use loss::{LossProbe, Recovery};
use pacer::Pacer;
use queue::SendQueue;
use rate::Rate;
use reordering::Reordering;
use undo::Undo;
use usage::WindowUsage;

/// Minimum delay of a loss probe with more than one segment in flight.
const PROBE_MIN: Duration = Duration::from_millis(2);
/// Segments of a new subflow that are sent before pacing starts (Linux
/// `tcp_update_skb_after_send`).
const UNPACED: u64 = 10;
/// Memory overhead of a segment (Linux: `sk_buff` and head), in bytes.
const SEGMENT_OVERHEAD_BYTES: u64 = 900;

/// A time as the timestamps option has it, in ms (Linux `tcp_ts`).
pub(super) fn timestamp(at: Instant) -> u64 {
    at.as_nanos() / 1_000_000
}

#[derive(Clone, Debug)]
pub struct Sender {
    ticks: Ticks,
    pub(super) mss: u64,
    pub(super) una: u64,
    pub(super) next: u64,
    pub(super) flight: InFlight,
    pub(super) queue: SendQueue,
    pub(super) control: Control,
    state: RecoveryState,
    recovery: Recovery,
    reordering: Reordering,
    undo: Undo,
    pub(super) rtt: Rtt,
    timeout_at: Option<Instant>,
    probe: LossProbe,
    usage: WindowUsage,
    last_sent: Instant,
    pacer: Pacer,
    pub(super) buffer: SendBuffer,
    pub(super) rate: Rate,
    /// Segments delivered since the subflow began.
    pub delivered: u64,
    /// Retransmissions since the subflow began.
    pub total_retrans: u32,
}

impl Sender {
    /// The sender of a new subflow; `buffer_bytes` is SO_SNDBUF as the kernel
    /// stores it, 0 for autotuning.
    pub fn new(algorithm: Congestion, ticks: Ticks, mss: u16, buffer_bytes: u64) -> Sender {
        Sender {
            ticks,
            mss: u64::from(mss),
            una: 1,
            next: 1,
            flight: InFlight::default(),
            queue: SendQueue::default(),
            control: Control::new(algorithm),
            state: RecoveryState::None,
            recovery: Recovery::default(),
            reordering: Reordering::default(),
            undo: Undo::default(),
            rtt: Rtt::default(),
            timeout_at: None,
            probe: LossProbe::default(),
            usage: WindowUsage::default(),
            last_sent: Instant::ZERO,
            pacer: Pacer::default(),
            buffer: SendBuffer::new(buffer_bytes),
            rate: Rate::default(),
            delivered: 0,
            total_retrans: 0,
        }
    }

    /// Completes the handshake, which took `rtt`.
    pub fn begin(&mut self, now: Instant, rtt: Duration) {
        self.rtt.sample(now, rtt, self.una, self.next);
        self.control.begin(now, rtt);
    }

    pub fn enqueue(&mut self, now: Instant, mapping: Mapping) {
        if self.is_empty() {
            let idle = now.since(self.last_sent);
            let timeout = self.rtt.timeout();
            if idle > timeout && self.next > 1 {
                self.control.after_idle((idle.as_nanos() / timeout.as_nanos().max(1)) as u32);
            }
        }
        self.queue.push(mapping);
    }

    /// Segments in the network (RFC 6675 §4, `pipe`).
    pub fn in_flight(&self) -> u32 {
        self.flight.pipe()
    }

    /// Memory of queued data and data in flight (Linux `sk_wmem_queued`), in bytes.
    pub fn memory(&self) -> u64 {
        self.queue.bytes + self.flight.bytes + u64::from(self.flight.len()) * SEGMENT_OVERHEAD_BYTES / 2
    }

    /// True if the buffer has space (Linux `sk_stream_memory_free`).
    pub fn has_room(&self) -> bool {
        self.memory() < self.buffer.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.flight.is_empty() && self.queue.is_empty()
    }

    /// Pacing rate of Linux, in bytes per second (`tcp_update_pacing_rate`: the
    /// window per RTT, times 2 in slow start, else 1.2).
    pub fn pacing_rate(&self) -> f64 {
        if let Some(pace) = self.control.pace() {
            return pace;
        }
        let Some(rtt) = self.rtt.smoothed() else { return 1e9 };
        let window = f64::from(self.control.window.max(self.flight.len()));
        let ratio = if self.control.window < self.control.ssthresh / 2 { 2.0 } else { 1.2 };
        self.mss as f64 * window / rtt.as_secs_f64().max(1e-6) * ratio
    }

    /// The next segment that may be sent at `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Sent> {
        if std::mem::take(&mut self.probe.due) {
            return self.send_probe(now);
        }
        if self.has_window() && self.pacer.next <= now {
            if let Some(place) = self.next_lost() {
                self.undo.note_retransmission(now);
                return Some(self.retransmit(now, place));
            }
            if !self.queue.is_empty() {
                return self.send_new(now);
            }
        }
        self.usage.note(!self.has_window(), self.flight.len(), self.una, self.next);
        None
    }

    /// Lets the buffer follow the window, for an application that waits for space in it (Linux `tcp_check_space`).
    pub(super) fn expand_buffer(&mut self) {
        self.buffer.expand(self.control.windows_buffered(), self.control.window);
    }

    /// The congestion window, or what of it was used (RFC 6356 §4.1), in segments.
    pub(super) fn used_window(&self) -> u32 {
        self.usage.of(self.control.window).max(1)
    }

    fn has_window(&self) -> bool {
        self.in_flight() < self.control.window
    }

    /// Time of the next call of [`poll`](Self::poll) or
    /// [`on_time`](Self::on_time).
    pub fn wakeup(&self) -> Option<Instant> {
        let waits = !self.queue.is_empty() || (self.flight.needs_retransmission() && !self.recovery.pauses);
        let paced = (waits && self.has_window()).then_some(self.pacer.next);
        [self.timeout_at, self.probe.at, self.recovery.reorder_at, paced].into_iter().flatten().min()
    }

    /// Expiry of the timer that Linux would have set: timeout or probe.
    pub fn timer(&self) -> Option<Instant> {
        self.probe.at.or(self.timeout_at)
    }

    fn send_new(&mut self, now: Instant) -> Option<Sent> {
        let mapping = self.queue.pop(self.mss)?;
        if self.flight.is_empty() {
            (self.rate.first_sent, self.rate.delivered_at) = (now, now);
        }
        let stamp = self.rate.stamp(self.delivered);
        if self.in_flight() == 0 {
            self.control.on_start(now, stamp.app_limited);
        }
        let (seq, pushed) = (self.next, self.queue.is_empty());
        let sent = Sent { seq, mapping, at: now, pushed, stamp, ..Sent::default() };
        self.flight.push(sent);
        self.next += mapping.len;
        self.note_sent(now, mapping.len);
        if self.timeout_at.is_none() || self.probe.at.is_some() {
            self.timeout_at = Some(self.ticks.after(now, self.rtt.timeout()));
        }
        self.schedule_probe(now);
        Some(sent)
    }

    fn retransmit(&mut self, now: Instant, place: usize) -> Sent {
        let sent = self.flight.retransmit(now, place, self.rate.stamp(self.delivered));
        self.total_retrans += 1;
        self.note_sent(now, sent.mapping.len);
        self.timeout_at = self.timeout_at.or(Some(self.ticks.after(now, self.rtt.timeout())));
        sent
    }

    /// RFC 8985 §7: sends new data if there is any, else the last segment.
    fn send_probe(&mut self, now: Instant) -> Option<Sent> {
        self.probe.repeats = self.queue.is_empty();
        let sent = if self.probe.repeats {
            let last = self.flight.last()?;
            Some(self.retransmit(now, last))
        } else {
            self.send_new(now)
        };
        (self.probe.at, self.probe.until) = (None, Some(self.next));
        self.await_timeout(now);
        sent
    }

    /// Sets the timer to the timeout of the oldest segment.
    fn await_timeout(&mut self, now: Instant) {
        let due = self.flight.front().map_or(now, |head| head.at + self.rtt.timeout());
        self.timeout_at = Some(self.ticks.at(now, due));
    }

    fn note_sent(&mut self, now: Instant, bytes: u64) {
        self.last_sent = now;
        self.recovery.sent += 1;
        if let (Some(rate), true) = (self.control.pace(), self.next > UNPACED * self.mss) {
            self.pacer.note_sent(now, bytes, rate);
        }
    }

    /// RFC 8985 §7.2 as in Linux: twice the RTT, for a single segment plus the
    /// maximum delay of an acknowledgement; never later than the timeout.
    fn schedule_probe(&mut self, now: Instant) {
        let may = self.state == RecoveryState::None && self.flight.sacked == 0;
        self.probe.at = None;
        if let (true, Some(srtt), Some(head)) = (may, self.rtt.smoothed(), self.flight.front()) {
            let more = if self.flight.len() == 1 { RTO_MIN } else { PROBE_MIN };
            let due = (now + srtt * 2 + more).min(head.at + self.rtt.timeout());
            self.probe.at = Some(self.ticks.at(now, due));
        }
    }
}

#[cfg(test)]
mod tests;
