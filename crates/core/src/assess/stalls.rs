//! Subflows that wait in vain for acknowledgements, and whose affair that is:
//! the path's, or their own.
//!
//! A path is judged over all its subflows and peers. What was sent after a
//! stalled subflow's data and came through excuses the path: that one's peer, or
//! what lies before it, is at fault. Where others made progress a moment ago and
//! have not yet anything to say, a lone witness waits a little for them.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Stuck;
use crate::mptcp::manager::{self, MAX_CONNECTIONS};
use crate::path::Transport;
use crate::time::{Duration, Instant};

/// Subflows watched at a time: all that the path manager follows. Connections for
/// which it has no room it counts.
pub const MAX_SUBFLOWS: usize = manager::MAX_SUBFLOWS * MAX_CONNECTIONS;
/// A subflow that was not seen for so long is gone.
const GONE: Duration = Duration::from_secs(5);
/// How often those that are gone are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// How long the peer may keep an acknowledgement back while it has but one
/// segment to acknowledge (RFC 9293 §3.8.6.3; Linux: TCP_DELACK_MIN).
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// How much later than it happened a thing may be seen: the period of looks.
const LOOK: Duration = Duration::from_millis(10);
/// Others that made progress so lately are asked for their word.
const COMPANY: Duration = Duration::from_millis(200);
/// How much longer a lone witness waits for it.
const GRACE: Duration = Duration::from_millis(60);
/// So long the word of a peer that once accused a path wrongly counts only with
/// that of another.
const DISTRUST: Duration = Duration::from_secs(600);
/// Peers distrusted at a time; the one longest so makes room.
const MAX_DISTRUSTED: usize = 64;
/// Subflows told as stuck and not yet fetched.
const MAX_UNTOLD: usize = MAX_SUBFLOWS;

/// A connection, and the peer's end of its subflow.
type Key = (u32, SocketAddr);

/// What a sample tells of its path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Something that was sent to this peer at this time came through.
    Alive(IpAddr, Instant),
    /// The path carries nothing.
    Stuck {
        /// How long the witness waited.
        waited: Duration,
        /// How long it would have been allowed to.
        patience: Duration,
        /// Subflows that bear witness.
        witnesses: u32,
    },
}

/// The subflows over one path.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalls {
    subflows: BTreeMap<Key, Progress>,
    peers: BTreeMap<IpAddr, u32>,
    swept: Instant,
    /// When the latest thing was sent that came through.
    alive: Option<Instant>,
    movers: Latest<Key>,
    moving_peers: Latest<IpAddr>,
    witnesses: Witnesses,
    distrusted: BTreeMap<IpAddr, Instant>,
    stuck: VecDeque<Stuck>,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    seen: Instant,
    delivered: u32,
    accepted: bool,
    /// Since when it waits; and since when the path may be blamed for it.
    waiting_since: Option<Instant>,
    patient_since: Instant,
    /// True until the first acknowledgement after a pause.
    first: bool,
    /// The silence it last bore witness of.
    silence: u64,
    told: bool,
}

/// Who waits in vain since anything last came through.
#[derive(Clone, Copy, Debug, Default)]
struct Witnesses {
    silence: u64,
    count: u32,
    peer: Option<IpAddr>,
    several_peers: bool,
}

/// The two that came last.
#[derive(Clone, Copy, Debug)]
struct Latest<K>([Option<(K, Instant)>; 2]);

impl<K> Default for Latest<K> {
    fn default() -> Latest<K> {
        Latest([None, None])
    }
}

impl<K: Copy + PartialEq> Latest<K> {
    fn note(&mut self, who: K, now: Instant) {
        if self.0[0].is_some_and(|(first, _)| first != who) {
            self.0[1] = self.0[0];
        }
        self.0[0] = Some((who, now));
    }

    /// True if another than `who` came within `span`.
    fn other_within(&self, who: K, now: Instant, span: Duration) -> bool {
        self.0.iter().flatten().any(|&(other, at)| other != who && now.since(at) <= span)
    }
}

impl Stalls {
    /// Takes a sample; `margin` is the patience beyond the round-trip time and
    /// four times its deviation.
    pub(super) fn watch(&mut self, now: Instant, transport: &Transport, margin: Duration) -> Option<Verdict> {
        self.sweep(now);
        let key = (transport.token, transport.peer);
        let Some(progress) = self.subflows.get_mut(&key) else { return self.meet(now, transport) };
        let (last_look, since) = (progress.seen, progress.waiting_since);
        let moved = progress.delivered != transport.delivered;
        (progress.seen, progress.delivered) = (now, transport.delivered);
        let sent = moved.then(|| match since {
            None => last_look,
            Some(since) if progress.first => since - LOOK,
            Some(_) => now - (transport.rtt + transport.rttvar * 4 + delayed(transport)),
        });
        progress.first = !moved && (progress.first || since.is_none());
        if transport.unacked == 0 {
            progress.waiting_since = None;
        } else if moved || since.is_none() {
            progress.wait_from(now);
        }
        if let Some(sent) = sent {
            return Some(self.come_through(now, key, sent));
        }
        if transport.unacked == 0 { None } else { self.judge(now, key, transport, margin) }
    }

    /// A subflow that is new has just shaken hands.
    fn meet(&mut self, now: Instant, transport: &Transport) -> Option<Verdict> {
        if self.subflows.len() >= MAX_SUBFLOWS {
            return None;
        }
        let waiting_since = (transport.unacked > 0).then_some(now);
        let (delivered, silence) = (transport.delivered, self.witnesses.silence);
        let fresh = Progress {
            seen: now,
            delivered,
            accepted: transport.accepted,
            waiting_since,
            patient_since: now,
            first: true,
            silence: silence.wrapping_sub(1),
            told: false,
        };
        let key = (transport.token, transport.peer);
        self.subflows.insert(key, fresh);
        *self.peers.entry(key.1.ip()).or_default() += 1;
        Some(self.come_through(now, key, now - (transport.rtt + LOOK)))
    }

