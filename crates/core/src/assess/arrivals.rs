//! Regular downlink messages that stop.
//!
//! A receiver has nothing unacknowledged, and the peer's kernel needs 0.2 s or more to
//! detect that its data is lost. But if regular messages stop on all subflows of their
//! connection at once, either the peer has ended or their path is lost. Only regular
//! messages count, with pauses that consecutive samples can resolve; each time they
//! stop, and do not go on soon, the required silence of the connection doubles.
//!
//! A sender with several paths leaves one while data sent there is not acknowledged,
//! e.g. because it was lost, and may return to it. So if the messages came over another
//! path before, and nothing has since, that path is suspected first. If something, but
//! no regular messages, came over another path that is still in use, either may be
//! lost, and nothing is reported.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::{EXPIRY, check_is_due, push_recent};
use crate::mptcp::manager::{MAX_CONNECTIONS, MAX_SUBFLOWS};
use crate::path::{Break, PathId, Transport};
use crate::small_map::SmallMap;
use crate::time::{Duration, Instant};

/// Number of pauses remembered, and required for regularity.
const PAUSES: usize = 32;
/// Range of the mean pause: shorter pauses belong to a bulk transfer, whose end means
/// nothing; longer ones would be detected too late.
const MEAN: (Duration, Duration) = (Duration::from_millis(15), Duration::from_millis(200));
/// Maximum ratio of the second longest pause to the mean.
const REGULAR: u32 = 3;
/// Added to twice the second longest pause and the RTT.
const MARGIN: Duration = Duration::from_millis(20);
/// The peer sends what was lost over another path within this time: two RTTs of a path with a queue.
const GOES_ON: Duration = Duration::from_millis(500);
/// The part of what it sent until then that it sends on.
const CAUGHT_UP: f64 = 0.9;
/// Maximum number of doublings of the timeout.
const MAX_DOUBLINGS: u32 = 6;
/// Data received over the path this long after the last message clears the path.
const CLEARING_DELAY: Duration = Duration::from_millis(20);
/// A subflow that received data within this time may receive more.
const RECENT: Duration = Duration::from_secs(10);

/// Observes what all connections receive.
#[derive(Debug, Default)]
pub struct Arrivals {
    connections: BTreeMap<u32, Flow>,
    /// When anything was last received over each path.
    latest: BTreeMap<PathId, Instant>,
    swept: Instant,
}

#[derive(Debug)]
struct Flow {
    observed: Instant,
    received: SmallMap<(PathId, SocketAddr), Received>,
    last: Instant,
    path: PathId,
    /// The path of the regular messages before, and the time of the last one.
    previous: Option<(PathId, Instant)>,
    pauses: VecDeque<Duration>,
    /// Bytes that arrived after each of them.
    sizes: VecDeque<u64>,
    doublings: u32,
    reported: Option<Reported>,
}

/// A break of which nothing shows yet that the peer had not ended.
#[derive(Debug)]
struct Reported {
    at: Instant,
    /// When a message had arrived last, and bytes/s until then.
    last: Instant,
    bytes_s: f64,
    /// Bytes that have arrived since it was reported.
    bytes: u64,
}

impl Reported {
    /// Whether the peer has sent meanwhile what it sent before.
    fn is_caught_up(&self, now: Instant) -> bool {
        self.bytes as f64 >= CAUGHT_UP * self.bytes_s * now.since(self.last).as_secs_f64()
    }
}

/// What a subflow received.
#[derive(Debug)]
struct Received {
    bytes: u64,
    observed: Instant,
    /// When `bytes` last grew while the subflow was not a backup.
    grown_at: Option<Instant>,
}

