//! The sender of a subflow: segments in flight, queued data, and the time of the
//! next transmission.

use std::collections::VecDeque;

use crosslane_core::time::{Duration, Instant};

use super::clock::Ticks;
use super::congestion::{Algorithm, Control};
use super::receiver::Mapping;
use super::rtt::{RTO_MIN_US, Rtt};

mod acknowledgement;
mod buffer;
mod loss;
mod rate;

/// Minimum delay of a loss probe with more than one segment in flight.
const PROBE_MIN: Duration = Duration::from_millis(2);
/// Segments of a new subflow that are sent before pacing starts (Linux
/// `tcp_update_skb_after_send`).
const UNPACED: u64 = 10;

/// One segment in flight.
#[derive(Clone, Copy, Debug)]
struct Sent {
    seq: u64,
    mapping: Mapping,
    /// Time of the last transmission.
    at: Instant,
    sacked: bool,
    lost: bool,
    /// Retransmitted since it was marked lost.
    retransmitted: bool,
    /// Sent more than once.
    ever_retransmitted: bool,
    pushed: bool,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    app_limited: bool,
}

impl Sent {
    fn end(&self) -> u64 {
        self.seq + self.mapping.len
    }
}

/// A segment to transmit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingSegment {
    /// Sequence number.
    pub seq: u64,
    /// The data it carries.
    pub mapping: Mapping,
    /// True if it ends the queued data (PSH).
    pub pushed: bool,
}

/// State of loss recovery (RFC 6675, RFC 5681).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Fast recovery until everything sent before it is acknowledged.
    Recovery {
        until: u64,
    },
    /// Recovery after a timeout.
    Loss {
        until: u64,
    },
}

/// A segment that is sent regardless of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Force {
    /// A loss probe: new data, or the last segment (RFC 8985 §7.3).
    Probe,
}

/// The sender.
#[derive(Clone, Debug)]
pub struct Sender {
    ticks: Ticks,
    pub(super) mss: u64,
    pub(super) una: u64,
    pub(super) next: u64,
    flight: VecDeque<Sent>,
    flight_bytes: u64,
    queue: VecDeque<Mapping>,
    queue_bytes: u64,
    sacked: u32,
    lost: u32,
    retrans_out: u32,
    pub(super) control: Control,
    state: State,
    recovery: loss::Recovery,
    pub(super) rtt: Rtt,
    timeout_at: Option<Instant>,
    probe_at: Option<Instant>,
    force: Option<Force>,
    /// End of the outstanding loss probe.
    probed: Option<u64>,
    window_limited: bool,
    max_out: u32,
    usage_round_ends: u64,
    last_sent: Instant,
    pace_at: Instant,
    buffer: u64,
    fixed_buffer: bool,
    rate: rate::Rate,
    /// Segments delivered since the subflow began.
    pub delivered: u64,
    /// Retransmissions since the subflow began.
    pub total_retrans: u32,
}

impl Sender {
    /// The sender of a new subflow; `buffer_bytes` is SO_SNDBUF as the kernel
    /// stores it, 0 for autotuning.
    pub fn new(algorithm: Algorithm, ticks: Ticks, mss: u16, buffer_bytes: u64) -> Sender {
        let fixed_buffer = buffer_bytes > 0;
        Sender {
            ticks,
            mss: u64::from(mss),
            una: 1,
            next: 1,
            flight: VecDeque::new(),
            flight_bytes: 0,
            queue: VecDeque::new(),
            queue_bytes: 0,
            sacked: 0,
            lost: 0,
            retrans_out: 0,
            control: Control::new(algorithm),
            state: State::Open,
            recovery: Default::default(),
            rtt: Rtt::default(),
            timeout_at: None,
            probe_at: None,
            force: None,
            probed: None,
            window_limited: false,
            max_out: 0,
            usage_round_ends: 1,
            last_sent: Instant::ZERO,
            pace_at: Instant::ZERO,
            buffer: if fixed_buffer { buffer_bytes } else { buffer::INITIAL_BYTES },
            fixed_buffer,
            rate: rate::Rate::new(),
            delivered: 0,
            total_retrans: 0,
        }
    }

