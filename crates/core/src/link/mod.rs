//! One model of a link, for the emulator and the simulator.
//!
//! A [`Link`] accepts packets as they enter and returns them as they leave, at times
//! that do not depend on when it is polled: the transit of a packet is computed in the
//! link's own time (queue, bottleneck, loss, delay), and a late call gets the same
//! result. Only [`Link::set`] and [`Link::set_on`] split time.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::rng::Rng;
use crate::time::{Duration, Instant};

pub(crate) mod codel;
pub mod delay_steps;
mod drop_reason;
pub mod handover_gap;
pub mod ieee80211p;
pub mod jitter;
mod loss;
pub mod mahimahi;
mod middlebox;
pub mod policer;
mod shared_medium;
#[cfg(test)]
mod tests;
mod transmitter;

pub use drop_reason::DropReason;
use jitter::JitterParams;
pub use loss::{GilbertElliott, Loss};
pub use middlebox::Middlebox;
use policer::{Policer, PolicerParams};
use shared_medium::SharedMedium;
use transmitter::Transmitter;

/// Maximum number of packets in one direction, queued and in flight together: what 200
/// ms at 300,000 packets a second need. Beyond it the queue is full, whatever its own
/// limit.
pub const MAX_HELD_PACKETS: usize = 65_536;

/// Direction over a link, as seen from the vehicle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the vehicle.
    Up,
    /// To the vehicle.
    Down,
}

impl Direction {
    /// Both directions.
    pub const BOTH: [Direction; 2] = [Direction::Up, Direction::Down];

    /// `up` or `down`, as in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Direction::Up => "up",
            Direction::Down => "down",
        }
    }
}

/// One direction between the vehicle and a station of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// Index of the station: 0 unless several share the link.
    pub station: usize,
    /// The direction.
    pub direction: Direction,
}

impl From<Direction> for Hop {
    fn from(direction: Direction) -> Hop {
        Hop { station: 0, direction }
    }
}

/// How one direction of a link treats packets. Every field may change while packets are
/// in flight. A new rate applies at once, also to the rest of the packet in service
/// (otherwise a moment at 1 bit/s would block the link for hours); a try on the air
/// ends as it began; delay and loss apply to packets that have not passed the
/// bottleneck; a new queue limit applies to packets that enter.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionParams {
    /// What limits the rate.
    pub bottleneck: Bottleneck,
    /// One-way delay after the bottleneck.
    pub delay: Duration,
    /// Random loss after the bottleneck. The state of its channel persists across a
    /// change.
    pub loss: Loss,
    /// Limit of the queue for the bottleneck.
    pub queue: QueueLimit,
    /// Drops packets that have waited too long; `None`: drop-tail.
    pub codel: Option<CoDel>,
}

/// CoDel (RFC 8289), within the queue's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// Target of the queueing delay (RFC 8289 §4.4: 5 ms).
    pub target: Duration,
    /// How long the delay may exceed it (RFC 8289 §4.3: 100 ms).
    pub interval: Duration,
}

/// What limits the rate of one direction.
#[derive(Clone, Debug, PartialEq)]
pub enum Bottleneck {
    /// A rate in bits of IP packet a second; at 0 nothing passes, at infinity
    /// everything at once.
    Rate {
        /// Rate in bit/s.
        bit_s: f64,
    },
    /// Mahimahi's trace: each entry (ms since the start of the trace, not decreasing)
    /// is one opportunity to send 1500 bytes; the trace repeats after its last entry.
    Opportunities(Arc<Vec<u64>>),
    /// An 802.11p unicast exchange with retries, each costing air time.
    Ieee80211p(Channel),
}

/// State of the 802.11p channel between the vehicle and a station.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Channel {
    /// PHY rate.
    pub rate: ieee80211p::PhyRate,
    /// Mean signal-to-noise ratio, in dB, before fading.
    pub mean_snr_db: f64,
    /// Nakagami m (≥ 0.3) of the fading drawn for each try; infinity for none.
    pub nakagami_m: f64,
    /// Tries before a packet is dropped (1 to 7).
    pub tries: u8,
    /// Part of the air time (0 to 1) that other stations leave to this link: 1 if there
    /// are none; a value below [`Channel::LEAST_SHARE`] counts as that.
    pub share: f64,
    /// Rate at which packets reach the air, in bits of IP packet a second: a shaper
    /// after the queue; infinity for none.
    pub limit_bit_s: f64,
}

