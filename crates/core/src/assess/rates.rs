//! What each path carries, beside the others: the rates of all subflows, summed over each path.
//!
//! An assessor observes one path; this is what it knows of the others.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::stalls::MAX_SUBFLOWS;
use crate::path::{Carried, PathId, Sample, SampleKind, Transport};
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
/// The highest rate of a path that is not full counts for one to two times this time.
const MEMORY: Duration = Duration::from_secs(30);
/// Subflows that are gone are forgotten, with all others, after this time: each loses what one sample would have added.
const FORGET: Duration = Duration::from_secs(60);

/// Payload of a full MPTCP segment, in bytes.
const SEGMENT_BYTES: i64 = 1424;
/// A path is full, too, while packets wait in the network for so long; an interval suffices then to know its rate.
const QUEUE: Duration = Duration::from_millis(100);

/// A path, a connection, and a number of the peer's address.
type Key = (PathId, u32, u32);

/// Observes what all connections that are initiated here deliver.
#[derive(Debug, Default)]
pub struct Rates {
    /// What each had carried at its last sample; `None`: it is forgotten.
    subflows: BTreeMap<Key, Option<Counts>>,
    forgotten: Instant,
    began: Instant,
    paths: Vec<Sum>,
}

/// The low half of the bytes acknowledged on a subflow, segments received beyond a hole (SACK), and segments retransmitted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    acked: u32,
    sacked: u32,
    retransmitted: u32,
}

/// What was carried over one path.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// The present interval, and the last ones.
    present: Present,
    recent: [Interval; INTERVALS],
    highest: RecentHighest,
}

/// Sums of the present interval.
#[derive(Clone, Copy, Debug, Default)]
struct Present {
    bytes: i64,
    retransmitted: u64,
    samples: u32,
    full: u32,
    /// Of the last sample of a full path.
    queued: Option<Duration>,
}

/// An interval that has ended.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    bit_s: f64,
    bytes: i64,
    lost_bytes: i64,
    is_full: bool,
    queued: Option<Duration>,
}

/// The highest value of the recent past.
#[derive(Clone, Copy, Debug, Default)]
struct RecentHighest {
    values: [f64; 2],
    since: Instant,
}

impl RecentHighest {
    fn note(&mut self, now: Instant, value: f64) {
        if now.since(self.since) > MEMORY {
            (self.values, self.since) = ([0.0, self.values[0]], now);
        }
        self.values[0] = self.values[0].max(value);
    }

    fn value(&self) -> f64 {
        self.values[0].max(self.values[1])
    }
}

impl Sum {
    fn observe(&mut self, last: Option<Counts>, counts: Counts, transport: &Transport) {
        let present = &mut self.present;
        if let Some(last) = last {
            present.bytes += i64::from(counts.acked.wrapping_sub(last.acked));
            present.bytes += (i64::from(counts.sacked) - i64::from(last.sacked)) * SEGMENT_BYTES;
            present.retransmitted += u64::from(counts.retransmitted - last.retransmitted);
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
        let Present { bytes, retransmitted, samples, full, queued } = core::mem::take(&mut self.present);
        let is_full = samples > 0 && f64::from(full) >= FULL_SHARE * f64::from(samples);
        let bit_s = bytes.max(0) as f64 * 8.0 / length.as_secs_f64();
        let lost_bytes = retransmitted as i64 * SEGMENT_BYTES;
        self.recent.rotate_left(1);
        self.recent[INTERVALS - 1] = Interval { bit_s, bytes, lost_bytes, is_full, queued };
        self.highest.note(now, bit_s);
    }

    /// The last intervals in which the path was full at a constant rate: all, two, or one with a queue.
    fn constant(&self) -> &[Interval] {
        let is_constant = |intervals: &[Interval], deviation: f64| {
            let mean = mean(intervals);
            let is_near = |interval: &Interval| (interval.bit_s - mean).abs() <= deviation * mean;
            mean > 0.0 && intervals.iter().all(|interval| interval.is_full && is_near(interval))
        };
        let (half, last) = (&self.recent[INTERVALS / 2..], &self.recent[INTERVALS - 1..]);
        let is_queued = last[0].queued.is_some_and(|queued| queued >= QUEUE);
        match () {
            () if is_constant(&self.recent, DEVIATION) => &self.recent,
            () if is_constant(half, HALF_DEVIATION) => half,
            () if is_constant(last, 0.0) && is_queued => last,
            () => &[],
        }
    }

    /// What the path delivers at most: while it is full, what it delivers now; else nothing tells but the recent past.
    fn capacity_bit_s(&self) -> f64 {
        let last = &self.recent[INTERVALS / 2..];
        match self.recent[INTERVALS - 1].is_full {
            true => last.iter().map(|interval| interval.bit_s).fold(0.0, f64::max),
            false => self.highest.value(),
        }
    }

    fn carried(&self, fastest_other_bit_s: f64) -> Carried {
        let constant = self.constant();
        let bytes: i64 = self.recent.iter().map(|interval| interval.bytes).sum();
        let lost_bytes: i64 = self.recent.iter().map(|interval| interval.lost_bytes).sum();
        Carried {
            bit_s: mean(if constant.is_empty() { &self.recent } else { constant }),
            is_full: self.recent.iter().all(|interval| interval.is_full),
            constant_for: INTERVAL * constant.len() as u32,
            loss: lost_bytes as f64 / (bytes.max(0) + lost_bytes).max(1) as f64,
            queued: self.recent[INTERVALS - 1].queued,
            fastest_other_bit_s,
        }
    }
}

/// Mean rate of intervals, in bit/s.
fn mean(intervals: &[Interval]) -> f64 {
    intervals.iter().map(|interval| interval.bit_s).sum::<f64>() / intervals.len() as f64
}

impl Rates {
    /// Processes the transport statistics of a subflow; returns whether an interval ends, after which there is a [new
    /// sample](Self::sample) of each path.
    pub fn observe(&mut self, now: Instant, path: PathId, transport: &Transport) -> bool {
        if transport.accepted {
            return false;
        }
        let place = usize::from(path.0);
        if self.paths.len() <= place {
            self.paths.resize(place + 1, Sum::default());
        }
        let has_ended = self.end_interval(now);
        let (last, counts) = self.counts(now, path, transport);
        self.paths[place].observe(last, counts, transport);
        has_ended
    }

