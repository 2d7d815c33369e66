//! What is under way on one path, what it delivers, and whether it lives.
//!
//! How much may be under way follows what arrives: the delivery rate, times the
//! shortest round trip, and a short queue on top. While that queue does not
//! show, more is allowed; when it is longer than meant, less. So the rate is
//! found without being told, and the queue in the path stays short.

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

/// What a path sends at once, as time at its rate.
const BURST: Duration = Duration::from_millis(1);
/// Faster than the rate that was found, so that the queue in the path decides.
const PACING_GAIN: f64 = 1.25;
/// The same while the rate is slow_started: so many windows in a round trip, that a
/// burst neither fills the queue of a link nor makes the train of acknowledgements
/// long, which HyStart takes for the path's length.
const SLOW_START_PACING_GAIN: f64 = 4.0;
/// Packets under way at most.
pub(super) const MAX_IN_FLIGHT: usize = 65_536;

/// A packet as the tunnel knows it.
#[derive(Clone, Debug)]
pub(super) struct Retransmittable<P> {
    pub packet: P,
    pub bytes: u32,
    pub flow: u8,
    pub sequence: u32,
    /// Until when it is worth being sent again.
    pub until: Instant,
    /// How often it may still be.
    pub tries: u8,
}

#[derive(Debug)]
struct InFlight<P> {
    sent: Instant,
    bytes: u32,
    /// It shows whether the path carries packets of its size: its loss says nothing else.
    is_mtu_probe: bool,
    copy: Option<Retransmittable<P>>,
}

/// The sending side of a path.
#[derive(Debug)]
pub(super) struct SendPath<P> {
    pub wanted_state: PathState,
    pub liveness: Liveness,
    /// Why it is so.
    pub reason: String,
    next: u64,
    in_flight: VecDeque<InFlight<P>>,
    bytes_in_flight: u64,
    pub rtt: Rtt,
    /// None: the path is believed to carry whatever is sent.
    pub mtu: Option<PathMtu>,
    rate: Rate,
    train: PacketTrain,
    /// One-way delay without a queue.
    one_way_delay: Option<OneWayDelay>,
    window_gain: f64,
    /// None: its rate is found.
    slow_start: Option<SlowStart>,
    queue: Duration,
    round: Round,
    min_rtt_probe: MinRttProbe,
    paced_to: Instant,
    loss: f64,
    baseline_loss: f64,
    probe_wanted: bool,
    /// When it was last asked whether the last of what it carried was lost.
    tail_probed: Instant,
    /// How much later a report comes over the slowest path than over the quickest.
    pub delay_difference: Duration,
    /// Whether the whole tunnel has nothing to carry.
    pub tunnel_idle: bool,
    last_sent: Instant,
    /// When it last carried a packet.
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

    /// The number of the next packet. The other end has counted so far, so a path
    /// that begins anew goes on there.
    pub(super) fn next_number(&self) -> u64 {
        self.next
    }

    /// The number of a packet that leaves now; `copy` is what can be sent again.
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

    /// The size of a probe of the path's MTU that is to leave now, as a datagram on the wire.
    pub(super) fn mtu_probe(&mut self, now: Instant) -> Option<u32> {
        let can_probe =
            matches!(self.liveness, Liveness::Up | Liveness::Recovering) && self.wanted_state != PathState::Closed;
        self.mtu.as_mut().filter(|_| can_probe)?.probe(now)
    }

    /// What left last was such a probe.
    pub(super) fn note_mtu_probe(&mut self) {
        self.in_flight.iter_mut().next_back().into_iter().for_each(|packet| packet.is_mtu_probe = true);
    }

    /// It is to be used, and it works.
    pub(super) fn is_used(&self) -> bool {
        self.wanted_state == PathState::Active && self.liveness == Liveness::Up
    }

    /// What left now was traffic that no other path carries too.
    pub(super) fn note_carried(&mut self, now: Instant) {
        self.last_carried = now;
    }

    /// Whether another packet may leave as far as what is under way goes.
    pub(super) fn has_cwnd_room(&self) -> bool {
        (self.bytes_in_flight as f64) < self.cwnd_bytes()
    }

