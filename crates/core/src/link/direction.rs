//! One direction of a link: packets queued, in service and in flight.

use alloc::collections::VecDeque;
use core::cell::Cell;

use super::codel::{self, Taken};
use super::mahimahi::{CHANCE_BYTES, Opportunities};
use super::{
    Bottleneck, Channel, CoDel, Direction, DirectionParams, DropReason, Exit, MAX_HELD_PACKETS, PacketId, QueueLimit,
};
use crate::rng::Rng;
use crate::time::{Duration, Instant};

/// One direction.
#[derive(Clone, Debug)]
pub(super) struct LinkDirection {
    params: DirectionParams,
    opportunities: Option<Opportunities>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: u64,
    codel: codel::State,
    serving: Option<Serving>,
    /// When the bottleneck last became free.
    free_at: Instant,
    in_flight: VecDeque<InFlight>,
    /// When the last packet in flight is due: none overtakes it.
    last_due: Instant,
    /// True if the channel of a Gilbert-Elliott loss is in the bad state.
    is_bad: bool,
    rng: Rng,
}

/// The packet at the bottleneck.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serving {
    packet: PacketId,
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

impl LinkDirection {
    pub(super) fn new(params: DirectionParams, rng: Rng) -> LinkDirection {
        LinkDirection {
            opportunities: Opportunities::of(&params.bottleneck, Instant::ZERO),
            params,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            codel: codel::State::default(),
            serving: None,
            free_at: Instant::ZERO,
            in_flight: VecDeque::new(),
            last_due: Instant::ZERO,
            is_bad: false,
            rng,
        }
    }

    pub(super) fn params(&self) -> &DirectionParams {
        &self.params
    }

    pub(super) fn waiting(&self) -> (usize, u64) {
        (self.waiting.len(), self.waiting_bytes)
    }

    /// Accepts a packet; the direction has been advanced to `now`.
    pub(super) fn enter(&mut self, now: Instant, packet: PacketId, ip_bytes: u32) -> Result<(), DropReason> {
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
        self.waiting.push_back(Waiting { packet, ip_bytes, arrived: now });
        if self.opportunities.is_none() {
            self.serve_next(self.free_at);
        }
        Ok(())
    }

    fn has_room(&self, ip_bytes: u32) -> bool {
        if self.waiting.len() + self.in_flight.len() >= MAX_HELD_PACKETS {
            return false;
        }
        if self.opportunities.is_none() && self.serving.is_none() {
            return true;
        }
        match self.params.queue {
            QueueLimit::Packets(limit) => self.waiting.len() < limit as usize,
            QueueLimit::Bytes(limit) => self.waiting_bytes + u64::from(ip_bytes) <= u64::from(limit),
        }
    }

