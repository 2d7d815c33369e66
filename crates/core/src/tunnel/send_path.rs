//! The sending side of one path: what is in flight, how fast the path delivers, and whether it does.

use alloc::collections::VecDeque;
use alloc::string::String;

use super::keepalive::Keepalive;
use super::retransmit_queue::Retransmittable;
use super::wire::control_message::PathReport;
use super::wire::gre_key::is_in_range;
use crate::path::PathState;
use crate::time::{Duration, Instant};

mod cwnd;
mod delivery_rate;
mod feedback;
mod in_flight;
mod jitter;
mod lateness;
mod liveness;
mod pacer;
mod packet_counts;
mod packet_train;
mod path_mtu;
mod rtt;
mod sample;
mod slow_start;

pub(super) use cwnd::MAX_CWND_BYTES;
use cwnd::{Cwnd, INITIAL_CWND_BYTES, MIN_ROUND};
use delivery_rate::DeliveryRate;
use feedback::Mark;
pub(super) use feedback::OneWayDelay;
use in_flight::{InFlight, SentPacket};
use lateness::Lateness;
pub(super) use lateness::Other;
pub use liveness::Liveness;
pub(super) use liveness::TunnelState;
use liveness::{KEEPALIVE_IN_USE, LivenessMonitor, Observed, Transition};
use pacer::Pacer;
use packet_counts::PacketCounts;
use packet_train::PacketTrain;
pub(super) use packet_train::TRAIN_PACKETS;
pub(super) use path_mtu::PathMtu;
use rtt::Rtt;

/// The rate of a path that carried no packet for this time while other paths did is discarded.
const UNUSED_AFTER: Duration = Duration::from_secs(10);

/// A path is in use until this time after a packet, sent or received.
const IN_USE: Duration = Duration::from_secs(5);

/// The sending side of a path.
#[derive(Debug)]
pub(super) struct SendPath<P> {
    pub wanted_state: PathState,
    pub rtt: Rtt,
    pub lateness: Lateness,
    /// `None`: no path MTU discovery.
    pub mtu: Option<PathMtu>,
    pub counts: PacketCounts,
    pub in_flight: InFlight<P>,
    pub rate: DeliveryRate,
    train: PacketTrain,
    /// One-way delay without a queue.
    pub one_way_delay: Option<OneWayDelay>,
    cwnd: Cwnd,
    pacer: Pacer,
    liveness: LivenessMonitor,
    /// When it last carried a packet that no other path carried too.
    pub last_carried: Instant,
    /// When it last carried a packet in either direction; before any, the start.
    pub last_used: Instant,
    /// Whether it has carried one.
    pub has_carried: bool,
    /// When it last carried a packet whose report may not be late.
    pub last_prompt: Option<Instant>,
    pub keepalive: Keepalive,
    /// Whether it sent a keepalive since the peer's last probe.
    sent_keepalive: bool,
}

impl<P> SendPath<P> {
    /// A path without feedback; `next` is its first sequence number.
    pub(super) fn new(now: Instant, wanted_state: PathState, next: u64) -> SendPath<P> {
        SendPath {
            wanted_state,
            rtt: Rtt::default(),
            lateness: Lateness::new(now),
            mtu: None,
            counts: PacketCounts::default(),
            in_flight: InFlight::new(now, next),
            rate: DeliveryRate::default(),
            train: PacketTrain::default(),
            one_way_delay: None,
            cwnd: Cwnd::new(now),
            pacer: Pacer::new(now),
            liveness: LivenessMonitor::new(now),
            last_carried: now,
            last_used: now,
            has_carried: false,
            last_prompt: None,
            keepalive: Keepalive::DEFAULT,
            sent_keepalive: false,
        }
    }

    /// The same path after a restart of the peer: sequence numbers, path MTU and keepalives remain.
    pub(super) fn after_peer_restart(&mut self, now: Instant) -> SendPath<P> {
        let new = SendPath::new(now, self.wanted_state, self.next_number());
        SendPath { mtu: self.mtu.take(), keepalive: self.keepalive, ..new }
    }

