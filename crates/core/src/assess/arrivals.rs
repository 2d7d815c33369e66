//! What comes down: a rhythm that breaks off.
//!
//! Who only receives has nothing unacknowledged, and the peer's kernel needs
//! 0.2 s and more to see that what it sends gets lost. But messages that came
//! regularly and stop, on all subflows of their connection at once, tell as much:
//! either the peer has ended, or the path they came over is lost. Only a rhythm is
//! believed, of pauses that one look after the other can tell apart; each time it
//! breaks off the connection must be silent for twice as long.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::SocketAddr;

use crate::mptcp::manager::{MAX_CONNECTIONS, MAX_SUBFLOWS};
use crate::path::{PathId, Transport};
use crate::time::{Duration, Instant};

/// Pauses remembered; so many make a rhythm.
const PAUSES: usize = 32;
/// The mean pause of a rhythm: shorter ones are a transfer's, whose end says
/// nothing, longer ones would be found out too late.
const MEAN: (Duration, Duration) = (Duration::from_millis(15), Duration::from_millis(200));
/// The longest pause of a rhythm, as a multiple of the mean.
const REGULAR: u32 = 3;
/// Beyond twice the longest pause and the round trip, so much is waited.
const MARGIN: Duration = Duration::from_millis(20);
/// The wait doubles so often at most.
const MAX_DOUBLINGS: u32 = 6;
/// What came over the path so long after the last message excuses it.
const LATER: Duration = Duration::from_millis(20);
/// A connection that was not seen for so long is gone, and how often those are
/// looked for.
const GONE: Duration = Duration::from_secs(5);
const SWEEP: Duration = Duration::from_secs(1);

/// A rhythm that broke off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Break {
    /// The path that the last messages came over.
    pub path: PathId,
    /// When the last one came.
    pub last: Instant,
    /// How long nothing has come.
    pub waited: Duration,
    /// The longest pause before.
    pub longest: Duration,
}

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
    received: BTreeMap<(PathId, SocketAddr), u64>,
    last: Instant,
    path: PathId,
    pauses: VecDeque<Duration>,
    doublings: u32,
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
        flow.breaks_off(now, transport)
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
        Flow { seen: now, received: BTreeMap::new(), last: now, path, pauses: VecDeque::new(), doublings: 0 }
    }

    /// True if something came.
    fn take(&mut self, now: Instant, path: PathId, transport: &Transport) -> bool {
        self.seen = now;
        let key = (path, transport.peer);
        if self.received.len() >= MAX_SUBFLOWS && !self.received.contains_key(&key) {
            self.received.clear();
        }
        let before = self.received.insert(key, transport.bytes_received);
        if before.is_none_or(|before| before >= transport.bytes_received) {
            return false;
        }
        // A backup carries what another cannot, at no rhythm of its own.
        if self.path != path || transport.backup {
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
        self.pauses.clear();
        Some(Break { path: self.path, last: self.last, waited, longest })
    }

    /// The longest pause of what came regularly.
    fn rhythm(&self) -> Option<Duration> {
        if self.pauses.len() < PAUSES {
            return None;
        }
        let mean = self.pauses.iter().sum::<Duration>() / PAUSES as u32;
        let longest = self.pauses.iter().max().copied()?;
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
