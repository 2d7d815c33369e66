//! A transmitter of a link: packets queued, in service, and in flight to each station.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::Cell;

use super::codel::{self, Taken};
use super::jitter::{Jitter, JitterParams};
use super::mahimahi::{CHANCE_BYTES, Opportunities};
use super::{
    Bottleneck, Channel, CoDel, DirectionParams, DropReason, Exit, Hop, MAX_HELD_PACKETS, PacketId, QueueLimit,
};
use crate::rng::Rng;
use crate::time::{Duration, Instant};

/// One queue and bottleneck, and what is in flight behind it: the vehicle's with a
/// hop to each station, or a station's with the hop to the vehicle. Over several hops
/// the bottleneck is the air, and the queue of the first hop applies to all.
#[derive(Clone, Debug)]
pub(super) struct Transmitter {
    pub(super) hops: Vec<FarSide>,
    opportunities: Option<Opportunities>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: u64,
    codel: codel::State,
    serving: Option<Serving>,
    /// When the bottleneck last became free.
    free_at: Instant,
    /// When the shaper before the air passes the next packet.
    shaped_until: Instant,
    rng: Rng,
}

/// What lies behind the bottleneck: delay, loss, and packets in flight.
#[derive(Clone, Debug)]
pub(super) struct FarSide {
    pub(super) params: DirectionParams,
    in_flight: VecDeque<InFlight>,
    /// When the last packet in flight is due without jitter: none overtakes it.
    last_due: Instant,
    jitter: Option<Jitter>,
    /// True if the channel of a Gilbert-Elliott loss is in the bad state.
    is_bad: bool,
}

/// The packet at the bottleneck.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serving {
    packet: PacketId,
    /// Index of its hop.
    pub(super) hop: usize,
    /// Its size, in bytes of IP.
    pub(super) ip_bytes: u32,
    /// Bytes of it that the bottleneck has not carried at `since`.
    left_bytes: f64,
    /// When it entered service, or its last try ended, or the rate changed.
    pub(super) since: Instant,
    /// Tries on the air so far.
    pub(super) tries: u8,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    packet: PacketId,
    hop: usize,
    ip_bytes: u32,
    arrived: Instant,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    packet: PacketId,
    due: Instant,
    tries: u8,
    dropped: Option<DropReason>,
}

impl FarSide {
    fn new(params: DirectionParams) -> FarSide {
        FarSide { params, in_flight: VecDeque::new(), last_due: Instant::ZERO, jitter: None, is_bad: false }
    }

    /// When the first packet in flight is due.
    pub(super) fn next_exit(&self) -> Option<Instant> {
        self.in_flight.front().map(|packet| packet.due)
    }

    /// A packet follows the others in flight at `from`, the end of its service.
    fn follow(&mut self, from: Instant, packet: PacketId, tries: u8, dropped: Option<DropReason>) {
        self.last_due = self.last_due.max(from + self.params.delay);
        let due = self.last_due + self.jitter.as_mut().map_or(Duration::ZERO, Jitter::next_delay);
        self.insert(InFlight { packet, due, tries, dropped });
    }

    /// A packet is lost at `now`, when the link goes down.
    fn drop_at(&mut self, now: Instant, packet: PacketId, tries: u8) {
        self.last_due = self.last_due.max(now);
        self.insert(InFlight { packet, due: self.last_due, tries, dropped: Some(DropReason::Down) });
    }

    /// In order of `due`: behind all others, except with jitter.
    fn insert(&mut self, packet: InFlight) {
        let later = self.in_flight.iter().rev().take_while(|other| other.due > packet.due).count();
        self.in_flight.insert(self.in_flight.len() - later, packet);
    }

    /// Removes the first packet in flight.
    pub(super) fn leave(&mut self, hop: Hop) -> Option<Exit> {
        self.in_flight.pop_front().map(|packet| Exit {
            packet: packet.packet,
            hop,
            at: packet.due,
            tries: packet.tries,
            dropped: packet.dropped,
        })
    }
}

impl Transmitter {
    pub(super) fn new(params: Vec<DirectionParams>, rng: Rng) -> Transmitter {
        let hops: Vec<FarSide> = params.into_iter().map(FarSide::new).collect();
        Transmitter {
            opportunities: hops.first().and_then(|hop| Opportunities::of(&hop.params.bottleneck, Instant::ZERO)),
            hops,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            codel: codel::State::default(),
            serving: None,
            free_at: Instant::ZERO,
            shaped_until: Instant::ZERO,
            rng,
        }
    }

    /// The parameters of the first hop: what the queue and the bottleneck go by.
    fn own(&self) -> &DirectionParams {
        &self.hops[0].params
    }

    pub(super) fn waiting(&self) -> (usize, u64) {
        (self.waiting.len(), self.waiting_bytes)
    }