    /// The next path sequence number. The peer continues its count, so a path that is added again continues
    /// here.
    pub(super) fn next_number(&self) -> u64 {
        self.in_flight.next
    }

    /// Records a packet that is sent now and returns its path sequence number; `copy` is kept for
    /// retransmission.
    pub(super) fn send(&mut self, now: Instant, bytes: u32, copy: Option<Retransmittable<P>>) -> u32 {
        self.send_leniently(now, bytes, copy, Duration::ZERO)
    }

    /// The same of a packet whose report may be later by `leniency`.
    pub(super) fn send_leniently(
        &mut self,
        now: Instant,
        bytes: u32,
        copy: Option<Retransmittable<P>>,
        leniency: Duration,
    ) -> u32 {
        let number = self.in_flight.push(now, bytes, copy, leniency);
        self.counts.sent_bytes += u64::from(bytes);
        if let Some(pacing_bytes_s) = self.cwnd.pacing_bytes_s(&self.rate, &self.rtt) {
            self.pacer.on_sent(now, bytes, pacing_bytes_s);
        }
        number as u32
    }

    /// The size of a path MTU probe to send now, as a datagram on the wire, in bytes.
    pub(super) fn mtu_probe(&mut self, now: Instant) -> Option<u32> {
        let can_probe = matches!(self.liveness(), Liveness::Up | Liveness::Recovering) && self.is_open();
        let is_in_use = self.is_in_use();
        self.mtu.as_mut().filter(|_| can_probe)?.probe(now, is_in_use)
    }

    pub(super) fn liveness(&self) -> Liveness {
        self.liveness.liveness
    }

    /// The reason for its liveness, one sentence.
    pub(super) fn reason(&self) -> &String {
        &self.liveness.reason
    }

    /// Whether it delivers, for certain or on trial.
    pub(super) fn answers(&self) -> bool {
        self.is_open() && matches!(self.liveness(), Liveness::Up | Liveness::Recovering)
    }

    /// Whether it is active or a backup.
    pub(super) fn is_open(&self) -> bool {
        self.wanted_state != PathState::Closed
    }

    /// Whether it is active and up.
    pub(super) fn is_used(&self) -> bool {
        self.wanted_state == PathState::Active && self.liveness() == Liveness::Up
    }

    fn cwnd_bytes(&self) -> f64 {
        self.cwnd.bytes(&self.rate, &self.rtt)
    }

    /// Whether the congestion window allows another packet.
    pub(super) fn has_cwnd_room(&self) -> bool {
        (self.bytes_in_flight() as f64) < self.cwnd_bytes()
    }

    /// Whether it may carry a copy of a packet that other paths carry too: copies come at the rate of the
    /// traffic, so only a path that is much too slow is left out. A path that does not deliver now gets a few,
    /// in case it delivers them, and no queue.
    pub(super) fn has_room_for_copies(&self) -> bool {
        let max_bytes = match self.liveness() {
            Liveness::Up => (self.cwnd_bytes() * 3.0).min(MAX_CWND_BYTES),
            Liveness::Unknown | Liveness::Recovering => self.cwnd_bytes(),
            Liveness::Probing | Liveness::Down => INITIAL_CWND_BYTES,
        };
        (self.bytes_in_flight() as f64) < max_bytes
    }

    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Bytes in flight.
    pub(super) fn bytes_in_flight(&self) -> u64 {
        self.in_flight.bytes
    }

    /// When pacing allows the next packet.
    pub(super) fn paced_to(&self) -> Instant {
        self.pacer.next_send()
    }

    /// Records that the window limited sending.
    pub(super) fn note_full(&mut self, now: Instant) {
        self.cwnd.note_full();
        self.rate.limited = now;
    }

    /// How much longer than the one-way delay a packet of `bytes` takes that is sent now, at the estimated `rate`, in µs.
    pub(super) fn queue_and_transmission_us(&self, bytes: u32, rate: Option<f64>) -> i64 {
        let Some((rate, rtt)) = rate.zip(self.rtt.unqueued()) else { return 0 };
        let ahead_s = (self.bytes_in_flight() as f64 / rate - rtt.as_secs_f64()).max(0.0);
        ((ahead_s + f64::from(bytes) / rate) * 1e6) as i64
    }