    /// Round-trip times.
    pub fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Completes the handshake, which took `rtt`.
    pub fn begin(&mut self, now: Instant, rtt: Duration) {
        self.rtt.sample(now, rtt, self.una, self.next);
        self.control.begin(now, rtt);
    }

    /// Congestion control.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Queues data to send; contiguous mappings are merged.
    pub fn enqueue(&mut self, now: Instant, mapping: Mapping) {
        if self.flight.is_empty() && self.queue.is_empty() {
            let idle = now.since(self.last_sent);
            let timeout = self.rtt.timeout();
            if idle > timeout && self.next > 1 {
                self.control.after_idle((idle.as_nanos() / timeout.as_nanos().max(1)) as u32);
            }
        }
        self.queue_bytes += mapping.len;
        match self.queue.back_mut() {
            Some(last) if last.dsn + last.len == mapping.dsn => last.len += mapping.len,
            _ => self.queue.push_back(mapping),
        }
    }

    /// Segments in the network (RFC 6675 §4, `pipe`).
    pub fn in_flight(&self) -> u32 {
        (self.flight.len() as u32 + self.retrans_out).saturating_sub(self.sacked + self.lost)
    }

    /// Segments sent and not acknowledged in order.
    pub fn unacked(&self) -> u32 {
        self.flight.len() as u32
    }

    /// Data acknowledged, where sequence numbers are data sequence numbers
    /// (plain TCP).
    pub fn acked_data(&self) -> u64 {
        self.una - 1
    }

    /// Segments marked lost.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// Bytes that have not been sent yet.
    pub fn queued_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// True if no data is queued or in flight.
    pub fn is_empty(&self) -> bool {
        self.flight.is_empty() && self.queue.is_empty()
    }

    /// Pacing rate of Linux, in bytes per second (`tcp_update_pacing_rate`: the
    /// window per RTT, times 2 in slow start, else 1.2).
    pub fn pacing_rate(&self) -> f64 {
        let segment = self.mss as f64;
        if let Some(pace) = self.control.pace() {
            return pace;
        }
        let Some(rtt) = self.rtt.smoothed() else { return 1e9 };
        let window = f64::from(self.control.window.max(self.flight.len() as u32));
        let ratio = if self.control.window < self.control.ssthresh / 2 { 2.0 } else { 1.2 };
        segment * window / rtt.as_secs_f64().max(1e-6) * ratio
    }

    /// Delivery rate of the last sample, in bit/s.
    pub fn delivery_rate_bit_s(&self) -> u64 {
        self.rate.last_bit_s as u64
    }

    /// The next segment that may be sent at `now`.
    pub fn poll(&mut self, now: Instant) -> Option<OutgoingSegment> {
        if self.force.take().is_some() {
            return self.probe(now);
        }
        if self.in_flight() < self.control.window && self.pace_at <= now {
            if let Some(place) = self.next_lost() {
                return Some(self.retransmit(now, place));
            }
            if !self.queue.is_empty() {
                return self.send_new(now);
            }
        }
        self.validate_window();
        self.expand_buffer();
        None
    }

    /// Time of the next call of [`poll`](Self::poll) or
    /// [`on_time`](Self::on_time).
    pub fn wakeup(&self) -> Option<Instant> {
        let waits = !self.queue.is_empty() || self.lost > self.retrans_out;
        let paced = (waits && self.in_flight() < self.control.window).then_some(self.pace_at);
        [self.timeout_at, self.probe_at, self.recovery.reorder_at, paced].into_iter().flatten().min()
    }

    /// Expiry of the timer that Linux would have set: timeout or probe.
    pub fn timer(&self) -> Option<Instant> {
        self.probe_at.or(self.timeout_at)
    }