    /// Accepts a packet for a hop; the transmitter has been advanced to `now`.
    pub(super) fn enter(
        &mut self,
        now: Instant,
        hop: usize,
        packet: PacketId,
        ip_bytes: u32,
    ) -> Result<(), DropReason> {
        if !self.has_room(ip_bytes) {
            return Err(DropReason::Queue);
        }
        if self.serving.is_none()
            && self.waiting.is_empty()
            && let Some(opportunities) = &mut self.opportunities
        {
            opportunities.skip_to(now);
        }
        self.waiting_bytes += u64::from(ip_bytes);
        self.waiting.push_back(Waiting { packet, hop, ip_bytes, arrived: now });
        if self.opportunities.is_none() {
            self.serve_next(self.free_at);
        }
        Ok(())
    }

    fn has_room(&self, ip_bytes: u32) -> bool {
        let in_flight: usize = self.hops.iter().map(|hop| hop.in_flight.len()).sum();
        if self.waiting.len() + in_flight >= MAX_HELD_PACKETS {
            return false;
        }
        if self.opportunities.is_none() && self.serving.is_none() {
            return true;
        }
        match self.own().queue {
            QueueLimit::Packets(limit) => self.waiting.len() < limit as usize,
            QueueLimit::Bytes(limit) => self.waiting_bytes + u64::from(ip_bytes) <= u64::from(limit),
        }
    }

    /// Advances the bottleneck to `now`; on the air, the medium does this.
    pub(super) fn advance(&mut self, now: Instant) {
        match self.own().bottleneck {
            Bottleneck::Rate { .. } => {
                while let Some(end) = self.service_end().filter(|end| *end <= now) {
                    self.pass(end);
                }
            }
            Bottleneck::Opportunities(_) => self.use_opportunities(now),
            Bottleneck::Ieee80211p(_) => {}
        }
    }

    /// When the packet in service will have passed a rate's bottleneck.
    fn service_end(&self) -> Option<Instant> {
        let Bottleneck::Rate { bit_s } = self.own().bottleneck else {
            return None;
        };
        let serving = self.serving.as_ref()?;
        (bit_s > 0.0).then(|| serving.since + seconds(serving.left_bytes * 8.0 / bit_s))
    }

    /// Mahimahi's rule: each opportunity carries [`CHANCE_BYTES`] of what is queued at
    /// its time, several small packets or a part of one; the rest is wasted.
    fn use_opportunities(&mut self, now: Instant) {
        while self.serving.is_some() || !self.waiting.is_empty() {
            let Some(at) = self.opportunities.as_mut().and_then(|opportunities| opportunities.take(now)) else {
                return;
            };
            let mut room = f64::from(CHANCE_BYTES);
            while room > 0.0 {
                self.serve_next(at);
                let Some(serving) = &mut self.serving else {
                    break;
                };
                let carried = serving.left_bytes.min(room);
                serving.left_bytes -= carried;
                room -= carried;
                if serving.left_bytes <= 0.0 {
                    self.pass(at);
                }
            }
        }
    }

    /// Moves the head of the queue into service, if that is free, not before `at` (nor
    /// before it arrived).
    fn serve_next(&mut self, at: Instant) {
        if self.serving.is_some() {
            return;
        }
        let head = match self.own().codel {
            None => self.waiting.pop_front(),
            Some(codel) => self.take_by_codel(codel, at),
        };
        let Some(head) = head else { return };
        self.waiting_bytes -= u64::from(head.ip_bytes);
        let mut since = head.arrived.max(at);
        if let Bottleneck::Ieee80211p(Channel { limit_bit_s, .. }) = self.own().bottleneck {
            since = since.max(self.shaped_until);
            self.shaped_until = since + seconds(f64::from(head.ip_bytes) * 8.0 / limit_bit_s);
        }
        self.serving = Some(Serving {
            packet: head.packet,
            hop: head.hop,
            ip_bytes: head.ip_bytes,
            left_bytes: f64::from(head.ip_bytes),
            since,
            tries: 0,
        });
    }

    /// The head of the queue that CoDel passes. What it drops leaves when it would have
    /// arrived, so that packets leave in order.
    fn take_by_codel(&mut self, codel: CoDel, at: Instant) -> Option<Waiting> {
        let now = self.waiting.front().map_or(at, |head| head.arrived.max(at));
        let (waiting, hops) = (&mut self.waiting, &mut self.hops);
        let backlog_bytes = Cell::new(self.waiting_bytes);
        let pop = || {
            let packet = waiting.pop_front()?;
            backlog_bytes.set(backlog_bytes.get() - u64::from(packet.ip_bytes));
            Some(Taken { packet, arrived: packet.arrived, backlog_bytes: backlog_bytes.get() })
        };
        let drop = |dropped: Waiting| hops[dropped.hop].follow(now, dropped.packet, 0, Some(DropReason::Codel));
        let head = self.codel.take(codel, now, pop, drop);
        self.waiting_bytes = backlog_bytes.get() + head.map_or(0, |head| u64::from(head.ip_bytes));
        head
    }

