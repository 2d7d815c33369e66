//! What each path carries, beside the others: the rates of all subflows, summed over each path.
//!
//! An assessor observes one path; this is what it knows of the others.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::SEGMENT_BYTES;
use super::averages::Offered;
use super::stalls::MAX_SUBFLOWS;
use crate::path::{Carried, PathId, Transport};
use crate::recent::RecentMax;
use crate::time::{Duration, Instant};

/// Length of an interval.
const INTERVAL: Duration = Duration::from_millis(250);
/// Intervals over which a rate is taken: a second.
const INTERVALS: usize = 4;
/// A path is full in an interval in which this part of its samples is.
const FULL_SHARE: f64 = 0.75;
/// A rate is constant if no interval deviates from the mean by more than this part: a token bucket passes whole segments.
const DEVIATION: f64 = 0.5;
/// The same of half a second, in which a slow start at an RTT of 250 ms deviates by a third.
const HALF_DEVIATION: f64 = 0.25;
/// A path carries alone that sends this part of everything.
const ALONE: f64 = 0.95;
/// What is sent then counts as usual for so long.
const USUAL_FOR: Duration = Duration::from_secs(10);
/// Subflows that are gone are forgotten, with all others, after this time: each loses what one sample would have added.
const FORGET: Duration = Duration::from_secs(60);
/// What is received fills a path while this part of it, of a second, comes out of order: each hole lasts for an RTT. The few
/// losses of a radio let less.
const OUT_OF_ORDER_SHARE: f64 = 0.1;
/// A path is full, too, while packets wait in the network for so long; an interval suffices then to know its rate.
const QUEUE: Duration = Duration::from_millis(100);

/// A path, a connection, and a number of the peer's address.
type Key = (PathId, u32, u32);

/// Observes what all connections that are initiated here deliver. A path is judged in the direction in which all carry more.
#[derive(Debug, Default)]
pub struct Rates {
    /// What each had carried at its last sample; `None`: it is forgotten.
    subflows: BTreeMap<Key, Option<Counts>>,
    forgotten: Instant,
    began: Instant,
    paths: Vec<Sums>,
    usual: Usual,
}

/// The low half of the bytes acknowledged on a subflow, segments received beyond a hole (SACK), segments retransmitted, the
/// low half of the bytes received, and segments received out of order.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    acked: u32,
    sacked: u32,
    retransmitted: u32,
    received: u32,
    out_of_order: u32,
    /// When data arrived last.
    arrived: Instant,
}

/// What was carried over one path in each direction.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    sent: Sum,
    received: Sum,
}

/// What was carried over one path in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// The present interval, and the last ones.
    present: Present,
    recent: [Interval; INTERVALS],
    /// The highest rate, in bit/s: what the path delivers at most while it is not full.
    highest: RecentMax<f64, 30>,
}

/// Sums of the present interval.
#[derive(Clone, Copy, Debug, Default)]
struct Present {
    bytes: i64,
    /// Segments retransmitted, or received out of order.
    lost: u64,
    samples: u32,
    full: u32,
    /// Of the last sample of a full path, or in which data arrived.
    queued: Option<Duration>,
    /// The longest in which nothing arrived.
    pause: Duration,
}

/// What is sent while one path alone carries and is not full: of a sender that fills paths, and of one that needs several,
/// nothing is known.
#[derive(Debug, Default)]
struct Usual {
    /// Of the last such intervals without a break.
    present: Offered,
    known: Option<(Instant, f64)>,
}

impl Usual {
    /// Each path has sent so much in an interval that has ended.
    fn follow(&mut self, now: Instant, length: Duration, sent: impl Iterator<Item = Interval>) {
        let (mut all_bit_s, mut most_bit_s, mut is_any_full) = (0.0, 0.0_f64, false);
        for Interval { bit_s, is_full, .. } in sent {
            (all_bit_s, most_bit_s) = (all_bit_s + bit_s, most_bit_s.max(bit_s));
            is_any_full |= is_full;
        }
        if is_any_full || most_bit_s < ALONE * all_bit_s {
            self.present = Offered::default();
            return;
        }
        self.present.follow(length, all_bit_s * length.as_secs_f64());
        self.known = self.present.bit_s().map(|bit_s| (now, bit_s)).or(self.known);
    }

    fn bit_s(&self, now: Instant) -> Option<f64> {
        self.known.filter(|(at, _)| now.since(*at) < USUAL_FOR).map(|(_, bit_s)| bit_s)
    }
}

/// An interval that has ended.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    bit_s: f64,
    bytes: i64,
    lost_bytes: i64,
    is_full: bool,
    queued: Option<Duration>,
    pause: Duration,
}

