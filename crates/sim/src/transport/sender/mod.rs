//! The sending half of a subflow: what is in flight, what waits, and when the
//! next segment may leave.

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

/// Least time before a loss probe with more than one segment in flight.
const PROBE_MIN: Duration = Duration::from_millis(2);
/// Segments of a new subflow that leave before pacing begins (Linux
/// `tcp_update_skb_after_send`).
const UNPACED: u64 = 10;

/// One segment in flight.
#[derive(Clone, Copy, Debug)]
struct Sent {
    seq: u64,
    piece: Mapping,
    /// When it was last sent.
    at: Instant,
    sacked: bool,
    lost: bool,
    /// Sent again since it was found lost.
    again: bool,
    /// Ever sent more than once.
    repeated: bool,
    pushed: bool,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    app_limited: bool,
}

impl Sent {
    fn end(&self) -> u64 {
        self.seq + self.piece.len
    }
}

/// A segment that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Sequence number.
    pub seq: u64,
    /// What it carries.
    pub piece: Mapping,
    /// True if it ends what was written.
    pub pushed: bool,
}

/// Where loss recovery stands (RFC 6675, RFC 5681).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Until everything sent before is acknowledged.
    Recovery {
        until: u64,
    },
    /// The same, after a timeout.
    Loss {
        until: u64,
    },
}

/// A segment that leaves whatever the window says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Force {
    /// A new one, or the last one again (RFC 8985 §7.3).
    Probe,
}

/// The half.
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
    again: u32,
    pub(super) control: Control,
    state: State,
    recovery: loss::Recovery,
    pub(super) rtt: Rtt,
    timeout_at: Option<Instant>,
    probe_at: Option<Instant>,
    force: Option<Force>,
    /// A probe is out: it ended here.
    probed: Option<u64>,
    limited: bool,
    most_out: u32,
    usage_ends: u64,
    last_sent: Instant,
    pace_at: Instant,
    buffer: u64,
    fixed_buffer: bool,
    rate: rate::Rate,
    /// Segments delivered since the subflow began.
    pub delivered: u64,
    /// Segments sent again since the subflow began.
    pub repeated: u32,
}

