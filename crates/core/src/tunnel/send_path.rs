//! The sending side of one path: packets in flight, delivery rate and liveness.
//!
//! The congestion window is the delivery rate times the min RTT, plus a short queue. While that queue does
//! not appear the window grows; when the queue exceeds its target the window shrinks. So the rate is found
//! by measurement, and the queue in the path stays short.

use alloc::collections::VecDeque;
use alloc::string::String;

use super::wire::control_message::PathReport;
use super::wire::gre_key::unwrap;
use crate::path::PathState;
use crate::time::{Duration, Instant};

mod cwnd;
mod delivery_rate;
mod feedback;
mod liveness;
mod packet_train;
mod path_mtu;
mod rtt;
mod slow_start;

pub(super) use cwnd::MAX_CWND_BYTES;
use cwnd::{FEEDBACK_DELAY, INITIAL_CWND_BYTES, MIN_ROUND, MinRttProbe, QUEUE, Round};
use delivery_rate::Rate;
use feedback::Mark;
pub(super) use feedback::OneWayDelay;
pub use liveness::Liveness;
use packet_train::PacketTrain;
pub(super) use packet_train::TRAIN_PACKETS;
pub(super) use path_mtu::PathMtu;
use rtt::Rtt;
use slow_start::SlowStart;

/// Maximum burst, as time at the path's rate.
const BURST: Duration = Duration::from_millis(1);
/// Pacing rate as a multiple of the delivery rate, so that the bottleneck's queue is visible.
const PACING_GAIN: f64 = 1.25;
/// The same during slow start, in windows per RTT: a burst then neither fills the queue of a link nor
/// stretches the train of acknowledgements, which HyStart takes for a rising RTT.
const SLOW_START_PACING_GAIN: f64 = 4.0;
/// Maximum number of packets in flight.
pub(super) const MAX_IN_FLIGHT: usize = 65_536;

/// A packet kept for retransmission.
#[derive(Clone, Debug)]
pub(super) struct Retransmittable<P> {
    pub packet: P,
    pub bytes: u32,
    pub flow: u8,
    pub sequence: u32,
    /// Retransmission ends at this time.
    pub until: Instant,
    /// Retransmissions left.
    pub tries: u8,
}

#[derive(Debug)]
struct InFlight<P> {
    sent: Instant,
    bytes: u32,
    /// A path MTU probe: its loss is not counted as a loss of the path.
    is_mtu_probe: bool,
    copy: Option<Retransmittable<P>>,
}

/// The sending side of a path.
#[derive(Debug)]
pub(super) struct SendPath<P> {
    pub wanted_state: PathState,
    pub liveness: Liveness,
    /// The reason for its liveness.
    pub reason: String,
    next: u64,
    in_flight: VecDeque<InFlight<P>>,
    bytes_in_flight: u64,
    pub rtt: Rtt,
    /// `None`: no path MTU discovery.
    pub mtu: Option<PathMtu>,
    rate: Rate,
    train: PacketTrain,
    /// One-way delay without a queue.
    one_way_delay: Option<OneWayDelay>,
    window_gain: f64,
    /// `None` once slow start has ended.
    slow_start: Option<SlowStart>,
    queue: Duration,
    round: Round,
    min_rtt_probe: MinRttProbe,
    paced_to: Instant,
    loss: f64,
    baseline_loss: f64,
    probe_wanted: bool,
    /// Time of the last tail-loss probe.
    tail_probed: Instant,
    /// Delay difference of all paths that are not closed.
    pub delay_difference: Duration,
    /// Whether the whole tunnel is idle.
    pub tunnel_idle: bool,
    last_sent: Instant,
    /// When it last carried a packet that no other path carried too.
    last_carried: Instant,
    recovery: (u32, u32),
    pub delivered: u64,
    pub acknowledged_bytes: u64,
    pub lost: u64,
    pub sent_bytes: u64,
}

impl<P: Clone> SendPath<P> {
    pub(super) fn new(now: Instant, wanted_state: PathState, next: u64) -> SendPath<P> {
        SendPath {
            wanted_state,
            liveness: Liveness::Unknown,
            reason: "no feedback yet".into(),
            next,
            in_flight: VecDeque::new(),
            bytes_in_flight: 0,
            rtt: Rtt::default(),
            mtu: None,
            rate: Rate::default(),
            train: PacketTrain::default(),
            one_way_delay: None,
            window_gain: 1.0,
            slow_start: Some(SlowStart::default()),
            queue: QUEUE,
            round: Round { since: now, ..Round::default() },
            min_rtt_probe: MinRttProbe { until: None, last: now },
            paced_to: now,
            loss: 0.0,
            baseline_loss: 0.0,
            probe_wanted: true,
            tail_probed: now,
            delay_difference: Duration::ZERO,
            tunnel_idle: false,
            last_sent: now,
            last_carried: now,
            recovery: (0, 0),
            delivered: 0,
            acknowledged_bytes: 0,
            lost: 0,
            sent_bytes: 0,
        }
    }