impl Arrivals {
    /// Processes the transport statistics of a subflow; returns the break if its
    /// connection has fallen silent.
    pub fn observe(&mut self, now: Instant, path: PathId, transport: &Transport) -> Option<Break> {
        if check_is_due(&mut self.swept, now) {
            self.connections.retain(|_, flow| now.since(flow.observed) < EXPIRY);
        }
        let is_full = self.connections.len() >= MAX_CONNECTIONS && !self.connections.contains_key(&transport.token);
        if transport.accepted || transport.peer == Transport::NO_PEER || is_full {
            return None;
        }
        let flow = self.connections.entry(transport.token).or_insert_with(|| Flow::new(now, path));
        if flow.update(now, path, transport) {
            self.latest.insert(path, now);
            return None;
        }
        let since = flow.last + CLEARING_DELAY;
        let has_received = self.latest.get(&path).is_some_and(|latest| *latest > since);
        if flow.path != path || has_received || (flow.previous.is_none() && flow.is_shared(now)) {
            return None;
        }
        let broken = flow.detect_break(now, transport)?;
        let previous =
            flow.previous.take().filter(|(previous, at)| self.latest.get(previous).is_none_or(|latest| latest <= at));
        if let Some((path, last)) = previous {
            return Some(Break { path, last, ..broken });
        }
        flow.pauses.clear();
        flow.sizes.clear();
        Some(broken)
    }
}

impl Flow {
    fn new(now: Instant, path: PathId) -> Flow {
        Flow {
            observed: now,
            received: SmallMap::default(),
            last: now,
            path,
            previous: None,
            pauses: VecDeque::new(),
            sizes: VecDeque::new(),
            doublings: 0,
            reported: None,
        }
    }

    /// True if data was received.
    fn update(&mut self, now: Instant, path: PathId, transport: &Transport) -> bool {
        self.observed = now;
        let key = (path, transport.peer);
        if self.received.len() >= MAX_SUBFLOWS && self.received.get(key).is_none() {
            self.received.clear();
        }
        let bytes = transport.bytes_received;
        let received = self.received.get_or_insert(key, Received { bytes, observed: now, grown_at: None });
        received.observed = now;
        // A reserve receives nothing more.
        received.grown_at = received.grown_at.filter(|_| !transport.backup);
        let before = core::mem::replace(&mut received.bytes, bytes);
        if before >= bytes {
            return false;
        }
        received.grown_at = (!transport.backup).then_some(now);
        self.follow_break(now, bytes - before);
        // A backup carries what another subflow cannot, without regularity.
        if self.path != path || transport.backup {
            self.previous =
                self.regular_pause().filter(|_| self.path != path && !transport.backup).map(|_| (self.path, self.last));
            self.pauses.clear();
            self.sizes.clear();
        } else {
            push_recent(&mut self.pauses, PAUSES, now.since(self.last));
            push_recent(&mut self.sizes, PAUSES, bytes - before);
        }
        (self.path, self.last) = (path, now);
        true
    }

    /// A break was one if what was sent meanwhile arrives: the next one is reported as soon.
    fn follow_break(&mut self, now: Instant, bytes: u64) {
        let Some(reported) = &mut self.reported else { return };
        reported.bytes += bytes;
        let is_caught_up = reported.is_caught_up(now);
        if is_caught_up {
            self.doublings = self.doublings.saturating_sub(1);
        }
        if is_caught_up || now.since(reported.at) > GOES_ON {
            self.reported = None;
        }
    }

    fn detect_break(&mut self, now: Instant, transport: &Transport) -> Option<Break> {
        let longest = self.regular_pause()?;
        let timeout = longest * 2 + MARGIN + transport.rtt.min(longest);
        let waited = now.since(self.last);
        if transport.backup || waited <= timeout * (1 << self.doublings) {
            return None;
        }
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        let (bytes, pauses): (u64, Duration) = (self.sizes.iter().sum(), self.pauses.iter().sum());
        let bytes_s = bytes as f64 / pauses.as_secs_f64();
        self.reported = Some(Reported { at: now, last: self.last, bytes_s, bytes: 0 });
        Some(Break { path: self.path, last: self.last, waited, longest })
    }

