//! Joins (MP_JOIN, RFC 8684 section 3.2) over a path to a peer that fail again and again: its network lets none pass.
//!
//! After [`MANY_FAILED`] failures without a success the attempts of all connections become rare: one of them tries after
//! a pause, which doubles, and the others wait for the result. A connection without any subflow still tries as if it
//! were alone. A success, another address of the path, and the return of a lost path end it; if there was no answer, a
//! path that is to carry again has one attempt at once.
//!
//! The kernel repeats a SYN after 1 s. Where the last join over the path took much less, and the path is to carry, the
//! first attempts are given up sooner, and begun again at once: a lost SYN costs the time of some RTTs.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::backoff::Backoff;
use crate::path::PathId;
use crate::reason::Reason;
use crate::recent::push_recent;
use crate::small_map::SmallMap;
use crate::time::{Duration, Instant};

/// An attempt to open a subflow times out after this time: the SYN, two retransmissions
/// (1 s and 2 s later), and an answer.
pub(super) const JOIN_TIMEOUT: Duration = Duration::from_millis(3500);
/// So many attempts in a row time out sooner: the first after so many handshake times, and after this time at
/// least (the minimum RTO of Linux), each further one after twice the time.
const SHORT_ATTEMPTS: u32 = 3;
const HANDSHAKES: u32 = 4;
const MIN_TIMEOUT: Duration = Duration::from_millis(200);
/// The kernel repeats a SYN after this time.
const SYN_TIMEOUT: Duration = Duration::from_secs(1);
/// Consecutive failures over a path to a peer from which on attempts are rare.
const MANY_FAILED: u32 = 3;
/// Maximum number of pairs of path and peer; the oldest makes room.
const MAX_PAIRS: usize = 64;
/// First pause, and the longest; it doubles. After answers without MPTCP: the network works, and is as it is.
const PAUSES: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(600)];
/// The same without an answer, which a path out of reach may explain too: what waits for it waits as long.
const SILENT_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// Why a join failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinFailure {
    /// The peer's answer had no MP_JOIN.
    WithoutMptcp,
    /// There was no answer.
    Unanswered,
}

/// What became of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinOutcome {
    /// It is requested of the kernel.
    Requested,
    /// The subflow is established, so long after the request.
    Opened(Duration),
    /// It failed.
    Failed(JoinFailure),
}

/// Joins over a path to a peer.
#[derive(Clone, Copy, Debug)]
struct Pair {
    path: PathId,
    peer: IpAddr,
    failures: u32,
    last: JoinFailure,
    pause: Backoff,
    /// True while one connection tries, for all.
    is_trying: bool,
}

/// The joins that failed, by path and peer.
#[derive(Debug, Default)]
pub(super) struct Joins {
    pairs: VecDeque<Pair>,
    /// Paths that were reported as letting none pass.
    reported: Vec<PathId>,
    /// How long the last join over each path took.
    took: SmallMap<PathId, Duration>,
}

/// What changed of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinChange {
    /// Its network lets no joins pass.
    Blocked,
    /// It lets them pass again.
    Passes,
}

impl Joins {
    /// The earliest next join over a path to a peer.
    pub fn not_before(&self, path: PathId, peer: IpAddr) -> Instant {
        let pair = self.pairs.iter().find(|pair| (pair.path, pair.peer) == (path, peer));
        pair.filter(|pair| pair.is_blocked()).map_or(Instant::ZERO, |pair| pair.pause.not_before)
    }

    /// How long an attempt may take to open a path that is to carry, after so many others in a row.
    pub fn timeout(&self, path: PathId, failures: u32) -> Duration {
        let took = self.took.get(path).filter(|_| failures < SHORT_ATTEMPTS);
        took.map_or(JOIN_TIMEOUT, |took| ((*took * HANDSHAKES).max(MIN_TIMEOUT) * (1 << failures)).min(JOIN_TIMEOUT))
    }

    pub fn observe(&mut self, now: Instant, path: PathId, peer: IpAddr, what: JoinOutcome) -> Option<JoinChange> {
        let place = self.pairs.iter().position(|pair| (pair.path, pair.peer) == (path, peer));
        match (what, place) {
            (JoinOutcome::Requested, Some(place)) => {
                let pair = &mut self.pairs[place];
                if pair.is_blocked() && now >= pair.pause.not_before {
                    (pair.is_trying, pair.pause.not_before) = (true, now + JOIN_TIMEOUT);
                }
                None
            }
            (JoinOutcome::Requested, None) => None,
            (JoinOutcome::Opened(took), place) => {
                if took < SYN_TIMEOUT {
                    self.took.insert(path, took);
                }
                place.map(|place| self.pairs.remove(place));
                let is_left = self.pairs.iter().any(|pair| pair.path == path && pair.is_blocked());
                (!is_left && self.take_reported(path)).then_some(JoinChange::Passes)
            }
            (JoinOutcome::Failed(failure), place) => {
                let place = place.unwrap_or_else(|| self.add(path, peer, failure));
                self.pairs[place].failed(now, failure);
                if !self.pairs[place].is_blocked() || self.reported.contains(&path) {
                    return None;
                }
                self.reported.push(path);
                Some(JoinChange::Blocked)
            }
        }
    }