impl Channel {
    /// The minimum share: a try then waits a hundred times its length.
    pub const LEAST_SHARE: f64 = 0.01;
}

/// Limit of a queue. The packet in service does not count, except with
/// [`Bottleneck::Opportunities`] until an opportunity begins to carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// At most this many packets.
    Packets(u32),
    /// At most this many bytes of IP packet.
    Bytes(u32),
}

/// Identifier of a packet within a link, chosen by the caller and returned to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(pub u64);

/// A packet leaves the link; once for each accepted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The caller's identifier of it.
    pub packet: PacketId,
    /// Where it went.
    pub hop: Hop,
    /// When it was due to arrive; never later than the `now` of the poll.
    pub at: Instant,
    /// Tries on the air (802.11p), else 1; 0 if it was never sent.
    pub tries: u8,
    /// Why it did not arrive, or `None` if it did.
    pub dropped: Option<DropReason>,
}

/// A link of the vehicle: both directions, to one station or to several that share the
/// air and the vehicle's queue. `now` never decreases from call to call.
#[derive(Clone, Debug)]
pub struct Link {
    /// The vehicle's, then each station's.
    transmitters: Vec<Transmitter>,
    medium: SharedMedium,
    policer: Option<Policer>,
    middlebox: Option<Middlebox>,
    on: bool,
}

impl Link {
    /// A link that is on from the start of the run. `name` and `seed` select its random
    /// streams.
    pub fn new(seed: u64, name: &str, up: DirectionParams, down: DirectionParams) -> Link {
        Link::shared(seed, name, [(name, [up, down])])
    }

    /// A link to several stations, each with its name and parameters (up, down): one
    /// 802.11p channel, on which the vehicle has one queue for all of them, with the
    /// limit of the first one's parameters, and each station has its own. At least one
    /// station; several only with [`Bottleneck::Ieee80211p`].
    pub fn shared<'a>(
        seed: u64,
        name: &str,
        stations: impl IntoIterator<Item = (&'a str, [DirectionParams; 2])>,
    ) -> Link {
        let rng = |name: &str, part: &str| Rng::new(seed, &alloc::format!("link.{name}.{part}"));
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for (station, [to, from]) in stations {
            up.push(to);
            down.push(Transmitter::new(alloc::vec![from], rng(station, "down")));
        }
        let mut transmitters = alloc::vec![Transmitter::new(up, rng(name, "up"))];
        transmitters.append(&mut down);
        Link { transmitters, medium: SharedMedium::new(rng(name, "air")), policer: None, middlebox: None, on: true }
    }

    /// Drops what exceeds a volume and then a rate, before the queue.
    pub fn set_policer(&mut self, params: PolicerParams) {
        self.policer = Some(Policer::new(params));
    }

    /// Puts a middlebox behind the link.
    pub fn set_middlebox(&mut self, middlebox: Middlebox) {
        self.middlebox = Some(middlebox);
    }

    /// Whether it has a middlebox.
    pub fn has_middlebox(&self) -> bool {
        self.middlebox.is_some()
    }

    /// Applies the middlebox to a packet that has [left](Link::poll) the link: only its owner has the bytes.
    ///
    /// # Errors
    /// [`DropReason::Middlebox`]: it does not arrive.
    pub fn pass_middlebox(&self, packet: &mut [u8]) -> Result<(), DropReason> {
        let passes = self.middlebox.is_none_or(|middlebox| middlebox.passes(packet));
        if passes { Ok(()) } else { Err(DropReason::Middlebox) }
    }

    /// Lets later packets overtake some; `seed` and `name` select its random streams. Not on the air of 802.11p.
    pub fn set_jitter(&mut self, seed: u64, name: &str, params: JitterParams) {
        for (place, transmitter) in self.transmitters.iter_mut().enumerate() {
            transmitter.set_jitter(seed, &alloc::format!("jitter {name} {place}"), params);
        }
    }

