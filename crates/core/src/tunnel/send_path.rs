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

pub(super) use cwnd::WINDOW_MOST_BYTES;
use cwnd::{Drain, FIRST_BYTES, HOLD, QUEUE, Round, SHORTEST_ROUND};
use delivery_rate::Rate;
use feedback::Mark;
pub(super) use feedback::OneWay;
pub use liveness::Health;
pub(super) use packet_train::TRAIN_PACKETS;
use packet_train::Train;
pub(super) use path_mtu::PathMtu;
use rtt::RoundTrip;
use slow_start::Search;

/// What a path sends at once, as time at its rate.
const BURST: Duration = Duration::from_millis(1);
/// Faster than the rate that was found, so that the queue in the path decides.
const PACE: f64 = 1.25;
/// The same while the rate is searched: so many windows in a round trip, that a
/// burst neither fills the queue of a link nor makes the train of acknowledgements
/// long, which HyStart takes for the path's length.
const SEARCH_PACE: f64 = 4.0;
/// Packets under way at most.
pub(super) const MOST_UNDER_WAY: usize = 65_536;

/// A packet as the tunnel knows it.
#[derive(Clone, Debug)]
pub(super) struct Parcel<P> {
    pub packet: P,
    pub bytes: u32,
    pub flow: u8,
    pub order: u32,
    /// Until when it is worth being sent again.
    pub until: Instant,
    /// How often it may still be.
    pub tries: u8,
}

#[derive(Debug)]
struct UnderWay<P> {
    sent: Instant,
    bytes: u32,
    /// It shows whether the path carries packets of its size: its loss says nothing else.
    probes_mtu: bool,
    parcel: Option<Parcel<P>>,
}

/// The sending side of a path.
#[derive(Debug)]
pub(super) struct Outgoing<P> {
    pub wish: PathState,
    pub health: Health,
    /// Why it is so.
    pub because: String,
    next: u64,
    under_way: VecDeque<UnderWay<P>>,
    bytes_under_way: u64,
    pub round_trip: RoundTrip,
    /// None: the path is believed to carry whatever is sent.
    pub mtu: Option<PathMtu>,
    rate: Rate,
    train: Train,
    /// One-way delay without a queue.
    one_way: Option<OneWay>,
    boost: f64,
    /// None: its rate is found.
    search: Option<Search>,
    queue: Duration,
    round: Round,
    drain: Drain,
    paced_to: Instant,
    loss: f64,
    usual_loss: f64,
    probe_wanted: bool,
    /// When it was last asked whether the last of what it carried was lost.
    tail_asked: Instant,
    /// How much later a report comes over the slowest path than over the quickest.
    pub spread: Duration,
    /// Whether the whole tunnel has nothing to carry.
    pub others_idle: bool,
    last_sent: Instant,
    /// When it last carried a packet.
    carried: Instant,
    trial: (u32, u32),
    pub delivered: u64,
    pub acknowledged_bytes: u64,
    pub lost: u64,
    pub sent_bytes: u64,
}