    /// The delivery rate, in bytes/s; in slow start, if there was a packet train, at least its estimate and what was
    /// delivered last.
    pub(super) fn estimated_bytes_s(&self) -> Option<f64> {
        let known = self.rate.bytes_s();
        let guess = || self.train.bytes_s(self.rtt.jitter.mean());
        if self.cwnd.in_slow_start() {
            return guess().map(|guess| [known, self.rate.last].into_iter().flatten().fold(guess, f64::max));
        }
        known.or_else(guess)
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.cwnd.in_slow_start()
    }

    pub(super) fn wants_train(&self) -> bool {
        self.liveness() == Liveness::Up && self.train == PacketTrain::Unsent && self.cwnd.in_slow_start()
    }

    pub(super) fn begin_train(&mut self) {
        let first = self.next_number();
        self.train = PacketTrain::InFlight {
            first,
            last: first + u64::from(TRAIN_PACKETS) - 1,
            first_mark: None,
            has_gaps: false,
        };
    }

    /// Applies the peer's report on this path; returns the lost packets.
    pub(super) fn on_report(&mut self, now: Instant, report: &PathReport) -> VecDeque<Retransmittable<P>> {
        let mut lost = VecDeque::new();
        let Some(covered) = self.in_flight.covered_by(report.highest) else { return lost };
        let is_window_used = self.cwnd.note_use(self.bytes_in_flight(), &self.rate, &self.rtt);
        let has_train = self.train.is_in_flight();
        let (mut newest, mut is_lossy) = (None, false);
        for number in covered {
            let Some(packet) = self.in_flight.pop_oldest() else { break };
            let is_lost = report.missing.iter().any(|&range| is_in_range(number, range));
            if !self.is_of_the_path(now, &packet, is_lost) {
                continue;
            }
            self.cwnd.on_packet(is_lost);
            self.liveness.on_packet(is_lost);
            // A train may overtake itself before the peer knows that the path reorders.
            let plausible_loss = if has_train { 0.0 } else { self.cwnd.plausible_loss(packet.sent) };
            self.counts.on_packet(now, packet.bytes, is_lost, plausible_loss);
            if is_lost {
                is_lossy = true;
                lost.extend(packet.copy);
            } else {
                newest = Some(packet.sent);
                if is_window_used {
                    self.cwnd.grow(packet.bytes);
                }
            }
        }
        self.train.note(report.highest, Mark::of(report), !report.missing.is_empty() || self.rtt.reorders());
        if let Some(sent) = newest {
            self.measure(now, sent, report, is_lossy, is_window_used);
            self.cwnd.end_round(now, &mut self.rtt, &mut self.rate, has_train);
        }
        lost
    }

    /// Reports the packet to path MTU discovery; false if its loss is due to its size.
    fn is_of_the_path(&mut self, now: Instant, packet: &SentPacket<P>, is_lost: bool) -> bool {
        if let Some(mtu) = &mut self.mtu {
            match packet.is_mtu_probe {
                true => mtu.on_probe(now, packet.bytes, is_lost),
                false => mtu.on_packet(packet.bytes, is_lost),
            }
        }
        !(packet.is_mtu_probe && is_lost)
    }

