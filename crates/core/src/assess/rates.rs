//! What each path carries, beside the others: the rates of all subflows, summed over each path.
//!
//! An assessor observes one path; this is what it is told of the others.

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
/// The highest rate of another path counts for one to two times this time.
const MEMORY: Duration = Duration::from_secs(30);
/// Subflows that are gone are forgotten, with all others, after this time: each loses what one sample would have added.
const FORGET: Duration = Duration::from_secs(60);

/// A path, a connection, and a number of the peer's address.
type Key = (PathId, u32, u32);

/// Observes what all connections that are initiated here deliver.
#[derive(Debug, Default)]
pub struct Rates {
    /// The low half of the bytes acknowledged on each subflow.
    acked: BTreeMap<Key, u32>,
    forgotten: Instant,
    began: Instant,
    paths: Vec<Sum>,
}

/// What was carried over one path.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// In the present interval: bytes, samples, and samples of a full path.
    bytes: u64,
    samples: u32,
    full: u32,
    /// The last intervals, in bit/s, and whether the path was full.
    recent: [(f64, bool); INTERVALS],
    highest: RecentHighest,
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
    /// Ends an interval of this length.
    fn end(&mut self, now: Instant, length: Duration) {
        let is_full = self.samples > 0 && f64::from(self.full) >= FULL_SHARE * f64::from(self.samples);
        self.recent.rotate_left(1);
        self.recent[INTERVALS - 1] = (self.bytes as f64 * 8.0 / length.as_secs_f64(), is_full);
        (self.bytes, self.samples, self.full) = (0, 0, 0);
        self.highest.note(now, self.mean());
    }

    fn mean(&self) -> f64 {
        self.recent.iter().map(|(bit_s, _)| bit_s).sum::<f64>() / INTERVALS as f64
    }

    fn carried(&self, fastest_other_bit_s: f64) -> Carried {
        let mean = self.mean();
        let is_near = |(bit_s, _): &(f64, bool)| (bit_s - mean).abs() <= DEVIATION * mean;
        Carried {
            bit_s: mean,
            is_full: self.recent.iter().all(|(_, is_full)| *is_full),
            is_constant: mean > 0.0 && self.recent.iter().all(is_near),
            fastest_other_bit_s,
        }
    }
}

impl Rates {
    /// Processes the transport statistics of a subflow; returns a sample for each path at the end of an interval.
    pub fn observe(&mut self, now: Instant, path: PathId, transport: &Transport) -> Vec<Sample> {
        if transport.accepted {
            return Vec::new();
        }
        let place = usize::from(path.0);
        if self.paths.len() <= place {
            self.paths.resize(place + 1, Sum::default());
        }
        let samples = self.end_interval(now);
        let acked = self.acked(now, path, transport);
        let sum = &mut self.paths[place];
        sum.bytes += u64::from(acked);
        sum.samples += u32::from(!transport.backup);
        sum.full += u32::from(!transport.backup && transport.cwnd > 0 && transport.is_full());
        samples
    }

    /// Bytes acknowledged on the subflow since its last sample.
    fn acked(&mut self, now: Instant, path: PathId, transport: &Transport) -> u32 {
        if now.since(self.forgotten) > FORGET || self.acked.len() >= MAX_SUBFLOWS {
            self.acked.clear();
            self.forgotten = now;
        }
        let bytes = transport.bytes_acked as u32;
        let last = self.acked.insert((path, transport.token, number_of(transport.peer)), bytes);
        let acked = last.map_or(0, |last| bytes.wrapping_sub(last));
        // Another subflow in the place of a closed one counts from 0.
        if acked > u32::MAX / 2 { bytes } else { acked }
    }

    fn end_interval(&mut self, now: Instant) -> Vec<Sample> {
        let length = now.since(self.began);
        if length < INTERVAL {
            return Vec::new();
        }
        self.began = now;
        if length >= INTERVAL * 2 {
            // Nothing was measured meanwhile.
            self.paths.iter_mut().for_each(|sum| *sum = Sum { highest: sum.highest, ..Sum::default() });
            return Vec::new();
        }
        self.paths.iter_mut().for_each(|sum| sum.end(now, length));
        let highest = |place: usize| self.paths[place].highest.value();
        let fastest_other =
            |place| (0..self.paths.len()).filter(|other| *other != place).map(highest).fold(0.0, f64::max);
        let sample = |(place, sum): (usize, &Sum)| Sample {
            path: PathId(place as u8),
            kind: SampleKind::Carried(sum.carried(fastest_other(place))),
        };
        self.paths.iter().enumerate().map(sample).collect()
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

    /// The last samples after `ms` in which two paths carry so many bytes each 10 ms, the first full.
    fn carried(rates: &mut Rates, from_ms: u64, ms: u64, bytes: [u64; 2], total: &mut [u64; 2]) -> Vec<Carried> {
        let mut last = Vec::new();
        for at in (from_ms..from_ms + ms).step_by(10) {
            for place in 0..2 {
                total[place] += bytes[place];
                let unacked = if place == 0 { 10 } else { 0 };
                let transport = Transport { bytes_acked: total[place], unacked, ..Transport::IDLE };
                let samples = rates.observe(Instant::from_millis(at), PathId(place as u8), &transport);
                if !samples.is_empty() {
                    last = samples;
                }
            }
        }
        let kind = |sample: &Sample| match sample.kind {
            SampleKind::Carried(carried) => Some(carried),
            _ => None,
        };
        last.iter().filter_map(kind).collect()
    }

    #[test]
    fn rates_of_a_second_are_told_with_the_fastest_other_path() {
        let (mut rates, mut total) = (Rates::default(), [0; 2]);
        let now = carried(&mut rates, 0, 3000, [1250, 12_500], &mut total);
        let is = |value: f64, bit_s: f64| (value / bit_s - 1.0).abs() < 0.05;
        assert!(is(now[0].bit_s, 1e6) && is(now[0].fastest_other_bit_s, 1e7), "{now:?}");
        assert!(now[0].is_full && now[0].is_constant && !now[1].is_full, "{now:?}");
        assert!(is(now[1].fastest_other_bit_s, 1e6), "{now:?}");
        let after = carried(&mut rates, 3000, 2000, [1250, 0], &mut total);
        assert!(is(after[0].fastest_other_bit_s, 1e7), "what it carried within the last minute: {after:?}");
    }

    #[test]
    fn a_rate_that_falls_is_not_constant_and_another_subflow_counts_from_0() {
        let (mut rates, mut total) = (Rates::default(), [0; 2]);
        carried(&mut rates, 0, 2000, [12_500, 0], &mut total);
        let falling = carried(&mut rates, 2000, 550, [1250, 0], &mut total);
        assert!(!falling[0].is_constant, "{falling:?}");
        total = [0; 2];
        let again = carried(&mut rates, 2550, 1500, [1250, 0], &mut total);
        assert!(again[0].is_constant && again[0].bit_s < 1.1e6, "{again:?}");
    }
}
