//! What comes down: a rhythm that breaks off.
//!
//! Who only receives has nothing unacknowledged, and the peer's kernel needs
//! 0.2 s and more to see that what it sends gets lost. But messages that came
//! regularly and stop, on all subflows of their connection at once, tell as much:
//! either the peer has ended, or the path they came over is lost. Only a rhythm is
//! believed, of pauses that one look after the other can tell apart; each time it
//! breaks off the connection must be silent for twice as long.
//!
//! Who sends over several paths leaves one while what was sent there is not yet
//! acknowledged, as nothing is where it got lost, and may return to it. So if the
//! rhythm had come over another path before, and nothing since, that one is
//! suspected first. Where something came over another that is still in use, but no
//! rhythm, either may be lost, and nothing is said.

use crate::path::{Break, PathId, Transport};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::mptcp::manager::{MAX_CONNECTIONS, MAX_SUBFLOWS};
use crate::time::{Duration, Instant};

/// Pauses remembered; so many make a rhythm.
const PAUSES: usize = 32;
/// The mean pause of a rhythm: shorter ones are a transfer's, whose end says
/// nothing, longer ones would be found out too late.
const MEAN: (Duration, Duration) = (Duration::from_millis(15), Duration::from_millis(200));
/// The second longest pause of a rhythm, at most, as a multiple of the mean.
const REGULAR: u32 = 3;
/// Beyond twice the second longest pause and the round trip, so much is waited.
const MARGIN: Duration = Duration::from_millis(20);
/// The wait doubles so often at most.
const MAX_DOUBLINGS: u32 = 6;
/// What came over the path so long after the last message excuses it.
const LATER: Duration = Duration::from_millis(20);
/// What came over a subflow so lately may come over it again.
const LATELY: Duration = Duration::from_secs(10);
/// A connection that was not seen for so long is gone, and how often those are
/// looked for.
const GONE: Duration = Duration::from_secs(5);
const SWEEP: Duration = Duration::from_secs(1);

/// Watches what all connections receive.
#[derive(Debug, Default)]
pub struct Arrivals {
    connections: BTreeMap<u32, Flow>,
    /// When anything last came over each path.
    latest: BTreeMap<PathId, Instant>,
    swept: Instant,
}

#[derive(Debug)]
struct Flow {
    seen: Instant,
    received: BTreeMap<(PathId, SocketAddr), Received>,
    last: Instant,
    path: PathId,
    /// The path that the rhythm came over before, and when it came last.
    left: Option<(PathId, Instant)>,
    pauses: VecDeque<Duration>,
    doublings: u32,
}

/// What a subflow received.
#[derive(Debug)]
struct Received {
    bytes: u64,
    seen: Instant,
    /// When it grew, while the subflow was no backup.
    came: Option<Instant>,
}

impl Arrivals {
    /// Takes what the transport of a subflow says; tells if its connection has
    /// fallen silent.
    pub fn observe(&mut self, now: Instant, path: PathId, transport: &Transport) -> Option<Break> {
        self.sweep(now);
        if transport.accepted || transport.peer == Transport::NO_PEER {
            return None;
        }
        if !self.connections.contains_key(&transport.token) && self.connections.len() >= MAX_CONNECTIONS {
            return None;
        }
        let flow = self.connections.entry(transport.token).or_insert_with(|| Flow::new(now, path));
        if flow.take(now, path, transport) {
            self.latest.insert(path, now);
            return None;
        }
        let since = flow.last + LATER;
        if flow.path != path || self.latest.get(&path).is_some_and(|latest| *latest > since) {
            return None;
        }
        if flow.left.is_none() && flow.is_shared(now) {
            return None;
        }
        let told = flow.breaks_off(now, transport)?;
        let left = flow.left.take().filter(|(left, at)| self.latest.get(left).is_none_or(|latest| latest <= at));
        if let Some((path, last)) = left {
            return Some(Break { path, last, ..told });
        }
        flow.pauses.clear();
        Some(told)
    }