    /// The path has another address, and so another network.
    pub fn forget(&mut self, path: PathId) {
        self.pairs.retain(|pair| pair.path != path);
        self.took.remove(path);
        self.take_reported(path);
    }

    /// The path was lost, and is back: joins are tried at once.
    pub fn revive(&mut self, path: PathId) {
        for pair in self.pairs.iter_mut().filter(|pair| pair.path == path) {
            pair.pause = Backoff::default();
        }
    }

    /// The path is to carry, and so is in reach: joins without an answer are tried at once.
    pub fn revive_unanswered(&mut self, path: PathId) {
        let is_unanswered = |pair: &&mut Pair| pair.path == path && pair.last == JoinFailure::Unanswered;
        for pair in self.pairs.iter_mut().filter(is_unanswered) {
            pair.pause.not_before = Instant::ZERO;
        }
    }

    /// Why joins over a path are rare; `None`: they are not.
    pub fn fault(&self, now: Instant, path: PathId, name: &str, carries: impl FnOnce() -> bool) -> Option<Reason> {
        let blocked = self.pairs.iter().filter(|pair| pair.path == path && pair.is_blocked());
        let pair = blocked.max_by_key(|pair| pair.failures)?;
        let next_s = pair.pause.not_before.since(now).as_secs_f64();
        let text = format!("{}; next attempt in {next_s:.0} s", pair.sentence(name, carries()));
        let inputs = [("failures", f64::from(pair.failures)), ("next_s", next_s)];
        Some(Reason::plain(pair.rule(), text).with(inputs))
    }

    /// The rule and the sentence of a path that was just found to be blocked.
    pub fn notice(&self, path: PathId, name: &str, carries: bool) -> Option<(&'static str, String)> {
        let pair = self.pairs.iter().find(|pair| pair.path == path && pair.is_blocked())?;
        Some((pair.rule(), pair.sentence(name, carries)))
    }

    fn take_reported(&mut self, path: PathId) -> bool {
        let before = self.reported.len();
        self.reported.retain(|reported| *reported != path);
        self.reported.len() < before
    }

    fn add(&mut self, path: PathId, peer: IpAddr, last: JoinFailure) -> usize {
        let pair = Pair { path, peer, failures: 0, last, pause: Backoff::default(), is_trying: false };
        push_recent(&mut self.pairs, MAX_PAIRS, pair);
        self.pairs.len() - 1
    }
}

impl Pair {
    fn is_blocked(&self) -> bool {
        self.failures >= MANY_FAILED
    }

    /// Failures of joins that others requested before the pause do not make it longer.
    fn failed(&mut self, now: Instant, failure: JoinFailure) {
        (self.failures, self.last) = (self.failures.saturating_add(1), failure);
        let is_first = self.is_blocked() && self.pause.failures == 0;
        if is_first || core::mem::take(&mut self.is_trying) {
            let [first, longest] = match failure {
                JoinFailure::WithoutMptcp => PAUSES,
                JoinFailure::Unanswered => SILENT_PAUSES,
            };
            self.pause.failed(now, first, longest);
        }
    }

    fn rule(&self) -> &'static str {
        match self.last {
            JoinFailure::WithoutMptcp => "network.strips-mp-join",
            JoinFailure::Unanswered => "network.no-answer",
        }
    }

    fn sentence(&self, name: &str, carries: bool) -> String {
        let Pair { peer, failures, .. } = self;
        match self.last {
            JoinFailure::WithoutMptcp => format!(
                "{failures} answers of {peer} to joins over {name} had no MP_JOIN: a middlebox of its network removes the \
                 option, and no connection gets a further subflow over it"
            ),
            JoinFailure::Unanswered if carries => format!(
                "{failures} joins over {name} to {peer} had no answer, and other subflows over it live: its network drops \
                 SYNs with MP_JOIN, and no connection gets a further subflow over it"
            ),
            JoinFailure::Unanswered => format!(
                "{failures} joins over {name} to {peer} had no answer: its network drops SYNs with MP_JOIN, or carries \
                 nothing"
            ),
        }
    }
}