    fn send_new(&mut self, now: Instant) -> Option<OutgoingSegment> {
        let front = self.queue.front_mut()?;
        let mapping = Mapping { dsn: front.dsn, len: front.len.min(self.mss) };
        front.dsn += mapping.len;
        front.len -= mapping.len;
        if front.len == 0 {
            self.queue.pop_front();
        }
        self.queue_bytes -= mapping.len;
        self.flight_bytes += mapping.len;
        if self.flight.is_empty() {
            (self.rate.first_sent, self.rate.delivered_at) = (now, now);
        }
        if self.in_flight() == 0 {
            self.control.on_start(now, self.rate.app_limited_until.is_some());
        }
        let pushed = self.queue.is_empty();
        let seq = self.next;
        self.flight.push_back(Sent {
            seq,
            mapping,
            at: now,
            sacked: false,
            lost: false,
            retransmitted: false,
            ever_retransmitted: false,
            pushed,
            delivered: self.delivered,
            delivered_at: self.rate.delivered_at,
            first_sent: self.rate.first_sent,
            app_limited: self.rate.app_limited_until.is_some(),
        });
        self.next += mapping.len;
        self.note_sent(now, mapping.len);
        if self.timeout_at.is_none() || self.probe_at.is_some() {
            self.timeout_at = Some(self.ticks.after(now, self.rtt.timeout()));
        }
        self.schedule_probe(now);
        Some(OutgoingSegment { seq, mapping, pushed })
    }

    fn retransmit(&mut self, now: Instant, place: usize) -> OutgoingSegment {
        let (delivered, delivered_at, first_sent) = (self.delivered, self.rate.delivered_at, self.rate.first_sent);
        let app_limited = self.rate.app_limited_until.is_some();
        let sent = &mut self.flight[place];
        if sent.lost && !sent.retransmitted {
            sent.retransmitted = true;
            self.retrans_out += 1;
        }
        sent.ever_retransmitted = true;
        sent.at = now;
        (sent.delivered, sent.delivered_at, sent.first_sent) = (delivered, delivered_at, first_sent);
        sent.app_limited = app_limited;
        let outgoing = OutgoingSegment { seq: sent.seq, mapping: sent.mapping, pushed: sent.pushed };
        self.total_retrans += 1;
        self.note_sent(now, outgoing.mapping.len);
        self.timeout_at = self.timeout_at.or(Some(self.ticks.after(now, self.rtt.timeout())));
        outgoing
    }

    /// RFC 8985 §7: sends new data if there is any, else the last segment.
    fn probe(&mut self, now: Instant) -> Option<OutgoingSegment> {
        let outgoing = match self.queue.is_empty() {
            false => self.send_new(now),
            true => {
                let last = self.flight.len().checked_sub(1)?;
                Some(self.retransmit(now, last))
            }
        };
        self.probed = Some(self.next);
        self.probe_at = None;
        self.await_timeout(now);
        outgoing
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
            let wait = Duration::from_nanos((bytes as f64 / rate.max(1.0) * 1e9) as u64);
            self.pace_at = self.pace_at.max(now) + wait;
        }
    }

    /// RFC 8985 §7.2 as in Linux: twice the RTT, for a single segment plus the
    /// maximum delay of an acknowledgement; never later than the timeout.
    fn schedule_probe(&mut self, now: Instant) {
        let may = self.state == State::Open && self.sacked == 0;
        self.probe_at = None;
        if let (true, Some(srtt), Some(head)) = (may, self.rtt.smoothed(), self.flight.front()) {
            let more = if self.flight.len() == 1 { Duration::from_micros(RTO_MIN_US) } else { PROBE_MIN };
            let due = (now + srtt * 2 + more).min(head.at + self.rtt.timeout());
            self.probe_at = Some(self.ticks.at(now, due));
        }
    }

    /// RFC 7661 as in Linux (`tcp_cwnd_validate`): records whether the window
    /// was the limit in the last round.
    fn validate_window(&mut self) {
        let window_limited = self.in_flight() >= self.control.window;
        let out = self.flight.len() as u32;
        if self.una >= self.usage_round_ends || window_limited || (!self.window_limited && out > self.max_out) {
            (self.window_limited, self.max_out, self.usage_round_ends) = (window_limited, out, self.next);
        }
    }
}

#[cfg(test)]
mod tests;