impl Sums {
    fn observe(&mut self, last: Option<Counts>, counts: Counts, transport: &Transport) {
        let present = &mut self.sent.present;
        if let Some(last) = last {
            present.bytes += i64::from(counts.acked.wrapping_sub(last.acked));
            present.bytes += (i64::from(counts.sacked) - i64::from(last.sacked)) * i64::from(SEGMENT_BYTES);
            present.lost += u64::from(counts.retransmitted - last.retransmitted);
            let received = i64::from(counts.received.wrapping_sub(last.received));
            self.received.present.bytes += received;
            self.received.present.lost += u64::from(counts.out_of_order - last.out_of_order);
            if received > 0 {
                let queued = |rtt: Duration| transport.min_rtt.map(|least| rtt.saturating_sub(least));
                self.received.present.queued = transport.receive_rtt.and_then(queued);
                self.received.present.pause = self.received.present.pause.max(counts.arrived.since(last.arrived));
            }
        }
        if transport.backup {
            return;
        }
        present.samples += 1;
        let queued = transport.min_rtt.map(|least| transport.rtt.saturating_sub(least));
        let is_queued = transport.unacked > 0 && queued.is_some_and(|queued| queued >= QUEUE);
        if is_queued || (transport.cwnd > 0 && transport.is_full()) {
            present.full += 1;
            present.queued = queued;
        }
    }

    /// Ends an interval of this length.
    fn end(&mut self, now: Instant, length: Duration) {
        let Present { samples, full, .. } = self.sent.present;
        self.sent.end(now, length, samples > 0 && f64::from(full) >= FULL_SHARE * f64::from(samples));
        let before = &self.received.recent[1..];
        // The receiver's RTT includes the pauses of the sender.
        let present = &mut self.received.present;
        let pause = before.iter().map(|interval| interval.pause).fold(present.pause, Duration::max);
        present.queued = present.queued.map(|queued| queued.saturating_sub(pause));
        let Present { bytes, lost, queued, .. } = *present;
        let lost_bytes: i64 = before.iter().map(|interval| interval.lost_bytes).sum();
        let all_bytes: i64 = before.iter().map(|interval| interval.bytes).sum();
        let out_of_order = (lost_bytes + lost as i64 * i64::from(SEGMENT_BYTES)) as f64;
        let is_lossy = out_of_order >= OUT_OF_ORDER_SHARE * (all_bytes + bytes) as f64;
        self.received.end(now, length, bytes > 0 && (is_lossy || queued.is_some_and(|queued| queued >= QUEUE)));
    }
}

impl Sum {
    /// Ends an interval of this length.
    fn end(&mut self, now: Instant, length: Duration, is_full: bool) {
        let Present { bytes, lost, queued, pause, .. } = core::mem::take(&mut self.present);
        let bit_s = bytes.max(0) as f64 * 8.0 / length.as_secs_f64();
        let lost_bytes = lost as i64 * i64::from(SEGMENT_BYTES);
        self.recent.rotate_left(1);
        self.recent[INTERVALS - 1] = Interval { bit_s, bytes, lost_bytes, is_full, queued, pause };
        self.highest.note(now, bit_s);
    }

    /// The last intervals in which the path was full at a constant rate: all, two, or one with a queue.
    fn constant(&self) -> &[Interval] {
        let is_constant = |intervals: &[Interval], deviation: f64| {
            let mean = mean(intervals);
            let is_near = |interval: &Interval| (interval.bit_s - mean).abs() <= deviation * mean;
            mean > 0.0 && intervals.iter().all(|interval| interval.is_full && is_near(interval))
        };
        let (half, last) = (self.last_half(), &self.recent[INTERVALS - 1..]);
        let is_queued = last[0].queued.is_some_and(|queued| queued >= QUEUE);
        if is_constant(&self.recent, DEVIATION) {
            &self.recent
        } else if is_constant(half, HALF_DEVIATION) {
            half
        } else if is_constant(last, 0.0) && is_queued {
            last
        } else {
            &[]
        }
    }

    /// What the path delivers at most: while it is full, what it delivers now; else nothing tells but the recent past.
    fn capacity_bit_s(&self) -> f64 {
        let last = self.last_half();
        match self.recent[INTERVALS - 1].is_full {
            true => last.iter().map(|interval| interval.bit_s).fold(0.0, f64::max),
            false => self.highest.max().unwrap_or(0.0),
        }
    }

    /// The intervals of the last half second.
    fn last_half(&self) -> &[Interval] {
        &self.recent[INTERVALS / 2..]
    }

    /// Bytes of the last intervals.
    fn bytes(&self) -> i64 {
        self.recent.iter().map(|interval| interval.bytes).sum()
    }

    fn carried(&self, fastest_other_bit_s: f64) -> Carried {
        let constant = self.constant();
        let bytes = self.bytes();
        let lost_bytes: i64 = self.recent.iter().map(|interval| interval.lost_bytes).sum();
        Carried {
            bit_s: mean(if constant.is_empty() { &self.recent } else { constant }),
            is_full: self.recent.iter().all(|interval| interval.is_full),
            constant_for: INTERVAL * constant.len() as u32,
            loss: lost_bytes as f64 / (bytes.max(0) + lost_bytes).max(1) as f64,
            queued: self.recent[INTERVALS - 1].queued,
            fastest_other_bit_s,
            ..Carried::default()
        }
    }
}