    /// The packet in service has passed the bottleneck at `end`.
    fn pass(&mut self, end: Instant) {
        let Some(serving) = &self.serving else { return };
        let hop = &mut self.hops[serving.hop];
        let lost = hop.params.loss.loses_next(&mut hop.is_bad, &mut self.rng);
        self.end_service(end, lost.then_some(DropReason::Loss));
    }

    fn end_service(&mut self, end: Instant, dropped: Option<DropReason>) {
        let Some(served) = self.serving.take() else {
            return;
        };
        self.free_at = end;
        self.hops[served.hop].follow(end, served.packet, served.tries.max(1), dropped);
        if self.opportunities.is_none() {
            self.serve_next(self.free_at);
        }
    }

    /// The channel and the packet that contends for it, if the bottleneck is the air.
    pub(super) fn head(&self) -> Option<(Channel, Serving)> {
        let serving = self.serving?;
        match self.hops[serving.hop].params.bottleneck {
            Bottleneck::Ieee80211p(channel) => Some((channel, serving)),
            _ => None,
        }
    }

    /// True if the bottleneck is the air.
    pub(super) fn on_air(&self) -> bool {
        matches!(self.own().bottleneck, Bottleneck::Ieee80211p(_))
    }

    /// A try of the packet in service ended.
    pub(super) fn end_try(&mut self, end: Instant, received: bool, tries: u8) {
        let Some(serving) = &mut self.serving else {
            return;
        };
        serving.tries += 1;
        serving.since = end;
        if received {
            self.pass(end);
        } else if serving.tries >= tries {
            self.end_service(end, Some(DropReason::Retries));
        }
    }

    /// The shortest delay of a hop.
    pub(super) fn delay(&self) -> Duration {
        self.hops.iter().map(|hop| hop.params.delay).min().unwrap_or_default()
    }

    /// When a packet may next leave, except over the air.
    pub(super) fn next_event(&self) -> Option<Instant> {
        let first = self.hops.iter().filter_map(FarSide::next_exit).min();
        if first.is_some() && self.hops.iter().all(|hop| hop.jitter.is_none()) {
            return first;
        }
        let end = match self.opportunities.as_ref() {
            Some(opportunities) if self.serving.is_some() || !self.waiting.is_empty() => opportunities.next(),
            _ => self.service_end(),
        };
        // With jitter the packet in service may overtake those in flight.
        end.map(|end| end + self.delay()).into_iter().chain(first).min()
    }

    /// Adds jitter to every hop.
    pub(super) fn set_jitter(&mut self, seed: u64, name: &str, params: JitterParams) {
        for (place, hop) in self.hops.iter_mut().enumerate() {
            hop.jitter = Some(Jitter::new(params, Rng::new(seed, &alloc::format!("{name} {place}"))));
        }
    }

    /// Changes the parameters of a hop from `now` on.
    pub(super) fn set(&mut self, now: Instant, hop: usize, params: DirectionParams) {
        if let (Some(serving), Bottleneck::Rate { bit_s }) = (&mut self.serving, &self.hops[0].params.bottleneck) {
            if *bit_s > 0.0 {
                let carried = bit_s * now.since(serving.since).as_secs_f64() / 8.0;
                serving.left_bytes = (serving.left_bytes - carried).max(0.0);
            }
            serving.since = serving.since.max(now);
        }
        let same_trace =
            self.opportunities.as_ref().is_some_and(|opportunities| opportunities.is_of(&params.bottleneck));
        if !same_trace {
            self.opportunities = Opportunities::of(&params.bottleneck, now);
        }
        self.hops[hop].params = params;
        if self.opportunities.is_none() {
            self.free_at = self.free_at.max(now);
            self.serve_next(self.free_at);
        }
    }

    /// Drops what has not passed the bottleneck.
    pub(super) fn clear(&mut self, now: Instant) {
        let served = self.serving.take().map(|served| (served.hop, served.packet, served.tries));
        let waiting = self.waiting.drain(..).map(|waiting| (waiting.hop, waiting.packet, 0));
        for (hop, packet, tries) in served.into_iter().chain(waiting) {
            self.hops[hop].drop_at(now, packet, tries);
        }
        self.waiting_bytes = 0;
        self.free_at = now;
    }
}

/// A duration in seconds, never rounded down.
fn seconds(seconds: f64) -> Duration {
    Duration::from_nanos(libm::ceil(seconds * 1e9) as u64)
}
