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
//!
//! After a break the path that carries then must bring most of what the peer sent before. One that does not is
//! reported as well, a few times in all, since the peer may have ended (decision 140).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::{EXPIRY, SAMPLE_INTERVAL, check_is_due};
use crate::mptcp::manager::{MAX_CONNECTIONS, MAX_SUBFLOWS};
use crate::path::{Break, PathId, Transport};
use crate::recent::push_recent;
use crate::small_map::SmallMap;
use crate::time::{Duration, Instant};

/// Number of pauses remembered, and required for regularity.
const PAUSES: usize = 32;
/// Range of the mean pause: shorter pauses belong to a bulk transfer, whose end means
/// nothing; longer ones would be detected too late.
const MEAN: (Duration, Duration) = (Duration::from_millis(15), Duration::from_millis(200));
/// Maximum ratio of the second longest pause to the mean.
const REGULAR: u32 = 3;
/// The peer sends what was lost over another path within this time: two RTTs of a path with a queue.
const GOES_ON: Duration = Duration::from_millis(500);
/// The part of what it sent until then that it sends on.
const CAUGHT_UP: f64 = 0.9;
/// The part of it that a path brings at least, from the switch on, that is not broken too.
const ENOUGH: f64 = 0.7;
/// Maximum number of breaks reported because nothing goes on: the peer may have ended.
const MAX_REPEATS: u32 = 3;
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
    /// When a message had arrived last, the second longest pause and bytes/s until then.
    last: Instant,
    longest: Duration,
    bytes_s: f64,
    /// Bytes that have arrived since it was reported.
    bytes: u64,
    /// How many more of other paths were reported since then, and the bytes until the last one.
    repeats: u32,
    bytes_before: u64,
}

impl Reported {
    /// Whether the peer has sent meanwhile what it sent before.
    fn is_caught_up(&self, now: Instant) -> bool {
        self.bytes as f64 >= CAUGHT_UP * self.bytes_s * now.since(self.last).as_secs_f64()
    }

    /// Whether less comes since this time than it sent before.
    fn is_slow(&self, now: Instant, since: Instant) -> bool {
        ((self.bytes - self.bytes_before) as f64) < ENOUGH * self.bytes_s * now.since(since).as_secs_f64()
    }
}

/// What a subflow received.
#[derive(Debug)]
struct Received {
    /// Bytes in order.
    bytes: u64,
    /// Segments, also those after one that was lost: while they come the path delivers.
    segments: u32,
    observed: Instant,
    /// Since when the subflow is not a backup, and when anything last arrived since then.
    active_since: Option<Instant>,
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
        if let Some(broken) = flow.detect_next_break(now, path, transport, self.latest.get(&path)) {
            return Some(broken);
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
        let Transport { bytes_received: bytes, segments_received: segments, .. } = *transport;
        let first = Received { bytes, segments, observed: now, active_since: None, grown_at: None };
        let received = self.received.get_or_insert(key, first);
        received.observed = now;
        received.active_since = (!transport.backup).then(|| received.active_since.unwrap_or(now));
        // A reserve receives nothing more.
        received.grown_at = received.grown_at.filter(|_| !transport.backup);
        let bytes = bytes.saturating_sub(core::mem::replace(&mut received.bytes, bytes));
        let arrived = segments.wrapping_sub(core::mem::replace(&mut received.segments, segments)) as i32 > 0;
        if bytes == 0 && !arrived {
            return false;
        }
        received.grown_at = (!transport.backup).then_some(now);
        self.follow_break(now, bytes);
        // A backup carries what another subflow cannot, without regularity.
        if self.path != path || transport.backup {
            self.previous =
                self.regular_pause().filter(|_| self.path != path && !transport.backup).map(|_| (self.path, self.last));
            self.pauses.clear();
            self.sizes.clear();
        } else {
            push_recent(&mut self.pauses, PAUSES, now.since(self.last));
            push_recent(&mut self.sizes, PAUSES, bytes);
        }
        (self.path, self.last) = (path, now);
        true
    }

    /// A break was one if what was sent meanwhile arrives: the next one is reported as soon.
    fn follow_break(&mut self, now: Instant, bytes: u64) {
        let Some(reported) = &mut self.reported else { return };
        reported.bytes += bytes;
        let is_caught_up = reported.is_caught_up(now);
        if is_caught_up && reported.repeats == 0 && now.since(reported.at) <= GOES_ON {
            self.doublings = self.doublings.saturating_sub(1);
        }
        if is_caught_up || now.since(reported.at) > EXPIRY {
            self.reported = None;
        }
    }

    fn detect_break(&mut self, now: Instant, transport: &Transport) -> Option<Break> {
        let longest = self.regular_pause()?;
        // So one message that is lost is no break.
        let timeout = longest * 2 + SAMPLE_INTERVAL;
        let waited = now.since(self.last);
        if transport.backup || waited <= timeout * (1 << self.doublings) {
            return None;
        }
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        let (bytes, pauses): (u64, Duration) = (self.sizes.iter().sum(), self.pauses.iter().sum());
        let bytes_s = bytes as f64 / pauses.as_secs_f64();
        self.reported =
            Some(Reported { at: now, last: self.last, longest, bytes_s, bytes: 0, repeats: 0, bytes_before: 0 });
        Some(Break { path: self.path, last: self.last, waited, longest })
    }

    /// The path that carries after a break does not carry what the peer sent before.
    fn detect_next_break(
        &mut self,
        now: Instant,
        path: PathId,
        transport: &Transport,
        latest: Option<&Instant>,
    ) -> Option<Break> {
        let reported = self.reported.as_mut().filter(|reported| reported.repeats < MAX_REPEATS)?;
        let since = self.received.get((path, transport.peer))?.active_since?.max(reported.at);
        let is_of_others = reported.bytes == 0 && latest.is_some_and(|at| *at > since);
        let is_over = now.since(since) > GOES_ON * (1 << reported.repeats);
        if !is_over || is_of_others || !reported.is_slow(now, since) {
            return None;
        }
        (reported.at, reported.repeats, reported.bytes_before) = (now, reported.repeats + 1, reported.bytes);
        Some(Break { path, last: since, waited: now.since(reported.last), longest: reported.longest })
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
mod tests;