    /// A packet of `ip_bytes` enters at `now`.
    ///
    /// # Errors
    /// The reason of the drop ([`DropReason::Queue`], [`DropReason::Policer`] or [`DropReason::Down`]);
    /// such a packet has left, no [`Exit`] follows.
    pub fn send(
        &mut self,
        now: Instant,
        hop: impl Into<Hop>,
        packet: PacketId,
        ip_bytes: u32,
    ) -> Result<(), DropReason> {
        if !self.on {
            return Err(DropReason::Down);
        }
        self.advance(now);
        let of = hop.into();
        if self.policer.as_mut().is_some_and(|policer| !policer.passes(now, of.direction, ip_bytes)) {
            return Err(DropReason::Policer);
        }
        let (transmitter, hop) = place(of);
        self.transmitters[transmitter].enter(now, hop, packet, ip_bytes)?;
        self.advance(now);
        Ok(())
    }

    /// The next packet that has left by `now`, if any, in order of time.
    pub fn poll(&mut self, now: Instant) -> Option<Exit> {
        self.advance(now);
        let mut first: Option<(Instant, usize, usize)> = None;
        for (transmitter, sender) in self.transmitters.iter().enumerate() {
            for (hop, far) in sender.hops.iter().enumerate() {
                let due = far.next_exit().filter(|at| *at <= now);
                if let Some(at) = due.filter(|at| first.is_none_or(|(earliest, ..)| *at < earliest)) {
                    first = Some((at, transmitter, hop));
                }
            }
        }
        let (_, transmitter, hop) = first?;
        let of = match transmitter {
            0 => Hop { station: hop, direction: Direction::Up },
            _ => Hop { station: transmitter - 1, direction: Direction::Down },
        };
        self.transmitters[transmitter].hops[hop].leave(of)
    }

    /// When to poll again if nothing is sent or set before; `None`: never.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let own = self.transmitters.iter().filter_map(Transmitter::next_event);
        own.chain(self.medium.next_event(&self.transmitters)).min()
    }

    /// Changes how a hop treats packets from `now` on. Mahimahi's trace begins at `now`
    /// unless it is the same `Arc` as before.
    pub fn set(&mut self, now: Instant, hop: impl Into<Hop>, params: DirectionParams) {
        self.advance(now);
        let (place, hop) = place(hop.into());
        let transmitter = &mut self.transmitters[place];
        transmitter.set(now, hop, params);
        if !transmitter.on_air() {
            self.medium.abandon(place);
        }
        self.advance(now);
    }

    /// All hops: of each station up, then down.
    pub fn hops(&self) -> impl Iterator<Item = Hop> + use<> {
        let stations = 0..self.transmitters.len() - 1;
        stations.flat_map(|station| Direction::BOTH.map(|direction| Hop { station, direction }))
    }

    /// The parameters of a hop.
    pub fn params(&self, hop: impl Into<Hop>) -> &DirectionParams {
        let (transmitter, hop) = place(hop.into());
        &self.transmitters[transmitter].hops[hop].params
    }

    /// Turns the link on or off at `now`. While off, it accepts nothing, and packets
    /// that have not passed the bottleneck are dropped ([`DropReason::Down`]); those
    /// that have passed it still arrive.
    pub fn set_on(&mut self, now: Instant, on: bool) {
        self.advance(now);
        self.on = on;
        if !on {
            for (place, transmitter) in self.transmitters.iter_mut().enumerate() {
                self.medium.abandon(place);
                transmitter.clear(now);
            }
        }
    }

    /// 802.11p: another transmission (a CAM) takes the air for `air_time` as soon as it
    /// is free. Returns when it ends.
    pub fn occupy(&mut self, now: Instant, air_time: Duration) -> Instant {
        self.advance(now);
        self.medium.occupy(now, air_time)
    }

    /// Air time taken since the start of the run by the tries of all transmitters and by
    /// [`occupy`](Link::occupy), each from its DIFS to its end, without the waiting
    /// before. A try counts in full once it is this link's turn.
    pub fn air_used(&self) -> Duration {
        self.medium.used()
    }

    /// Packets and bytes queued for the bottleneck of a direction; upwards to all
    /// stations together.
    pub fn waiting(&self, hop: impl Into<Hop>) -> (usize, u64) {
        self.transmitters[place(hop.into()).0].waiting()
    }

    fn advance(&mut self, now: Instant) {
        for transmitter in &mut self.transmitters {
            transmitter.advance(now);
        }
        self.medium.advance(now, &mut self.transmitters);
    }
}

/// Indices of a hop's transmitter and of the hop within it.
fn place(hop: Hop) -> (usize, usize) {
    match hop.direction {
        Direction::Up => (0, hop.station),
        Direction::Down => (hop.station + 1, 0),
    }
}