impl<P: Clone> Outgoing<P> {
    pub(super) fn new(now: Instant, wish: PathState, next: u64) -> Outgoing<P> {
        Outgoing {
            wish,
            health: Health::New,
            because: "nothing is known yet".into(),
            next,
            under_way: VecDeque::new(),
            bytes_under_way: 0,
            round_trip: RoundTrip::default(),
            mtu: None,
            rate: Rate::default(),
            train: Train::default(),
            one_way: None,
            boost: 1.0,
            search: Some(Search::default()),
            queue: QUEUE,
            round: Round { since: now, ..Round::default() },
            drain: Drain { until: None, last: now },
            paced_to: now,
            loss: 0.0,
            usual_loss: 0.0,
            probe_wanted: true,
            tail_asked: now,
            spread: Duration::ZERO,
            others_idle: false,
            last_sent: now,
            carried: now,
            trial: (0, 0),
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

    /// The number of a packet that leaves now; `parcel` is what can be sent again.
    pub(super) fn send(&mut self, now: Instant, bytes: u32, parcel: Option<Parcel<P>>) -> u32 {
        let number = self.next;
        self.next += 1;
        if self.under_way.len() == MOST_UNDER_WAY
            && let Some(oldest) = self.under_way.pop_front()
        {
            self.bytes_under_way -= u64::from(oldest.bytes);
        }
        self.under_way.push_back(UnderWay { sent: now, bytes, probes_mtu: false, parcel });
        self.bytes_under_way += u64::from(bytes);
        self.sent_bytes += u64::from(bytes);
        self.last_sent = now;
        if let Some(pace) = self.pace() {
            let takes = Duration::from_secs_f64(f64::from(bytes) / pace);
            self.paced_to = self.paced_to.max(now - BURST) + takes;
        }
        number as u32
    }

    /// The size of a probe of the path's MTU that is to leave now, as a datagram on the wire.
    pub(super) fn mtu_probe(&mut self, now: Instant) -> Option<u32> {
        let answers = matches!(self.health, Health::Good | Health::Trial) && self.wish != PathState::Closed;
        self.mtu.as_mut().filter(|_| answers)?.probe(now)
    }

    /// What left last was such a probe.
    pub(super) fn note_mtu_probe(&mut self) {
        self.under_way.iter_mut().next_back().into_iter().for_each(|packet| packet.probes_mtu = true);
    }

    /// It is to be used, and it works.
    pub(super) fn is_used(&self) -> bool {
        self.wish == PathState::Active && self.health == Health::Good
    }

    /// What left now was traffic that no other path carries too.
    pub(super) fn note_carried(&mut self, now: Instant) {
        self.carried = now;
    }

    /// Whether another packet may leave as far as what is under way goes.
    pub(super) fn has_window(&self) -> bool {
        (self.bytes_under_way as f64) < self.window()
    }

    /// Whether a packet that goes over other paths too may leave: copies come at
    /// the rate of the traffic, so only a path that is much too slow is spared.
    pub(super) fn has_room_for_copies(&self) -> bool {
        (self.bytes_under_way as f64) < (self.window() * 3.0).min(WINDOW_MOST_BYTES)
    }

    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Bytes that are under way.
    pub(super) fn bytes_under_way(&self) -> u64 {
        self.bytes_under_way
    }

    /// Bytes a second at which packets may leave.
    fn pace(&self) -> Option<f64> {
        match (&self.search, self.round_trip.base()) {
            (Some(_), Some(base)) => Some(self.window() / base.max(HOLD).as_secs_f64() * SEARCH_PACE),
            _ => self.rate.bytes_s().map(|rate| rate * PACE * self.boost),
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
    pub(super) fn arrival_us(&self, bytes: u32, clock: OneWay) -> i64 {
        let delay_us = self.one_way.map_or(0, |one_way| one_way.beyond_us(clock));
        let Some((rate, base)) = self.speed_bytes_s().zip(self.round_trip.base()) else { return delay_us };
        let ahead_s = (self.bytes_under_way as f64 / rate - (base + HOLD).as_secs_f64()).max(0.0);
        delay_us + ((ahead_s + f64::from(bytes) / rate) * 1e6) as i64
    }

    /// Rate at which it delivers, in bytes a second.
    pub(super) fn rate_bytes_s(&self) -> Option<f64> {
        self.rate.bytes_s()
    }

    /// The same as far as it is known; before that what a train said.
    pub(super) fn speed_bytes_s(&self) -> Option<f64> {
        let known = self.rate.bytes_s();
        if self.search.is_some() {
            return self.train.bytes_s().map(|guess| known.map_or(guess, |known| known.max(guess)));
        }
        known.or(self.train.bytes_s())
    }

    pub(super) fn wants_train(&self) -> bool {
        self.health == Health::Good && self.train == Train::Unsent && self.search.is_some()
    }

    pub(super) fn begin_train(&mut self) {
        let last = self.next + u64::from(TRAIN_PACKETS) - 1;
        self.train = Train::Under { first: self.next, last, began: None };
    }

    /// One-way delay without a queue.
    pub(super) fn one_way(&self) -> Option<OneWay> {
        self.one_way
    }

    /// Share of packets lost, lately.
    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// What is under way, to be sent elsewhere.
    pub(super) fn give_back(&mut self) -> VecDeque<Parcel<P>> {
        self.under_way.iter_mut().filter_map(|packet| packet.parcel.take()).collect()
    }

    /// What the list of what is under way took and holds nothing.
    pub(super) fn give_back_memory(&mut self) {
        if self.under_way.is_empty() {
            self.under_way.shrink_to_fit();
        }
    }

    /// Takes what the other end says of this path; what was lost.
    pub(super) fn settle(&mut self, now: Instant, report: &PathReport) -> VecDeque<Parcel<P>> {
        let mut lost = VecDeque::new();
        let first = self.next - self.under_way.len() as u64;
        let highest = unwrap(self.next, report.highest, 32);
        if highest >= self.next || highest < first {
            return lost;
        }
        let gone = |number: u64| {
            let inside = |&(first, length): &(u32, u16)| (number as u32).wrapping_sub(first) < u32::from(length);
            report.missing.iter().any(inside)
        };
        let used = self.bytes_under_way as f64 * 2.0 >= self.window();
        self.round.was_busy |= used || self.bytes_under_way as f64 >= FIRST_BYTES;
        let mut newest = None;
        for number in first..=highest {
            let Some(packet) = self.under_way.pop_front() else { break };
            self.bytes_under_way -= u64::from(packet.bytes);
            let is_lost = !report.missing.is_empty() && gone(number);
            if let Some(mtu) = &mut self.mtu {
                match packet.probes_mtu {
                    true => mtu.on_probe(now, packet.bytes, is_lost),
                    false => mtu.on_packet(packet.bytes, is_lost),
                }
            }
            if packet.probes_mtu && is_lost {
                continue;
            }
            self.count(is_lost);
            match is_lost {
                true => lost.extend(packet.parcel),
                false => {
                    self.acknowledged_bytes += u64::from(packet.bytes);
                    self.search.iter_mut().filter(|_| used).for_each(|search| search.grow(packet.bytes));
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
        self.trial.0 = self.trial.0.saturating_add(u32::from(!is_lost));
        self.trial.1 = self.trial.1.saturating_add(u32::from(is_lost));
        self.delivered += u64::from(!is_lost);
        self.lost += u64::from(is_lost);
        self.loss += (f64::from(u8::from(is_lost)) - self.loss) / 100.0;
    }

    fn measure(&mut self, now: Instant, sent: Instant, report: &PathReport) {
        let took = feedback::round_trip(now, sent, report);
        let drains = self.drain.until.is_some();
        self.round_trip.note(now, took);
        self.round.shortest = Some(self.round.shortest.map_or(took, |shortest| shortest.min(took)));
        // What of the round trip is queue is taken to be on the way there.
        let queued = took.saturating_sub(self.round_trip.base().unwrap_or(took));
        let clear = OneWay::of(report, sent, queued);
        self.one_way = Some(self.one_way.map_or(clear, |old| old.toward(clear)));
        let window = self.round_trip.smoothed().max(SHORTEST_ROUND);
        self.rate.note(now, sent, Mark::of(report), window, drains);
        self.answer(took);
        self.end_round(now);
    }
}