    /// Advances the bottleneck to `now`; on the air, the medium does this.
    pub(super) fn advance(&mut self, now: Instant) {
        match self.params.bottleneck {
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
        let Bottleneck::Rate { bit_s } = self.params.bottleneck else {
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
        let head = match self.params.codel {
            None => self.waiting.pop_front(),
            Some(codel) => self.take_by_codel(codel, at),
        };
        let Some(head) = head else { return };
        self.waiting_bytes -= u64::from(head.ip_bytes);
        self.serving = Some(Serving {
            packet: head.packet,
            ip_bytes: head.ip_bytes,
            left_bytes: f64::from(head.ip_bytes),
            since: head.arrived.max(at),
            tries: 0,
        });
    }

    /// The head of the queue that CoDel passes. What it drops leaves when it would have
    /// arrived, so that packets leave in order.
    fn take_by_codel(&mut self, codel: CoDel, at: Instant) -> Option<Waiting> {
        let now = self.waiting.front().map_or(at, |head| head.arrived.max(at));
        let (waiting, in_flight) = (&mut self.waiting, &mut self.in_flight);
        let backlog_bytes = Cell::new(self.waiting_bytes);
        let due = self.last_due.max(now + self.params.delay);
        let pop = || {
            let packet = waiting.pop_front()?;
            backlog_bytes.set(backlog_bytes.get() - u64::from(packet.ip_bytes));
            Some(Taken { packet, arrived: packet.arrived, backlog_bytes: backlog_bytes.get() })
        };
        let drop = |packet: Waiting| {
            self.last_due = due;
            in_flight.push_back(InFlight { packet: packet.packet, due, tries: 0, dropped: Some(DropReason::Codel) });
        };
        let head = self.codel.take(codel, now, pop, drop);
        self.waiting_bytes = backlog_bytes.get() + head.map_or(0, |head| u64::from(head.ip_bytes));
        head
    }

    /// The packet in service has passed the bottleneck at `end`.
    fn pass(&mut self, end: Instant) {
        let lost = self.params.loss.loses_next(&mut self.is_bad, &mut self.rng);
        self.end_service(end, lost.then_some(DropReason::Loss));
    }

    fn end_service(&mut self, end: Instant, dropped: Option<DropReason>) {
        let Some(served) = self.serving.take() else {
            return;
        };
        self.free_at = end;
        self.last_due = self.last_due.max(end + self.params.delay);
        self.in_flight.push_back(InFlight {
            packet: served.packet,
            due: self.last_due,
            tries: served.tries.max(1),
            dropped,
        });
        if self.opportunities.is_none() {
            self.serve_next(self.free_at);
        }
    }

    /// The channel and the packet that contends for it, if this direction is on the
    /// air.
    pub(super) fn head(&self) -> Option<(Channel, Serving)> {
        match self.params.bottleneck {
            Bottleneck::Ieee80211p(channel) => self.serving.map(|serving| (channel, serving)),
            _ => None,
        }
    }

    /// True if the bottleneck is the air.
    pub(super) fn on_air(&self) -> bool {
        matches!(self.params.bottleneck, Bottleneck::Ieee80211p(_))
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

    pub(super) fn delay(&self) -> Duration {
        self.params.delay
    }

    /// When the first packet in flight is due.
    pub(super) fn next_exit(&self) -> Option<Instant> {
        self.in_flight.front().map(|packet| packet.due)
    }

    /// Removes the first packet in flight.
    pub(super) fn leave(&mut self, direction: Direction) -> Option<Exit> {
        self.in_flight.pop_front().map(|packet| Exit {
            packet: packet.packet,
            direction,
            at: packet.due,
            tries: packet.tries,
            dropped: packet.dropped,
        })
    }

    /// When a packet may next leave, except over the air.
    pub(super) fn next_event(&self) -> Option<Instant> {
        self.next_exit().or_else(|| {
            let end = match self.opportunities.as_ref() {
                Some(opportunities) if self.serving.is_some() || !self.waiting.is_empty() => opportunities.next(),
                _ => self.service_end(),
            };
            end.map(|end| end + self.params.delay)
        })
    }

    pub(super) fn set(&mut self, now: Instant, params: DirectionParams) {
        if let (Some(serving), Bottleneck::Rate { bit_s }) = (&mut self.serving, &self.params.bottleneck) {
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
        self.params = params;
        if self.opportunities.is_none() {
            self.free_at = self.free_at.max(now);
            self.serve_next(self.free_at);
        }
    }

    /// Drops what has not passed the bottleneck.
    pub(super) fn clear(&mut self, now: Instant) {
        let due = self.last_due.max(now);
        let served = self.serving.take().map(|packet| (packet.packet, packet.tries));
        let waiting = self.waiting.drain(..).map(|packet| (packet.packet, 0));
        for (packet, tries) in served.into_iter().chain(waiting) {
            self.in_flight.push_back(InFlight { packet, due, tries, dropped: Some(DropReason::Down) });
        }
        self.waiting_bytes = 0;
        self.last_due = due;
        self.free_at = now;
    }
}

/// A duration in seconds, never rounded down.
fn seconds(seconds: f64) -> Duration {
    Duration::from_nanos(libm::ceil(seconds * 1e9) as u64)
}