    /// True if data was recently received over another path that still exists.
    fn is_shared(&self, now: Instant) -> bool {
        let exists = |received: &Received| now.since(received.observed) < EXPIRY / 2;
        let recent = |received: &Received| received.grown_at.is_some_and(|grown_at| now.since(grown_at) < RECENT);
        self.received.iter().any(|((path, _), received)| path != self.path && exists(received) && recent(received))
    }

    /// The second longest pause of regular messages; one longer pause may be a CPU
    /// stall.
    fn regular_pause(&self) -> Option<Duration> {
        if self.pauses.len() < PAUSES {
            return None;
        }
        let mean = self.pauses.iter().sum::<Duration>() / PAUSES as u32;
        let mut pauses: Vec<Duration> = self.pauses.iter().copied().collect();
        let longest = *pauses.select_nth_unstable(PAUSES - 2).1;
        ((MEAN.0..=MEAN.1).contains(&mean) && longest <= mean * REGULAR).then_some(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(token: u32, bytes_received: u64, backup: bool) -> Transport {
        Transport {
            token,
            peer: SocketAddr::from(([10, 0, 0, 1], 80)),
            backup,
            rtt: Duration::from_millis(10),
            bytes_received,
            ..Transport::IDLE
        }
    }

    /// Samples the bytes received so far each 10 ms; returns when a break was reported,
    /// in ms.
    fn feed(arrivals: &mut Arrivals, token: u32, until: u64, bytes: impl Fn(u64) -> u64) -> Option<u64> {
        let samples = (0..until).step_by(10);
        let mut samples = samples
            .map(|ms| (ms, arrivals.observe(Instant::from_millis(ms), PathId(0), &sample(token, bytes(ms), false))));
        samples.find(|(_, broken)| broken.is_some()).map(|(ms, _)| ms)
    }

    #[test]
    fn messages_that_came_regularly_and_stop_mean_loss() {
        let broken = feed(&mut Arrivals::default(), 1, 3000, |ms| ms.min(2000) / 20 * 200);
        assert!(broken.is_some_and(|ms| (2050..2100).contains(&ms)), "{broken:?}");
    }

    #[test]
    fn a_connection_over_every_path_there_can_be_is_followed() {
        let mut arrivals = Arrivals::default();
        let mut broken = None;
        for ms in (0..3000).step_by(10) {
            let now = Instant::from_millis(ms);
            broken = broken.or(arrivals.observe(now, PathId(0), &sample(1, ms.min(2000) / 20 * 200, false)));
            for path in 1..16 {
                assert_eq!(arrivals.observe(now, PathId(path), &sample(1, 0, true)), None);
            }
        }
        assert!(broken.is_some());
    }

    #[test]
    fn the_end_of_a_transfer_or_of_sporadic_messages_is_no_loss() {
        assert_eq!(feed(&mut Arrivals::default(), 1, 5000, |ms| ms.min(2000) * 1000), None);
        assert_eq!(feed(&mut Arrivals::default(), 1, 9000, |ms| ms.min(5000) / 700 * 700), None);
        let uneven = |ms: u64| ms.min(4000) / 200 * 200 + if ms % 200 < 100 { ms % 200 } else { 100 };
        assert_eq!(feed(&mut Arrivals::default(), 1, 9000, uneven), None);
    }

    /// Messages each 20 ms, which stop at 2 s; what follows over another path 100 ms after the report, and when that stops.
    #[test]
    fn a_break_after_which_the_peer_catches_up_makes_the_next_one_no_later() {
        let second = |catches_up: bool| {
            let (mut arrivals, mut reports) = (Arrivals::default(), Vec::new());
            for ms in (0..7000_u64).step_by(10) {
                let now = Instant::from_millis(ms);
                let near = ms.min(2000) / 20 * 200;
                let sent_from = if catches_up { 2000 } else { 2160 };
                let far = if ms < 2180 { 0 } else { (ms.min(5000) - sent_from) / 20 * 200 };
                // The agent closes it.
                let near = (ms < 2100).then(|| arrivals.observe(now, PathId(0), &sample(1, near, false)));
                reports.extend(near.flatten().map(|_| ms));
                reports.extend(arrivals.observe(now, PathId(1), &sample(1, far, false)).map(|_| ms));
            }
            assert!(reports.len() >= 2 && reports[0] < 2100, "{reports:?}");
            reports[1]
        };
        let (soon, later) = (second(true), second(false));
        assert!((5050..5100).contains(&soon) && later >= soon + 40, "{soon} {later}");
    }

    #[test]
    fn data_of_another_connection_clears_the_path() {
        let mut arrivals = Arrivals::default();
        for ms in (0..4000).step_by(10) {
            let now = Instant::from_millis(ms);
            assert_eq!(arrivals.observe(now, PathId(0), &sample(2, ms / 20 * 200, false)), None);
            assert_eq!(arrivals.observe(now, PathId(0), &sample(1, ms.min(2000) / 20 * 200, false)), None);
        }
    }

    #[test]
    fn a_path_that_was_left_before_is_suspected_first() {
        let mut arrivals = Arrivals::default();
        let mut broken = Vec::new();
        for ms in (0..9000u64).step_by(10) {
            let now = Instant::from_millis(ms);
            let (near, far) = (ms.min(2000) / 20 * 200, ms.clamp(2000, 3500) / 20 * 200);
            if broken.is_empty() {
                broken
                    .extend(arrivals.observe(now, PathId(0), &sample(1, near, false)).map(|broken| (ms, broken.path)));
            }
            broken.extend(arrivals.observe(now, PathId(1), &sample(1, far, false)).map(|broken| (ms, broken.path)));
        }
        let [(first, PathId(0)), (second, PathId(1))] = broken[..] else { panic!("{broken:?}") };
        assert!((3550..3600).contains(&first) && (first + 50..6500).contains(&second), "{broken:?}");
    }

    #[test]
    fn of_two_recently_used_paths_neither_is_suspected() {
        let both = |until: u64, far_exists: bool, is_reserve: bool| {
            let mut arrivals = Arrivals::default();
            let mut broken = Vec::new();
            for ms in (0..4000u64).step_by(10) {
                let now = Instant::from_millis(ms);
                let (near, far) = (ms.min(until) / 20 * 200, ms.clamp(until, 3500) / 20 * 200);
                broken.extend(arrivals.observe(now, PathId(1), &sample(1, far, false)).map(|broken| broken.path));
                if ms < 1000 || far_exists {
                    let near = sample(1, near, is_reserve && ms >= 1000);
                    broken.extend(arrivals.observe(now, PathId(0), &near).map(|broken| broken.path));
                }
            }
            broken
        };
        assert_eq!(both(300, true, false), []);
        assert_eq!(both(300, true, true), [PathId(1)], "the other is a reserve now");
        assert_eq!(both(300, false, false), [PathId(1)], "the other was closed");
    }

    #[test]
    fn one_cpu_stall_is_not_taken_for_a_break() {
        let late = |ms: u64| if (300..410).contains(&ms) { 300 } else { ms.min(800) };
        let broken = feed(&mut Arrivals::default(), 1, 3000, |ms| late(ms) / 20 * 200);
        assert!(broken.is_some_and(|ms| (850..900).contains(&ms)), "{broken:?}");
    }

    #[test]
    fn messages_that_continue_over_another_path_have_not_stopped() {
        let mut arrivals = Arrivals::default();
        for ms in (0..4000u64).step_by(10) {
            let now = Instant::from_millis(ms);
            let (near, far) = (ms.min(2000) / 20 * 200, ms.saturating_sub(2000) / 20 * 200);
            assert_eq!(arrivals.observe(now, PathId(1), &sample(1, far, false)), None);
            assert_eq!(arrivals.observe(now, PathId(0), &sample(1, near, false)), None);
        }
    }
}