    /// Whether a packet that goes over other paths too may leave: copies come at
    /// the rate of the traffic, so only a path that is much too slow is spared.
    pub(super) fn has_room_for_copies(&self) -> bool {
        (self.bytes_in_flight as f64) < (self.cwnd_bytes() * 3.0).min(MAX_CWND_BYTES)
    }

    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Bytes that are under way.
    pub(super) fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Bytes a second at which packets may leave.
    fn pacing_bytes_s(&self) -> Option<f64> {
        match (&self.slow_start, self.rtt.min()) {
            (Some(_), Some(min_rtt)) => {
                Some(self.cwnd_bytes() / min_rtt.max(FEEDBACK_DELAY).as_secs_f64() * SLOW_START_PACING_GAIN)
            }
            _ => self.rate.bytes_s().map(|rate| rate * PACING_GAIN * self.window_gain),
        }
    }

    /// When the next packet may leave as far as the pace goes.
    pub(super) fn paced_to(&self) -> Instant {
        self.paced_to - BURST
    }

    /// There was more to send than was allowed.
    pub(super) fn note_full(&mut self, now: Instant) {
        self.round.was_full = true;
        self.rate.note_limited(now);
    }

    /// There was nothing to send over it though more was allowed.
    pub(super) fn note_idle(&mut self, now: Instant) {
        self.rate.note_idle(now);
    }

    /// When a packet of `bytes` that leaves now arrives, in µs, against one that takes `clock`.
    pub(super) fn expected_arrival_us(&self, bytes: u32, reference: OneWayDelay) -> i64 {
        let delay_us = self.one_way_delay.map_or(0, |one_way_delay| one_way_delay.minus_us(reference));
        let Some((rate, min_rtt)) = self.estimated_bytes_s().zip(self.rtt.min()) else { return delay_us };
        let ahead_s = (self.bytes_in_flight as f64 / rate - (min_rtt + FEEDBACK_DELAY).as_secs_f64()).max(0.0);
        delay_us + ((ahead_s + f64::from(bytes) / rate) * 1e6) as i64
    }

    /// Rate at which it delivers, in bytes a second.
    pub(super) fn rate_bytes_s(&self) -> Option<f64> {
        self.rate.bytes_s()
    }

    /// The same as far as it is known; before that what a train said.
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

    /// Share of packets lost, lately.
    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// What is under way, to be sent elsewhere.
    pub(super) fn take_in_flight(&mut self) -> VecDeque<Retransmittable<P>> {
        self.in_flight.iter_mut().filter_map(|packet| packet.copy.take()).collect()
    }

    /// What the list of what is under way took and holds nothing.
    pub(super) fn release_memory(&mut self) {
        if self.in_flight.is_empty() {
            self.in_flight.shrink_to_fit();
        }
    }

    /// Takes what the other end says of this path; what was lost.
    pub(super) fn on_report(&mut self, now: Instant, report: &PathReport) -> VecDeque<Retransmittable<P>> {
        let mut lost = VecDeque::new();
        let first = self.next - self.in_flight.len() as u64;
        let highest = unwrap(self.next, report.highest, 32);
        if highest >= self.next || highest < first {
            return lost;
        }
        let gone = |number: u64| {
            let inside = |&(first, length): &(u32, u16)| (number as u32).wrapping_sub(first) < u32::from(length);
            report.missing.iter().any(inside)
        };
        let used = self.bytes_in_flight as f64 * 2.0 >= self.cwnd_bytes();
        self.round.was_busy |= used || self.bytes_in_flight as f64 >= INITIAL_CWND_BYTES;
        let mut newest = None;
        for number in first..=highest {
            let Some(packet) = self.in_flight.pop_front() else { break };
            self.bytes_in_flight -= u64::from(packet.bytes);
            let is_lost = !report.missing.is_empty() && gone(number);
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
        let took = feedback::rtt(now, sent, report);
        let in_min_rtt_probe = self.min_rtt_probe.until.is_some();
        self.rtt.note(now, took);
        self.round.min_rtt = Some(self.round.min_rtt.map_or(took, |min_rtt| min_rtt.min(took)));
        // What of the round trip is queue is taken to be on the way there.
        let queued = took.saturating_sub(self.rtt.min().unwrap_or(took));
        let unqueued = OneWayDelay::of(report, sent, queued);
        self.one_way_delay = Some(self.one_way_delay.map_or(unqueued, |old| old.toward(unqueued)));
        let window = self.rtt.smoothed().max(MIN_ROUND);
        self.rate.note(now, sent, Mark::of(report), window, in_min_rtt_probe);
        self.on_delivery(took);
        self.end_round(now);
    }
}