    /// The next path sequence number. The peer continues its count, so a path that is added again continues
    /// here.
    pub(super) fn next_number(&self) -> u64 {
        self.next
    }

    /// Records a packet that is sent now and returns its path sequence number; `copy` is kept for
    /// retransmission.
    pub(super) fn send(&mut self, now: Instant, bytes: u32, copy: Option<Retransmittable<P>>) -> u32 {
        let number = self.next;
        self.next += 1;
        if self.in_flight.len() == MAX_IN_FLIGHT
            && let Some(oldest) = self.in_flight.pop_front()
        {
            self.bytes_in_flight -= u64::from(oldest.bytes);
        }
        self.in_flight.push_back(InFlight { sent: now, bytes, is_mtu_probe: false, copy });
        self.bytes_in_flight += u64::from(bytes);
        self.sent_bytes += u64::from(bytes);
        self.last_sent = now;
        if let Some(pacing_bytes_s) = self.pacing_bytes_s() {
            let takes = Duration::from_secs_f64(f64::from(bytes) / pacing_bytes_s);
            self.paced_to = self.paced_to.max(now - BURST) + takes;
        }
        number as u32
    }

    /// The size of a path MTU probe to send now, as a datagram on the wire, in bytes.
    pub(super) fn mtu_probe(&mut self, now: Instant) -> Option<u32> {
        let can_probe =
            matches!(self.liveness, Liveness::Up | Liveness::Recovering) && self.wanted_state != PathState::Closed;
        self.mtu.as_mut().filter(|_| can_probe)?.probe(now)
    }

    /// Marks the packet sent last as a path MTU probe.
    pub(super) fn note_mtu_probe(&mut self) {
        self.in_flight.iter_mut().next_back().into_iter().for_each(|packet| packet.is_mtu_probe = true);
    }

    /// Whether it is active and up.
    pub(super) fn is_used(&self) -> bool {
        self.wanted_state == PathState::Active && self.liveness == Liveness::Up
    }

    /// Records that it carried a packet that no other path carries too.
    pub(super) fn note_carried(&mut self, now: Instant) {
        self.last_carried = now;
    }

    /// Whether the congestion window allows another packet.
    pub(super) fn has_cwnd_room(&self) -> bool {
        (self.bytes_in_flight as f64) < self.cwnd_bytes()
    }

    /// Whether it may carry a copy of a packet that other paths carry too: copies come at the rate of the
    /// traffic, so only a path that is much too slow is left out.
    pub(super) fn has_room_for_copies(&self) -> bool {
        (self.bytes_in_flight as f64) < (self.cwnd_bytes() * 3.0).min(MAX_CWND_BYTES)
    }

    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Bytes in flight.
    pub(super) fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Pacing rate, in bytes/s.
    fn pacing_bytes_s(&self) -> Option<f64> {
        match (&self.slow_start, self.rtt.min()) {
            (Some(_), Some(min_rtt)) => {
                Some(self.cwnd_bytes() / min_rtt.max(FEEDBACK_DELAY).as_secs_f64() * SLOW_START_PACING_GAIN)
            }
            _ => self.rate.bytes_s().map(|rate| rate * PACING_GAIN * self.window_gain),
        }
    }

    /// When pacing allows the next packet.
    pub(super) fn paced_to(&self) -> Instant {
        self.paced_to - BURST
    }

    /// Records that the window limited sending.
    pub(super) fn note_full(&mut self, now: Instant) {
        self.round.was_full = true;
        self.rate.note_limited(now);
    }

    /// Records that there was less to send than the window allowed.
    pub(super) fn note_idle(&mut self, now: Instant) {
        self.rate.note_idle(now);
    }

    /// Expected arrival of a packet of `bytes` sent now, in µs, relative to the one-way delay `reference`.
    pub(super) fn expected_arrival_us(&self, bytes: u32, reference: OneWayDelay) -> i64 {
        let delay_us = self.one_way_delay.map_or(0, |one_way_delay| one_way_delay.minus_us(reference));
        let Some((rate, min_rtt)) = self.estimated_bytes_s().zip(self.rtt.min()) else { return delay_us };
        let ahead_s = (self.bytes_in_flight as f64 / rate - (min_rtt + FEEDBACK_DELAY).as_secs_f64()).max(0.0);
        delay_us + ((ahead_s + f64::from(bytes) / rate) * 1e6) as i64
    }

    /// Delivery rate, in bytes/s.
    pub(super) fn rate_bytes_s(&self) -> Option<f64> {
        self.rate.bytes_s()
    }