/// Mean rate of intervals, in bit/s.
fn mean(intervals: &[Interval]) -> f64 {
    intervals.iter().map(|interval| interval.bit_s).sum::<f64>() / intervals.len() as f64
}

impl Rates {
    /// Processes the transport statistics of a subflow; returns whether an interval ends, after which [what each path
    /// carried](Self::carried) is new.
    pub fn observe(&mut self, now: Instant, path: PathId, transport: &Transport) -> bool {
        if transport.accepted {
            return false;
        }
        let place = usize::from(path.0);
        if self.paths.len() <= place {
            self.paths.resize(place + 1, Sums::default());
        }
        let has_ended = self.end_interval(now);
        let (last, counts) = self.counts(now, path, transport);
        self.paths[place].observe(last, counts, transport);
        has_ended
    }

    /// What a path carried in the last intervals, beside the other paths.
    pub fn carried(&self, path: PathId) -> Carried {
        let place = usize::from(path.0);
        let bytes = |of: fn(&Sums) -> &Sum| self.paths.iter().map(|sums| of(sums).bytes().max(0)).sum::<i64>() as f64;
        let (sent, received) = (bytes(|sums| &sums.sent), bytes(|sums| &sums.received));
        let received_share = (sent + received > 0.0).then(|| received / (sent + received));
        let sum = |sums: &Sums| if received > sent { sums.received } else { sums.sent };
        let others = (0..self.paths.len()).filter(|other| *other != place);
        let fastest_other = others.map(|other| sum(&self.paths[other]).capacity_bit_s()).fold(0.0, f64::max);
        let carried = self.paths.get(place).map_or(Sum::default(), sum).carried(fastest_other);
        let sent_of_usual = self.sent_of_usual(place);
        Carried { received_share, sent_of_usual, ..carried }
    }

    fn sent_of_usual(&self, place: usize) -> Option<[f64; 2]> {
        let is_full = self.paths.get(place)?.sent.last_half().iter().all(|interval| interval.is_full);
        let sent = self.paths.iter().map(|sums| mean(sums.sent.last_half())).sum();
        Some([sent, self.usual.bit_s(self.began).filter(|_| is_full)?])
    }

    /// What the subflow had carried at its last sample, and has now.
    fn counts(&mut self, now: Instant, path: PathId, transport: &Transport) -> (Option<Counts>, Counts) {
        if self.subflows.len() >= MAX_SUBFLOWS {
            self.subflows.clear();
            self.forgotten = now;
        } else if now.since(self.forgotten) > FORGET {
            self.subflows.retain(|_, last| last.take().is_some());
            self.forgotten = now;
        }
        let Transport { bytes_acked, sacked, retransmitted, bytes_received, out_of_order, .. } = *transport;
        let (acked, received) = (bytes_acked as u32, bytes_received as u32);
        let key = (path, transport.token, number_of(transport.peer));
        let before = self.subflows.get(&key).copied().flatten();
        let arrived = before.filter(|last| last.received == received).map_or(now, |last| last.arrived);
        let counts = Counts { acked, sacked, retransmitted, received, out_of_order, arrived };
        let last = self.subflows.insert(key, Some(counts)).flatten();
        // Another subflow in the place of a closed one counts from 0.
        let is_another = |last: &Counts| {
            let is_less = |now: u32, before: u32| now.wrapping_sub(before) > u32::MAX / 2;
            is_less(counts.acked, last.acked)
                || is_less(counts.received, last.received)
                || counts.retransmitted < last.retransmitted
                || counts.out_of_order < last.out_of_order
        };
        (last.map(|last| if is_another(&last) { Counts { arrived, ..Counts::default() } } else { last }), counts)
    }

    fn end_interval(&mut self, now: Instant) -> bool {
        let length = now.since(self.began);
        if length < INTERVAL {
            return false;
        }
        self.began = now;
        if length >= INTERVAL * 2 {
            // Nothing was measured meanwhile.
            let forget = |sum: &mut Sum| *sum = Sum { highest: sum.highest, ..Sum::default() };
            self.paths.iter_mut().flat_map(|sums| [&mut sums.sent, &mut sums.received]).for_each(forget);
            return false;
        }
        self.paths.iter_mut().for_each(|sums| sums.end(now, length));
        self.usual.follow(now, length, self.paths.iter().map(|sums| sums.sent.recent[INTERVALS - 1]));
        true
    }
}

/// A number of an address and port, by which the subflows of a connection differ (FNV-1a).
fn number_of(peer: SocketAddr) -> u32 {
    let add = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let address = match peer.ip() {
        IpAddr::V4(ip) => ip.octets().iter().fold(0x811c_9dc5, add),
        IpAddr::V6(ip) => ip.octets().iter().fold(0x811c_9dc5, add),
    };
    peer.port().to_be_bytes().iter().fold(address, add)
}

#[cfg(test)]
mod tests;