    fn measure(&mut self, now: Instant, sent: Instant, report: &PathReport, is_lossy: bool, is_window_used: bool) {
        let rtt = feedback::rtt(now, sent, report);
        self.rtt.note(now, rtt);
        self.lateness.note(now, rtt, is_lossy);
        self.rtt.note_held(Duration::from_micros(u64::from(report.held_us)));
        self.cwnd.on_rtt(rtt);
        let min_rtt = self.rtt.min.unwrap_or(rtt);
        // Queueing delay is assumed to be in the sending direction.
        let delay = OneWayDelay::of(report, sent, rtt.saturating_sub(min_rtt));
        self.one_way_delay = Some(self.one_way_delay.map_or(delay, |old| old.toward(delay)));
        let window = self.rtt.smoothed().max(MIN_ROUND);
        // While little is in flight, a long RTT may be due to the queue of the other direction; on a path that
        // reorders, to jitter.
        let unqueued = self.rtt.unqueued().filter(|_| is_window_used && !self.rtt.reorders());
        let queued = unqueued.map_or(Duration::ZERO, |unqueued| rtt.saturating_sub(unqueued));
        self.rate.note(now, sent, Mark::of(report), window, self.cwnd.in_min_rtt_probe(), queued);
        let transition = self.liveness.on_delivery(rtt, min_rtt, self.counts.recent_loss);
        self.follow(transition);
    }

    /// Applies a change of liveness to the rest of the path.
    fn follow(&mut self, transition: Option<Transition>) {
        match transition {
            Some(Transition::Answered) => self.forget_rate(),
            Some(Transition::Recovered(loss)) => self.counts.recent_loss = loss,
            Some(Transition::Down) => {
                self.cwnd.reset_gain();
                self.in_flight.clear();
            }
            Some(Transition::Overdue) | None => {}
        }
    }

    fn forget_rate(&mut self) {
        self.rate = DeliveryRate::default();
        self.cwnd.restart_slow_start();
    }

    /// Whether it carried a packet lately, in either direction: what was sent since are probes.
    pub(super) fn is_in_use(&self) -> bool {
        self.in_flight.last_sent.since(self.last_used) < IN_USE
    }

    fn observed(&self) -> Observed {
        let is_answered = !(self.keepalive.only_after_peer && self.sent_keepalive);
        Observed {
            rtt: self.rtt.with_variation(),
            feedback_delay: self.rtt.feedback_delay(),
            oldest_sent: self.in_flight.oldest_timed_from(),
            last_sent: self.in_flight.last_sent,
            keepalive: if is_answered { self.keepalive } else { Keepalive::OFF },
            is_in_use: self.is_in_use(),
            is_doubted: self.lateness.is_doubted(),
            is_closed: !self.is_open(),
        }
    }

    /// Updates the liveness at `now`; returns packets to retransmit on another path, if there is one.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        tunnel: TunnelState,
        has_other_path: bool,
    ) -> VecDeque<Retransmittable<P>> {
        if now.since(self.last_carried) > UNUSED_AFTER && !tunnel.is_idle && self.is_used() {
            // Its last measured rate was too low to use it, but that may have changed.
            self.forget_rate();
            self.last_carried = now;
        }
        self.lateness.checked = now;
        let transition = self.liveness.advance(now, tunnel, &self.observed());
        let may_move = self.liveness().is_overdue() && has_other_path || transition == Some(Transition::Down);
        let to_retransmit = if may_move { self.in_flight.take_copies() } else { VecDeque::new() };
        self.follow(transition);
        to_retransmit
    }

    /// Whether a probe is due.
    pub(super) fn wants_probe(&self, now: Instant) -> bool {
        self.liveness.probe_at(&self.observed()).is_some_and(|at| now >= at)
    }

    /// The initiator probed the path: unless packets show it anyway, a probe shows whether the path delivers in
    /// this direction too. So the initiator sets the interval of keepalives.
    pub(super) fn answer_probe(&mut self, now: Instant) {
        let is_quiet = self.in_flight.oldest_sent().is_none() && now >= self.in_flight.last_sent + KEEPALIVE_IN_USE;
        self.liveness.probe_wanted |= is_quiet;
        self.sent_keepalive = false;
    }

    /// Records that a probe is sent.
    pub(super) fn on_probe_sent(&mut self) {
        self.sent_keepalive |= !self.liveness.probe_wanted && !self.is_in_use();
        self.liveness.probe_wanted = false;
    }

    /// When [`advance`](Self::advance) or a probe is due.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.liveness.next_wakeup(&self.observed()).into_iter().chain(self.next_repeat()).min()
    }
}