    fn come_through(&mut self, now: Instant, key: Key, sent: Instant) -> Verdict {
        self.alive = self.alive.max(Some(sent));
        self.movers.note(key, now);
        self.moving_peers.note(key.1.ip(), now);
        self.witnesses = Witnesses { silence: self.witnesses.silence + 1, ..Witnesses::default() };
        Verdict::Alive(key.1.ip(), sent)
    }

    fn judge(&mut self, now: Instant, key: Key, transport: &Transport, margin: Duration) -> Option<Verdict> {
        let peer = key.1.ip();
        let progress = self.subflows.get_mut(&key)?;
        let since = progress.waiting_since?;
        let patience = transport.rtt + transport.rttvar * 4 + margin + delayed(transport);
        let waited = now.since(progress.patient_since);
        if transport.accepted || self.alive.is_some_and(|sent| sent > since + LOOK + delayed(transport)) {
            let hopeless = now.since(since) > patience;
            if hopeless && (!transport.accepted || self.has_another(now, key, patience)) {
                self.tell(key);
            }
            return None;
        }
        if waited <= patience {
            return None;
        }
        if progress.silence != self.witnesses.silence {
            progress.silence = self.witnesses.silence;
            self.witnesses.add(peer);
        }
        let believed = !self.is_doubtful(now, peer);
        let heard = !self.moving_peers.other_within(peer, now, COMPANY) && believed;
        let several = self.witnesses.count >= 2 && (self.witnesses.several_peers || heard);
        let alone = !self.movers.other_within(key, now, COMPANY) || waited > patience + GRACE;
        (several || (alone && believed)).then_some(Verdict::Stuck { waited, patience, witnesses: self.witnesses.count })
    }

    /// True if the connection has another subflow here that does not wait as long.
    fn has_another(&self, now: Instant, key: Key, patience: Duration) -> bool {
        const LEAST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let own = self.subflows.range((key.0, LEAST)..).take_while(|((token, _), _)| *token == key.0);
        let waits = |progress: &Progress| progress.waiting_since.is_some_and(|since| now.since(since) > patience);
        own.filter(|(other, _)| **other != key).any(|(_, progress)| !waits(progress))
    }

    /// True if there are subflows over which nothing is under way.
    pub(super) fn has_idle(&self) -> bool {
        self.subflows.values().any(|progress| progress.waiting_since.is_none())
    }

    /// Tells of a subflow as stuck, once.
    pub(super) fn tell(&mut self, key: Key) {
        if self.stuck.len() < MAX_UNTOLD
            && let Some(progress) = self.subflows.get_mut(&key).filter(|progress| !progress.told)
        {
            progress.told = true;
            self.stuck.push_back(Stuck { token: key.0, peer: key.1 });
        }
    }

    /// True of a peer that accused the path wrongly, while there are others.
    fn is_doubtful(&self, now: Instant, peer: IpAddr) -> bool {
        self.peers.len() > 1 && self.distrusted.get(&peer).is_some_and(|until| now < *until)
    }

    /// True if something that was sent after `then` came through.
    pub(super) fn alive_since(&self, then: Instant) -> bool {
        self.alive.is_some_and(|sent| sent > then)
    }

    /// Subflows that wait for an acknowledgement, of connections begun here.
    pub(super) fn waiting(&self) -> usize {
        let waits = |progress: &&Progress| !progress.accepted && progress.waiting_since.is_some();
        self.subflows.values().filter(waits).count()
    }

    /// The peer that alone bears witness; `None` where there are several.
    pub(super) fn accuser(&self) -> Option<IpAddr> {
        self.witnesses.peer.filter(|_| !self.witnesses.several_peers)
    }

    /// This peer accused the path wrongly.
    pub(super) fn distrust(&mut self, now: Instant, peer: IpAddr) {
        if self.distrusted.len() >= MAX_DISTRUSTED
            && let Some(oldest) = self.distrusted.iter().min_by_key(|(_, until)| **until).map(|(peer, _)| *peer)
        {
            self.distrusted.remove(&oldest);
        }
        self.distrusted.insert(peer, now + DISTRUST);
    }

    /// The path is tried again: what is still stuck is given as long as before.
    pub(super) fn try_again(&mut self, now: Instant) {
        self.witnesses = Witnesses { silence: self.witnesses.silence + 1, ..Witnesses::default() };
        for progress in self.subflows.values_mut().filter(|progress| progress.waiting_since.is_some()) {
            progress.patient_since = now;
        }
    }

    /// The next subflow that is stuck while its path is not.
    pub(super) fn poll_stuck(&mut self) -> Option<Stuck> {
        self.stuck.pop_front()
    }

    fn sweep(&mut self, now: Instant) {
        if now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let Stalls { subflows, peers, .. } = self;
        subflows.retain(|_, progress| now.since(progress.seen) < GONE);
        peers.clear();
        for (_, peer) in subflows.keys() {
            *peers.entry(peer.ip()).or_default() += 1;
        }
    }
}

impl Progress {
    fn wait_from(&mut self, now: Instant) {
        (self.waiting_since, self.patient_since, self.told) = (Some(now), now, false);
    }
}

impl Witnesses {
    fn add(&mut self, peer: IpAddr) {
        self.count += 1;
        self.several_peers |= self.peer.is_some_and(|first| first != peer);
        self.peer.get_or_insert(peer);
    }
}

fn delayed(transport: &Transport) -> Duration {
    if transport.unacked < 2 { DELAYED_ACK } else { Duration::ZERO }
}

#[cfg(test)]
mod tests;
