//! Subflows whose data stays unacknowledged, and whether the path or the subflow is at
//! fault.
//!
//! A path is assessed over all its subflows and peers. Data sent after a stalled
//! subflow's data and acknowledged clears the path: that subflow's peer, or the network
//! behind the path, is at fault. If others made progress recently and have nothing
//! overdue yet, a single timed-out subflow waits briefly for confirmation.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{DELAYED_ACK, EXPIRY, SAMPLE_INTERVAL, StalledSubflow, check_is_due};
use crate::mptcp::manager::{self, MAX_CONNECTIONS};
use crate::path::Transport;
use crate::time::{Duration, Instant};

/// Maximum number of subflows observed: all that the path manager follows; connections
/// beyond its limit it only counts.
pub const MAX_SUBFLOWS: usize = manager::MAX_SUBFLOWS * MAX_CONNECTIONS;
/// If another made progress within this time, its confirmation is required.
const RECENT_PROGRESS: Duration = Duration::from_millis(200);
/// How much longer a single timed-out subflow waits for it.
const CONFIRMATION_WAIT: Duration = Duration::from_millis(60);
/// For this long, a peer that caused a false positive needs confirmation by another.
const DISTRUST: Duration = Duration::from_secs(600);
/// Maximum number of distrusted peers; the oldest entry is replaced.
const MAX_DISTRUSTED: usize = 64;

/// A connection, and the peer's address of its subflow.
type Key = (u32, SocketAddr);

/// The result of a sample for its path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Data sent to this peer at this time was acknowledged.
    Alive(IpAddr, Instant),
    /// The path carries no data.
    Stalled {
        /// How long the subflow has waited.
        waited: Duration,
        /// The time allowed.
        timeout: Duration,
        /// Subflows that have timed out.
        timed_out: u32,
    },
}

/// The subflows over one path.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalls {
    subflows: BTreeMap<Key, Progress>,
    peers: BTreeSet<IpAddr>,
    swept: Instant,
    /// Latest send time of acknowledged data.
    delivered_until: Option<Instant>,
    progressed: Latest<Key>,
    progressed_peers: Latest<IpAddr>,
    timed_out: TimedOut,
    distrusted: BTreeMap<IpAddr, Instant>,
    stalled: VecDeque<StalledSubflow>,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    observed: Instant,
    delivered: u32,
    bytes_received: u64,
    accepted: bool,
    /// Start of its wait, and start of the wait that counts for the path.
    waiting_since: Option<Instant>,
    counted_since: Instant,
    /// True until the first acknowledgement after a pause.
    first: bool,
    /// The silent period in which it last timed out.
    silent_period: u64,
    is_reported: bool,
}

impl Progress {
    /// Whether these are statistics of the same subflow, and not of one that took its place.
    fn is_of(&self, transport: &Transport) -> bool {
        (transport.delivered.wrapping_sub(self.delivered) as i32) >= 0
            && transport.bytes_received >= self.bytes_received
    }
}

/// The subflows that have timed out since data was last acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct TimedOut {
    silent_period: u64,
    count: u32,
    peer: Option<IpAddr>,
    several_peers: bool,
}

/// The two latest distinct keys.
type Latest<K> = [Option<(K, Instant)>; 2];

fn record<K: Copy + PartialEq>(latest: &mut Latest<K>, key: K, now: Instant) {
    if latest[0].is_some_and(|(first, _)| first != key) {
        latest[1] = latest[0];
    }
    latest[0] = Some((key, now));
}

/// True if a key other than `key` was recorded recently.
fn has_other<K: PartialEq>(latest: &Latest<K>, key: K, now: Instant) -> bool {
    latest.iter().flatten().any(|(other, at)| *other != key && now.since(*at) <= RECENT_PROGRESS)
}

impl Stalls {
    /// Processes a sample; `margin` is the timeout beyond the round-trip time and four
    /// times its deviation.
    pub(super) fn watch(&mut self, now: Instant, transport: &Transport, margin: Duration) -> Option<Verdict> {
        if check_is_due(&mut self.swept, now) {
            let before = self.subflows.len();
            self.subflows.retain(|_, progress| now.since(progress.observed) < EXPIRY);
            if self.subflows.len() < before {
                self.peers = self.subflows.keys().map(|(_, peer)| peer.ip()).collect();
            }
        }
        let key = (transport.token, transport.peer);
        let is_same = |progress: &&mut Progress| progress.is_of(transport);
        let Some(progress) = self.subflows.get_mut(&key).filter(is_same) else { return self.add(now, transport) };
        let (last_sample, since) = (progress.observed, progress.waiting_since);
        let moved = progress.delivered != transport.delivered;
        (progress.observed, progress.delivered) = (now, transport.delivered);
        progress.bytes_received = transport.bytes_received;
        let sent = moved.then(|| match since {
            None => last_sample,
            Some(since) if progress.first => since - SAMPLE_INTERVAL,
            Some(_) => now - (transport.rtt + transport.rttvar * 4 + delayed(transport)),
        });
        progress.first = !moved && (progress.first || since.is_none());
        if transport.unacked == 0 {
            progress.waiting_since = None;
        } else if moved || since.is_none() {
            (progress.waiting_since, progress.counted_since, progress.is_reported) = (Some(now), now, false);
        }
        match sent {
            Some(sent) => Some(self.on_delivery(now, key, sent)),
            None => self.check_timeout(now, key, transport, margin),
        }
    }