impl Sender {
    /// The half of a new subflow; `buffer_bytes` is SO_SNDBUF as the kernel
    /// holds it, 0 for its own choice.
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
            again: 0,
            control: Control::new(algorithm),
            state: State::Open,
            recovery: Default::default(),
            rtt: Rtt::default(),
            timeout_at: None,
            probe_at: None,
            force: None,
            probed: None,
            limited: false,
            most_out: 0,
            usage_ends: 1,
            last_sent: Instant::ZERO,
            pace_at: Instant::ZERO,
            buffer: if fixed_buffer { buffer_bytes } else { buffer::FIRST_BYTES },
            fixed_buffer,
            rate: rate::Rate::new(),
            delivered: 0,
            repeated: 0,
        }
    }

    /// Round-trip times.
    pub fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// The handshake took so long.
    pub fn begin(&mut self, now: Instant, rtt: Duration) {
        self.rtt.sample(now, rtt, self.una, self.next);
        self.control.begin(now, rtt);
    }

    /// Congestion control.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Hands over data to be sent; pieces that follow each other become one.
    pub fn enqueue(&mut self, now: Instant, piece: Mapping) {
        if self.flight.is_empty() && self.queue.is_empty() {
            let idle = now.since(self.last_sent);
            let timeout = self.rtt.timeout();
            if idle > timeout && self.next > 1 {
                self.control.after_idle((idle.as_nanos() / timeout.as_nanos().max(1)) as u32);
            }
        }
        self.queue_bytes += piece.len;
        match self.queue.back_mut() {
            Some(last) if last.dsn + last.len == piece.dsn => last.len += piece.len,
            _ => self.queue.push_back(piece),
        }
    }

    /// Segments in the network (RFC 6675 §4, `pipe`).
    pub fn in_flight(&self) -> u32 {
        (self.flight.len() as u32 + self.again).saturating_sub(self.sacked + self.lost)
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

    /// Segments held for lost.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// Bytes that wait to be sent first.
    pub fn queued_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// True if nothing waits and nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.flight.is_empty() && self.queue.is_empty()
    }

    /// Rate that Linux would pace at, in bytes a second (`tcp_update_pacing_rate`:
    /// the window per round trip, times 2 in slow start, else 1.2).
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

    /// The next segment that may leave at `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Leaving> {
        if self.force.take().is_some() {
            return self.probe(now);
        }
        if self.in_flight() < self.control.window && self.pace_at <= now {
            if let Some(place) = self.next_lost() {
                return Some(self.send_again(now, place));
            }
            if !self.queue.is_empty() {
                return self.send_new(now);
            }
        }
        self.validate_window();
        self.expand_buffer();
        None
    }

    /// When to poll again, and when [`on_time`](Self::on_time) has something to
    /// do.
    pub fn wakeup(&self) -> Option<Instant> {
        let waits = !self.queue.is_empty() || self.lost > self.again;
        let paced = (waits && self.in_flight() < self.control.window).then_some(self.pace_at);
        [self.timeout_at, self.probe_at, self.recovery.reorder_at, paced].into_iter().flatten().min()
    }

    /// When the timer that Linux would have set expires: timeout or probe.
    pub fn timer(&self) -> Option<Instant> {
        self.probe_at.or(self.timeout_at)
    }

    fn send_new(&mut self, now: Instant) -> Option<Leaving> {
        let front = self.queue.front_mut()?;
        let piece = Mapping { dsn: front.dsn, len: front.len.min(self.mss) };
        front.dsn += piece.len;
        front.len -= piece.len;
        if front.len == 0 {
            self.queue.pop_front();
        }
        self.queue_bytes -= piece.len;
        self.flight_bytes += piece.len;
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
            piece,
            at: now,
            sacked: false,
            lost: false,
            again: false,
            repeated: false,
            pushed,
            delivered: self.delivered,
            delivered_at: self.rate.delivered_at,
            first_sent: self.rate.first_sent,
            app_limited: self.rate.app_limited_until.is_some(),
        });
        self.next += piece.len;
        self.note_sent(now, piece.len);
        if self.timeout_at.is_none() || self.probe_at.is_some() {
            self.timeout_at = Some(self.ticks.after(now, self.rtt.timeout()));
        }
        self.schedule_probe(now);
        Some(Leaving { seq, piece, pushed })
    }

    fn send_again(&mut self, now: Instant, place: usize) -> Leaving {
        let (delivered, delivered_at, first_sent) = (self.delivered, self.rate.delivered_at, self.rate.first_sent);
        let app_limited = self.rate.app_limited_until.is_some();
        let sent = &mut self.flight[place];
        if sent.lost && !sent.again {
            sent.again = true;
            self.again += 1;
        }
        sent.repeated = true;
        sent.at = now;
        (sent.delivered, sent.delivered_at, sent.first_sent) = (delivered, delivered_at, first_sent);
        sent.app_limited = app_limited;
        let leaving = Leaving { seq: sent.seq, piece: sent.piece, pushed: sent.pushed };
        self.repeated += 1;
        self.note_sent(now, leaving.piece.len);
        self.timeout_at = self.timeout_at.or(Some(self.ticks.after(now, self.rtt.timeout())));
        leaving
    }

    /// RFC 8985 §7: new data if there is any, else the last segment again.
    fn probe(&mut self, now: Instant) -> Option<Leaving> {
        let leaving = match self.queue.is_empty() {
            false => self.send_new(now),
            true => {
                let last = self.flight.len().checked_sub(1)?;
                Some(self.send_again(now, last))
            }
        };
        self.probed = Some(self.next);
        self.probe_at = None;
        self.await_timeout(now);
        leaving
    }

    /// The timeout of the oldest segment is what is left to wait for.
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

    /// RFC 8985 §7.2 as in Linux: twice the round-trip time, and for a lone
    /// segment as much longer as an acknowledgement may be delayed; never later
    /// than the timeout.
    fn schedule_probe(&mut self, now: Instant) {
        let may = self.state == State::Open && self.sacked == 0;
        self.probe_at = None;
        if let (true, Some(srtt), Some(head)) = (may, self.rtt.smoothed(), self.flight.front()) {
            let more = if self.flight.len() == 1 { Duration::from_micros(RTO_MIN_US) } else { PROBE_MIN };
            let due = (now + srtt * 2 + more).min(head.at + self.rtt.timeout());
            self.probe_at = Some(self.ticks.at(now, due));
        }
    }

    /// RFC 7661 as in Linux (`tcp_cwnd_validate`): was the window the limit in
    /// the last round?
    fn validate_window(&mut self) {
        let limited = self.in_flight() >= self.control.window;
        let out = self.flight.len() as u32;
        if self.una >= self.usage_ends || limited || (!self.limited && out > self.most_out) {
            (self.limited, self.most_out, self.usage_ends) = (limited, out, self.next);
        }
    }
}

#[cfg(test)]
mod tests;