    /// The delivery rate, or the packet train's estimate until it is known, in bytes/s.
    pub(super) fn estimated_bytes_s(&self) -> Option<f64> {
        let known = self.rate.bytes_s();
        if self.slow_start.is_some() {
            return self.train.bytes_s().map(|guess| known.map_or(guess, |known| known.max(guess)));
        }
        known.or(self.train.bytes_s())
    }

    pub(super) fn wants_train(&self) -> bool {
        self.liveness == Liveness::Up && self.train == PacketTrain::Unsent && self.slow_start.is_some()
    }

    pub(super) fn begin_train(&mut self) {
        let last = self.next + u64::from(TRAIN_PACKETS) - 1;
        self.train = PacketTrain::InFlight { first: self.next, last, first_mark: None };
    }

    /// One-way delay without a queue.
    pub(super) fn one_way_delay(&self) -> Option<OneWayDelay> {
        self.one_way_delay
    }

    /// Recent share of lost packets.
    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// Takes the kept copies of the packets in flight, for retransmission on another path.
    pub(super) fn take_in_flight(&mut self) -> VecDeque<Retransmittable<P>> {
        self.in_flight.iter_mut().filter_map(|packet| packet.copy.take()).collect()
    }

    /// Frees the unused memory of the list of packets in flight.
    pub(super) fn release_memory(&mut self) {
        if self.in_flight.is_empty() {
            self.in_flight.shrink_to_fit();
        }
    }

    /// Applies the peer's report on this path; returns the lost packets.
    pub(super) fn on_report(&mut self, now: Instant, report: &PathReport) -> VecDeque<Retransmittable<P>> {
        let mut lost = VecDeque::new();
        let first = self.next - self.in_flight.len() as u64;
        let highest = unwrap(self.next, report.highest, 32);
        if highest >= self.next || highest < first {
            return lost;
        }
        let is_missing = |number: u64| {
            let inside = |&(first, length): &(u32, u16)| (number as u32).wrapping_sub(first) < u32::from(length);
            report.missing.iter().any(inside)
        };
        let used = self.bytes_in_flight as f64 * 2.0 >= self.cwnd_bytes();
        self.round.was_busy |= used || self.bytes_in_flight as f64 >= INITIAL_CWND_BYTES;
        let mut newest = None;
        for number in first..=highest {
            let Some(packet) = self.in_flight.pop_front() else { break };
            self.bytes_in_flight -= u64::from(packet.bytes);
            let is_lost = !report.missing.is_empty() && is_missing(number);
            if let Some(mtu) = &mut self.mtu {
                match packet.is_mtu_probe {
                    true => mtu.on_probe(now, packet.bytes, is_lost),
                    false => mtu.on_packet(packet.bytes, is_lost),
                }
            }
            if packet.is_mtu_probe && is_lost {
                continue;
            }
            self.count(is_lost);
            match is_lost {
                true => lost.extend(packet.copy),
                false => {
                    self.acknowledged_bytes += u64::from(packet.bytes);
                    self.slow_start.iter_mut().filter(|_| used).for_each(|slow_start| slow_start.grow(packet.bytes));
                    newest = Some(packet.sent);
                }
            }
        }
        self.train.note(report.highest, Mark::of(report));
        if let Some(sent) = newest {
            self.measure(now, sent, report);
        }
        lost
    }

    fn count(&mut self, is_lost: bool) {
        self.round.packets = self.round.packets.saturating_add(1);
        self.round.lost = self.round.lost.saturating_add(u32::from(is_lost));
        self.recovery.0 = self.recovery.0.saturating_add(u32::from(!is_lost));
        self.recovery.1 = self.recovery.1.saturating_add(u32::from(is_lost));
        self.delivered += u64::from(!is_lost);
        self.lost += u64::from(is_lost);
        self.loss += (f64::from(u8::from(is_lost)) - self.loss) / 100.0;
    }

    fn measure(&mut self, now: Instant, sent: Instant, report: &PathReport) {
        let rtt = feedback::rtt(now, sent, report);
        let in_min_rtt_probe = self.min_rtt_probe.until.is_some();
        self.rtt.note(now, rtt);
        self.round.min_rtt = Some(self.round.min_rtt.map_or(rtt, |min_rtt| min_rtt.min(rtt)));
        // Queueing delay is assumed to be in the sending direction.
        let queued = rtt.saturating_sub(self.rtt.min().unwrap_or(rtt));
        let unqueued = OneWayDelay::of(report, sent, queued);
        self.one_way_delay = Some(self.one_way_delay.map_or(unqueued, |old| old.toward(unqueued)));
        let window = self.rtt.smoothed().max(MIN_ROUND);
        self.rate.note(now, sent, Mark::of(report), window, in_min_rtt_probe);
        self.on_delivery(rtt);
        self.end_round(now);
    }
}