    /// Adds a new subflow, whose handshake has just completed.
    fn add(&mut self, now: Instant, transport: &Transport) -> Option<Verdict> {
        let key = (transport.token, transport.peer);
        if self.subflows.len() >= MAX_SUBFLOWS && !self.subflows.contains_key(&key) {
            return None;
        }
        let fresh = Progress {
            observed: now,
            delivered: transport.delivered,
            bytes_received: transport.bytes_received,
            accepted: transport.accepted,
            waiting_since: (transport.unacked > 0).then_some(now),
            counted_since: now,
            first: true,
            silent_period: self.timed_out.silent_period.wrapping_sub(1),
            is_reported: false,
        };
        self.subflows.insert(key, fresh);
        self.peers.insert(key.1.ip());
        Some(self.on_delivery(now, key, now - (transport.rtt + SAMPLE_INTERVAL)))
    }

    fn on_delivery(&mut self, now: Instant, key: Key, sent: Instant) -> Verdict {
        self.delivered_until = self.delivered_until.max(Some(sent));
        record(&mut self.progressed, key, now);
        record(&mut self.progressed_peers, key.1.ip(), now);
        self.timed_out = TimedOut { silent_period: self.timed_out.silent_period + 1, ..TimedOut::default() };
        Verdict::Alive(key.1.ip(), sent)
    }

    fn check_timeout(&mut self, now: Instant, key: Key, transport: &Transport, margin: Duration) -> Option<Verdict> {
        let peer = key.1.ip();
        let progress = self.subflows.get_mut(&key)?;
        let since = progress.waiting_since?;
        let timeout = transport.rtt + transport.rttvar * 4 + margin + delayed(transport);
        let waited = now.since(progress.counted_since);
        if transport.accepted
            || self.delivered_until.is_some_and(|sent| sent > since + SAMPLE_INTERVAL + delayed(transport))
        {
            if now.since(since) > timeout && (!transport.accepted || self.has_another(now, key, timeout)) {
                self.report(key);
            }
            return None;
        }
        if waited <= timeout {
            return None;
        }
        if progress.silent_period != self.timed_out.silent_period {
            progress.silent_period = self.timed_out.silent_period;
            self.timed_out.count += 1;
            self.timed_out.several_peers |= *self.timed_out.peer.get_or_insert(peer) != peer;
        }
        let is_trusted = !self.is_distrusted(now, peer);
        let is_only_peer = !has_other(&self.progressed_peers, peer, now) && is_trusted;
        let is_confirmed = self.timed_out.count >= 2 && (self.timed_out.several_peers || is_only_peer);
        let needs_no_other = !has_other(&self.progressed, key, now) || waited > timeout + CONFIRMATION_WAIT;
        (is_confirmed || (needs_no_other && is_trusted)).then_some(Verdict::Stalled {
            waited,
            timeout,
            timed_out: self.timed_out.count,
        })
    }

    /// True if the connection has another subflow on this path that has not timed out.
    fn has_another(&self, now: Instant, key: Key, timeout: Duration) -> bool {
        const FIRST_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let own = self.subflows.range((key.0, FIRST_PEER)..).take_while(|((token, _), _)| *token == key.0);
        let waits = |progress: &Progress| progress.waiting_since.is_some_and(|since| now.since(since) > timeout);
        own.filter(|(other, _)| **other != key).any(|(_, progress)| !waits(progress))
    }

    /// True if some subflows have nothing in flight.
    pub(super) fn has_idle(&self) -> bool {
        self.subflows.values().any(|progress| progress.waiting_since.is_none())
    }

    /// Reports a subflow as stalled, once.
    pub(super) fn report(&mut self, key: Key) {
        if self.stalled.len() < MAX_SUBFLOWS
            && let Some(progress) = self.subflows.get_mut(&key).filter(|progress| !progress.is_reported)
        {
            progress.is_reported = true;
            self.stalled.push_back(StalledSubflow { token: key.0, peer: key.1 });
        }
    }

    /// True for a peer that caused a false positive, while there are others.
    fn is_distrusted(&self, now: Instant, peer: IpAddr) -> bool {
        self.peers.len() > 1 && self.distrusted.get(&peer).is_some_and(|until| now < *until)
    }

    /// True if data sent after `then` was acknowledged.
    pub(super) fn delivered_since(&self, then: Instant) -> bool {
        self.delivered_until.is_some_and(|sent| sent > then)
    }

    /// Number of subflows that wait for an acknowledgement, of connections initiated
    /// here.
    pub(super) fn waiting(&self) -> usize {
        let waits = |progress: &&Progress| !progress.accepted && progress.waiting_since.is_some();
        self.subflows.values().filter(waits).count()
    }

    /// The peer of all timed-out subflows; `None` if there are several.
    pub(super) fn sole_peer(&self) -> Option<IpAddr> {
        self.timed_out.peer.filter(|_| !self.timed_out.several_peers)
    }

    /// This peer caused a false positive.
    pub(super) fn distrust(&mut self, now: Instant, peer: IpAddr) {
        if self.distrusted.len() >= MAX_DISTRUSTED
            && let Some(oldest) = self.distrusted.iter().min_by_key(|(_, until)| **until).map(|(peer, _)| *peer)
        {
            self.distrusted.remove(&oldest);
        }
        self.distrusted.insert(peer, now + DISTRUST);
    }

    /// The path is used again: the timeout of subflows that still wait restarts.
    pub(super) fn restart(&mut self, now: Instant) {
        self.timed_out = TimedOut { silent_period: self.timed_out.silent_period + 1, ..TimedOut::default() };
        for progress in self.subflows.values_mut().filter(|progress| progress.waiting_since.is_some()) {
            progress.counted_since = now;
        }
    }

    /// The next stalled subflow whose path is not stalled.
    pub(super) fn poll_stalled(&mut self) -> Option<StalledSubflow> {
        self.stalled.pop_front()
    }
}

fn delayed(transport: &Transport) -> Duration {
    if transport.unacked < 2 { DELAYED_ACK } else { Duration::ZERO }
}

#[cfg(test)]
mod tests;