    fn sweep(&mut self, now: Instant) {
        if now.since(self.swept) >= SWEEP {
            self.swept = now;
            self.connections.retain(|_, flow| now.since(flow.seen) < GONE);
        }
    }
}

impl Flow {
    fn new(now: Instant, path: PathId) -> Flow {
        Flow {
            seen: now,
            received: BTreeMap::new(),
            last: now,
            path,
            left: None,
            pauses: VecDeque::new(),
            doublings: 0,
        }
    }

    /// True if something came.
    fn take(&mut self, now: Instant, path: PathId, transport: &Transport) -> bool {
        self.seen = now;
        let key = (path, transport.peer);
        if self.received.len() >= MAX_SUBFLOWS && !self.received.contains_key(&key) {
            self.received.clear();
        }
        let (bytes, fresh) =
            (transport.bytes_received, Received { bytes: transport.bytes_received, seen: now, came: None });
        let received = self.received.entry(key).or_insert(fresh);
        received.seen = now;
        if core::mem::replace(&mut received.bytes, bytes) >= bytes {
            return false;
        }
        received.came = (!transport.backup).then_some(now);
        // A backup carries what another cannot, at no rhythm of its own.
        if self.path != path || transport.backup {
            self.left =
                self.rhythm().filter(|_| self.path != path && !transport.backup).map(|_| (self.path, self.last));
            self.pauses.clear();
        } else {
            if self.pauses.len() == PAUSES {
                self.pauses.pop_front();
            }
            self.pauses.push_back(now.since(self.last));
        }
        (self.path, self.last) = (path, now);
        true
    }

    fn breaks_off(&mut self, now: Instant, transport: &Transport) -> Option<Break> {
        let longest = self.rhythm()?;
        let patience = longest * 2 + MARGIN + transport.rtt.min(longest);
        let waited = now.since(self.last);
        if transport.backup || waited <= patience * (1 << self.doublings) {
            return None;
        }
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        Some(Break { path: self.path, last: self.last, waited, longest })
    }

    /// True if something came lately over another path that is still there.
    fn is_shared(&self, now: Instant) -> bool {
        let there = |received: &Received| now.since(received.seen) < GONE / 2;
        let lately = |received: &Received| received.came.is_some_and(|came| now.since(came) < LATELY);
        self.received.iter().any(|((path, _), received)| *path != self.path && there(received) && lately(received))
    }