    /// What a path carried in the last intervals; `None`: nothing was measured on it.
    pub fn sample(&self, path: PathId) -> Option<Sample> {
        let place = usize::from(path.0);
        let others = (0..self.paths.len()).filter(|other| *other != place);
        let fastest_other = others.map(|other| self.paths[other].capacity_bit_s()).fold(0.0, f64::max);
        Some(Sample { path, kind: SampleKind::Carried(self.paths.get(place)?.carried(fastest_other)) })
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
        let Transport { bytes_acked, sacked, retransmitted, .. } = *transport;
        let counts = Counts { acked: bytes_acked as u32, sacked, retransmitted };
        let key = (path, transport.token, number_of(transport.peer));
        let last = self.subflows.insert(key, Some(counts)).flatten();
        // Another subflow in the place of a closed one counts from 0.
        let is_another = |last: &Counts| {
            counts.acked.wrapping_sub(last.acked) > u32::MAX / 2 || counts.retransmitted < last.retransmitted
        };
        (last.map(|last| if is_another(&last) { Counts::default() } else { last }), counts)
    }

    fn end_interval(&mut self, now: Instant) -> bool {
        let length = now.since(self.began);
        if length < INTERVAL {
            return false;
        }
        self.began = now;
        if length >= INTERVAL * 2 {
            // Nothing was measured meanwhile.
            self.paths.iter_mut().for_each(|sum| *sum = Sum { highest: sum.highest, ..Sum::default() });
            return false;
        }
        self.paths.iter_mut().for_each(|sum| sum.end(now, length));
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
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The last samples after `ms` in which two paths carry so many bytes each 10 ms, the first full.
    fn carried(rates: &mut Rates, from_ms: u64, ms: u64, bytes: [u64; 2], total: &mut [u64; 2]) -> Vec<Carried> {
        for at in (from_ms..from_ms + ms).step_by(10) {
            for place in 0..2 {
                total[place] += bytes[place];
                let unacked = if place == 0 { 10 } else { 0 };
                let transport = Transport { bytes_acked: total[place], unacked, ..Transport::IDLE };
                rates.observe(Instant::from_millis(at), PathId(place as u8), &transport);
            }
        }
        [0, 1].map(|place| of(rates, place)).to_vec()
    }

    fn of(rates: &Rates, place: u8) -> Carried {
        let sample = rates.sample(PathId(place));
        let Some(Sample { kind: SampleKind::Carried(carried), .. }) = sample else { panic!("{sample:?}") };
        carried
    }

    #[test]
    fn rates_of_a_second_come_with_that_of_the_fastest_other_path() {
        let (mut rates, mut total) = (Rates::default(), [0; 2]);
        let now = carried(&mut rates, 0, 3000, [1250, 12_500], &mut total);
        let is = |value: f64, bit_s: f64| (value / bit_s - 1.0).abs() < 0.05;
        assert!(is(now[0].bit_s, 1e6) && is(now[0].fastest_other_bit_s, 1e7), "{now:?}");
        assert!(now[0].is_full && now[0].constant_for == SECOND && !now[1].is_full, "{now:?}");
        assert!(is(now[1].fastest_other_bit_s, 1e6), "{now:?}");
        let after = carried(&mut rates, 3000, 2000, [1250, 0], &mut total);
        assert!(is(after[0].fastest_other_bit_s, 1e7), "what it carried within the last minute: {after:?}");
    }

    #[test]
    fn what_is_lost_and_what_waits_in_the_network_is_measured() {
        let mut rates = Rates::default();
        for at in (0..2000).step_by(10) {
            let (bytes_acked, retransmitted) = (at * 1424 / 10, at as u32 / 100);
            let (rtt, min_rtt) = (Duration::from_millis(50), Some(Duration::from_millis(40)));
            let transport = Transport { bytes_acked, retransmitted, unacked: 10, rtt, min_rtt, ..Transport::IDLE };
            rates.observe(Instant::from_millis(at), PathId(0), &transport);
        }
        let carried = of(&rates, 0);
        assert!((carried.loss - 1.0 / 11.0).abs() < 0.01, "{carried:?}");
        assert_eq!(carried.queued, Some(Duration::from_millis(10)));
    }

    #[test]
    fn what_arrives_beyond_a_hole_counts_when_it_arrives_and_a_queue_is_more_than_the_path_takes() {
        let mut rates = Rates::default();
        for step in 0..200_u32 {
            // A hole of 50 samples: then all is acknowledged at once.
            let (bytes_acked, sacked) = (u64::from(step / 50 * 50) * 1424, step % 50);
            let (rtt, min_rtt) = (Duration::from_millis(400), Some(Duration::from_millis(40)));
            let transport = Transport { bytes_acked, sacked, unacked: 5, rtt, min_rtt, ..Transport::IDLE };
            rates.observe(Instant::from_millis(u64::from(step) * 10), PathId(0), &transport);
        }
        let carried = of(&rates, 0);
        assert!(
            carried.constant_for == SECOND && carried.is_full && (carried.bit_s / 1.139e6 - 1.0).abs() < 0.05,
            "{carried:?}"
        );
    }

    #[test]
    fn a_rate_that_fell_is_constant_half_a_second_later_and_another_subflow_counts_from_0() {
        let (mut rates, mut total) = (Rates::default(), [0; 2]);
        carried(&mut rates, 0, 2000, [12_500, 0], &mut total);
        let falling = carried(&mut rates, 2000, 300, [1250, 0], &mut total);
        assert_eq!(falling[0].constant_for, Duration::ZERO, "{falling:?}");
        let fallen = carried(&mut rates, 2300, 300, [1250, 0], &mut total);
        assert!(fallen[0].constant_for == SECOND / 2 && fallen[0].bit_s < 1.1e6, "{fallen:?}");
        total = [0; 2];
        let again = carried(&mut rates, 2600, 1500, [1250, 0], &mut total);
        assert!(again[0].constant_for == SECOND && again[0].bit_s < 1.1e6, "{again:?}");
    }

    #[test]
    fn an_interval_shows_the_rate_of_a_path_in_which_packets_wait() {
        let of = |waited_ms: u64| {
            let (mut rates, mut bytes_acked) = (Rates::default(), 0_u64);
            for at in (0..2300).step_by(10) {
                bytes_acked += if at < 2000 { 12_500 } else { 1250 };
                let (rtt, min_rtt) = (Duration::from_millis(40 + waited_ms), Some(Duration::from_millis(40)));
                let transport = Transport { bytes_acked, unacked: 10, rtt, min_rtt, ..Transport::IDLE };
                rates.observe(Instant::from_millis(at), PathId(0), &transport);
            }
            of(&rates, 0)
        };
        let (queued, policed) = (of(300), of(5));
        assert!(queued.constant_for == SECOND / 4 && (queued.bit_s / 1e6 - 1.0).abs() < 0.1, "{queued:?}");
        assert_eq!(policed.constant_for, Duration::ZERO, "{policed:?}");
    }

    #[test]
    fn a_path_that_is_full_counts_by_what_it_delivers_now_one_that_has_room_by_what_it_did() {
        let (mut rates, mut total) = (Rates::default(), [0; 2]);
        carried(&mut rates, 0, 2000, [12_500, 1250], &mut total);
        let fades = carried(&mut rates, 2000, 1000, [1250, 1250], &mut total);
        assert!((fades[1].fastest_other_bit_s / 1e6 - 1.0).abs() < 0.1, "{fades:?}");
        let (mut rates, mut total) = (Rates::default(), [0; 2]);
        carried(&mut rates, 0, 2000, [1250, 12_500], &mut total);
        let has_room = carried(&mut rates, 2000, 1000, [1250, 1250], &mut total);
        assert!((has_room[0].fastest_other_bit_s / 1e7 - 1.0).abs() < 0.1, "{has_room:?}");
    }

    #[test]
    fn a_slow_start_is_not_constant() {
        let (mut rates, mut total) = (Rates::default(), [0; 2]);
        for round in 0..8 {
            let now = carried(&mut rates, round * 250, 250, [570 << round, 0], &mut total);
            assert!(now.iter().all(|carried| carried.constant_for == Duration::ZERO), "{now:?}");
        }
    }
}