    /// The second longest pause of what came regularly: one longer may be this
    /// machine's.
    fn rhythm(&self) -> Option<Duration> {
        if self.pauses.len() < PAUSES {
            return None;
        }
        let mean = self.pauses.iter().sum::<Duration>() / PAUSES as u32;
        let mut pauses: Vec<Duration> = self.pauses.iter().copied().collect();
        let (_, longest, _) = pauses.select_nth_unstable(PAUSES - 2);
        let longest = *longest;
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
            accepted: false,
            backup,
            rtt: Duration::from_millis(10),
            rttvar: Duration::ZERO,
            unacked: 0,
            delivered: 0,
            bytes_acked: 0,
            notsent_bytes: 0,
            bytes_received,
        }
    }

    /// What comes each 10 ms as bytes so far, from 0 on; when a break was told.
    fn hear(arrivals: &mut Arrivals, token: u32, until: u64, bytes: impl Fn(u64) -> u64) -> Option<u64> {
        let looks = (0..until).step_by(10);
        let mut looks = looks
            .map(|ms| (ms, arrivals.observe(Instant::from_millis(ms), PathId(0), &sample(token, bytes(ms), false))));
        looks.find(|(_, told)| told.is_some()).map(|(ms, _)| ms)
    }

    #[test]
    fn messages_that_came_regularly_and_stop_mean_loss() {
        let told = hear(&mut Arrivals::default(), 1, 3000, |ms| ms.min(2000) / 20 * 200);
        assert!(told.is_some_and(|ms| (2050..2100).contains(&ms)), "{told:?}");
    }

    #[test]
    fn a_connection_over_every_path_there_can_be_is_followed() {
        let mut arrivals = Arrivals::default();
        let mut told = None;
        for ms in (0..3000).step_by(10) {
            let now = Instant::from_millis(ms);
            told = told.or(arrivals.observe(now, PathId(0), &sample(1, ms.min(2000) / 20 * 200, false)));
            for path in 1..16 {
                assert_eq!(arrivals.observe(now, PathId(path), &sample(1, 0, true)), None);
            }
        }
        assert!(told.is_some());
    }

    #[test]
    fn the_end_of_a_transfer_and_of_what_came_now_and_then_says_nothing() {
        assert_eq!(hear(&mut Arrivals::default(), 1, 5000, |ms| ms.min(2000) * 1000), None);
        assert_eq!(hear(&mut Arrivals::default(), 1, 9000, |ms| ms.min(5000) / 700 * 700), None);
        let uneven = |ms: u64| ms.min(4000) / 200 * 200 + if ms % 200 < 100 { ms % 200 } else { 100 };
        assert_eq!(hear(&mut Arrivals::default(), 1, 9000, uneven), None);
    }

    #[test]
    fn what_another_connection_receives_over_the_path_excuses_it() {
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
        let mut told = Vec::new();
        for ms in (0..9000u64).step_by(10) {
            let now = Instant::from_millis(ms);
            let (near, far) = (ms.min(2000) / 20 * 200, ms.clamp(2000, 3500) / 20 * 200);
            if told.is_empty() {
                told.extend(arrivals.observe(now, PathId(0), &sample(1, near, false)).map(|told| (ms, told.path)));
            }
            told.extend(arrivals.observe(now, PathId(1), &sample(1, far, false)).map(|told| (ms, told.path)));
        }
        let [(first, PathId(0)), (second, PathId(1))] = told[..] else { panic!("{told:?}") };
        assert!((3550..3600).contains(&first) && (first + 50..6500).contains(&second), "{told:?}");
    }

    #[test]
    fn of_two_paths_that_both_brought_something_neither_is_blamed() {
        let both = |until: u64, far_is_there: bool| {
            let mut arrivals = Arrivals::default();
            let mut told = Vec::new();
            for ms in (0..4000u64).step_by(10) {
                let now = Instant::from_millis(ms);
                let (near, far) = (ms.min(until) / 20 * 200, ms.clamp(until, 3500) / 20 * 200);
                told.extend(arrivals.observe(now, PathId(1), &sample(1, far, false)).map(|told| told.path));
                if ms < 1000 || far_is_there {
                    told.extend(arrivals.observe(now, PathId(0), &sample(1, near, false)).map(|told| told.path));
                }
            }
            told
        };
        assert_eq!(both(300, true), []);
        assert_eq!(both(300, false), [PathId(1)], "the other was closed");
    }

    #[test]
    fn one_pause_of_this_machine_breaks_no_rhythm() {
        let late = |ms: u64| if (300..410).contains(&ms) { 300 } else { ms.min(800) };
        let told = hear(&mut Arrivals::default(), 1, 3000, |ms| late(ms) / 20 * 200);
        assert!(told.is_some_and(|ms| (850..900).contains(&ms)), "{told:?}");
    }

    #[test]
    fn what_goes_on_over_another_path_has_not_stopped() {
        let mut arrivals = Arrivals::default();
        for ms in (0..4000u64).step_by(10) {
            let now = Instant::from_millis(ms);
            let (near, far) = (ms.min(2000) / 20 * 200, ms.saturating_sub(2000) / 20 * 200);
            assert_eq!(arrivals.observe(now, PathId(1), &sample(1, far, false)), None);
            assert_eq!(arrivals.observe(now, PathId(0), &sample(1, near, false)), None);
        }
    }
}
