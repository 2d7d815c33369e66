//! Authentication and encryption: a Noise handshake that is repeated every two
//! minutes, and sessions in which every packet is encrypted, decrypted once,
//! and never accepted twice.
//!
//! [`Security`] knows no socket and no clock. Its caller sends the output of [`initiate`]
//! and [`receive`] over any number of paths, and uses the source address of
//! a datagram that a [`Session`] opens as the peer's.
//!
//! Unknown peers get no answer. The checks are in the order of their cost:
//! length, a hash that requires this endpoint's public key, look-ups in the tables of
//! responses and of initiations opened before, a rate limit, and only then
//! public-key work.
//!
//! [`initiate`]: Security::initiate
//! [`receive`]: Security::receive

mod handshake;
mod keys;
mod known;
mod message;
mod peer;
mod rate_limit;
mod reject;
mod session;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crosslane_core::time::Instant;
use ring::rand::{SecureRandom, SystemRandom};

use handshake::Introduction;
use known::Known;
use message::{INDEX_BYTES, Index, Mac1, Message};
use peer::{Peer, Pending};
use rate_limit::RateLimit;

pub use handshake::{initiator, peer_of, responder};
pub use keys::{KEY_BYTES, KEY_CHARACTERS, KeyFault, PrivateKey, PublicKey};
pub use message::is_data;
pub use reject::RejectReason;
pub use session::{
    DATA_OVERHEAD_BYTES, Opened, PATHS, REFUSE_AFTER_MESSAGES, REJECT_AFTER, REKEY_AFTER, REKEY_AFTER_MESSAGES, Session,
};

/// How long [`Security::initiate`] repeats one initiation: longer than the RTT of any useful path, so
/// that a new initiation does not invalidate a response in flight.
pub const REPEAT_FOR: Duration = Duration::from_secs(5);
/// How long a response is awaited, and repeated to the same initiation: the repetition, and a slow path's delay.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of responses to one initiation: once a second on every path, while it is repeated.
const MAX_RESPONSES: u32 = 5 * PATHS as u32;
/// Attempts to find a free index; with a thousand peers one of 4096 attempts fails.
const MAX_INDEX_ATTEMPTS: usize = 16;

/// Result of a handshake message.
#[derive(Debug)]
pub enum HandshakeEvent {
    /// It is dropped.
    Nothing(RejectReason),
    /// A peer began a handshake: `datagram` must be sent to the source of the message. The session opens datagrams at
    /// once; [`Security::session_for`] returns it for sending after it has opened one.
    Reply {
        /// Index of the peer among those given to [`Security::new`].
        peer: usize,
        /// The response.
        datagram: Vec<u8>,
        /// The new session; the same for repetitions of the same initiation.
        session: Arc<Session>,
    },
    /// A peer responded: there is a new session for sending. It should carry something at once, even an empty message,
    /// since the peer does not send with it before.
    Established {
        /// Index of the peer among those given to [`Security::new`].
        peer: usize,
        /// The new session.
        session: Arc<Session>,
    },
}

/// This endpoint, its peers and their sessions.
pub struct Security {
    private: PrivateKey,
    mac1: Mac1,
    peers: Vec<Peer>,
    by_key: BTreeMap<PublicKey, usize>,
    by_index: BTreeMap<Index, Owner>,
    /// Cached responses, by initiation.
    responses_sent: BTreeMap<Vec<u8>, CachedResponse>,
    known: Known,
    /// Separate, so that a flood of initiations does not delay the responses.
    initiations: RateLimit,
    responses: RateLimit,
    random: SystemRandom,
}

/// The owner of an index.
enum Owner {
    Pending(usize),
    Session(usize, Arc<Session>),
}

impl Owner {
    fn peer(&self) -> usize {
        let (Owner::Pending(peer) | Owner::Session(peer, _)) = self;
        *peer
    }
}

/// A response to an initiation.
struct CachedResponse {
    peer: usize,
    datagram: Vec<u8>,
    session: Arc<Session>,
    since: Instant,
    count: u32,
}

impl Security {
    /// This endpoint with its key, and its peers, each once; a peer is named by its index.
    pub fn new(private: PrivateKey, peers: Vec<PublicKey>) -> Security {
        Security {
            mac1: Mac1::of(&private.public()),
            private,
            by_key: peers.iter().enumerate().map(|(place, key)| (*key, place)).collect(),
            peers: peers.into_iter().map(Peer::new).collect(),
            by_index: BTreeMap::new(),
            responses_sent: BTreeMap::new(),
            known: Known::default(),
            initiations: RateLimit::default(),
            responses: RateLimit::default(),
            random: SystemRandom::new(),
        }
    }

    /// Adds a peer, whose index follows that of the last one.
    pub fn add(&mut self, key: PublicKey) {
        self.by_key.insert(key, self.peers.len());
        self.peers.push(Peer::new(key));
    }

    /// Removes a peer, with its sessions. Its index is never used again.
    pub fn remove(&mut self, peer: usize) {
        let Some(of) = self.peers.get_mut(peer) else { return };
        self.by_key.retain(|_, place| *place != peer);
        *of = Peer::new(of.key);
        self.by_index.retain(|_, owner| owner.peer() != peer);
        self.responses_sent.retain(|_, response| response.peer != peer);
    }

    /// The key of a peer.
    pub fn key_of(&self, peer: usize) -> Option<&PublicKey> {
        self.peers.get(peer).map(|peer| &peer.key)
    }

    /// The public key of this endpoint.
    pub fn public(&self) -> PublicKey {
        self.private.public()
    }

    /// An initiation to send to `peer` over all paths, about once a second until [`HandshakeEvent::Established`]: the
    /// same bytes for [`REPEAT_FOR`], then a new one. `unix_ns` is the time since 1970 in nanoseconds; if it is earlier
    /// than before a restart, the peer may wait for a second before it responds. `None` if there is no such peer or the
    /// system provides no random bytes.
    pub fn initiate(&mut self, now: Instant, unix_ns: u64, peer: usize) -> Option<Vec<u8>> {
        if let Some(pending) = &self.peers.get(peer)?.pending
            && now.since(pending.since) < REPEAT_FOR
        {
            return Some(pending.datagram.clone());
        }
        let index = self.free_index()?;
        let to = self.peers.get_mut(peer)?;
        let introduction = Introduction { index, unix_ns: to.next_unix_ns(unix_ns) };
        let (state, noise) = handshake::initiate(&self.private, &to.key, introduction).ok()?;
        let datagram = to.mac1.initiation(&noise);
        if let Some(expired) = to.pending.replace(Pending { index, state, datagram: datagram.clone(), since: now }) {
            self.by_index.remove(&expired.index);
        }
        self.by_index.insert(index, Owner::Pending(peer));
        Some(datagram)
    }

    /// Processes a datagram that is not [data](is_data).
    pub fn receive(&mut self, now: Instant, datagram: &[u8]) -> HandshakeEvent {
        let event = Message::read(datagram, &self.mac1).and_then(|message| match message {
            Message::Initiation(noise) => self.initiation(now, datagram, noise),
            Message::Response(to, noise) => self.response(now, to, noise),
        });
        event.unwrap_or_else(HandshakeEvent::Nothing)
    }

    /// The session of a data message and its peer. The message is authentic only if the session
    /// [opens](Session::open) it.
    pub fn session_of(&self, now: Instant, datagram: &[u8]) -> Option<(usize, Arc<Session>)> {
        let (index, ..) = message::read_data(datagram).ok()?;
        match self.by_index.get(&index) {
            Some(Owner::Session(peer, session)) if !session.is_over(now) => Some((*peer, session.clone())),
            _ => None,
        }
    }

    /// The session for sending to `peer`, if there is one. It must be requested again every second or so: another
    /// replaces it after [`REKEY_AFTER`].
    pub fn session_for(&self, now: Instant, peer: usize) -> Option<Arc<Session>> {
        self.peers.get(peer)?.sending(now).cloned()
    }

    /// Whether an initiator should [`initiate`](Security::initiate): there is no session for sending, or this endpoint
    /// initiated it and it is old enough.
    pub fn wants_rekey(&self, now: Instant, peer: usize) -> bool {
        let Some(peer) = self.peers.get(peer) else { return false };
        peer.sending(now).is_none_or(|session| session.wants_rekey(now))
    }

    /// Removes sessions and handshakes that have expired, and their keys. Must be called every few seconds.
    pub fn expire(&mut self, now: Instant) {
        for peer in &mut self.peers {
            let is_over = |pending: &mut Pending| now.since(pending.since) >= RESPONSE_TIMEOUT;
            if let Some(pending) = peer.pending.take_if(is_over) {
                self.by_index.remove(&pending.index);
            }
            for session in peer.expire(now) {
                self.by_index.remove(&session.own);
            }
        }
        self.responses_sent.retain(|_, answer| now.since(answer.since) < RESPONSE_TIMEOUT);
    }

    fn initiation(&mut self, now: Instant, datagram: &[u8], noise: &[u8]) -> Result<HandshakeEvent, RejectReason> {
        if let Some(answer) = self.responses_sent.get_mut(datagram) {
            return answer.repeat(now);
        }
        if self.known.rejects(now, noise) {
            return Err(RejectReason::Replayed);
        }
        if !self.initiations.take(now) {
            return Err(RejectReason::Flood);
        }
        let (state, key, introduction) = handshake::read_initiation(&self.private, noise)?;
        let peer = *self.by_key.get(&key).ok_or(RejectReason::Stranger)?;
        let from = self.peers.get_mut(peer).ok_or(RejectReason::Stranger)?;
        let age = from.admit(now, introduction.unix_ns).map_err(|due| {
            self.known.remember(peer, noise, Some(due));
            RejectReason::Flood
        })?;
        self.known.remember(peer, noise, None);
        let own = self.free_index().ok_or(RejectReason::Flood)?;
        let (transport, noise) = handshake::respond(state, own).map_err(|_| RejectReason::Forged)?;
        let session = Arc::new(Session::new(transport, (own, introduction.index), now, false));
        let from = self.peers.get_mut(peer).ok_or(RejectReason::Stranger)?;
        let displaced = from.keep_unconfirmed(session.clone(), age, introduction.unix_ns);
        let reply = from.mac1.response(introduction.index, &noise);
        if let Some(older) = from.last_initiations[age as usize].replace(datagram.to_vec()) {
            self.responses_sent.remove(&older);
        }
        self.keep(peer, &session, displaced);
        let answer = CachedResponse { peer, datagram: reply.clone(), session: session.clone(), since: now, count: 1 };
        self.responses_sent.insert(datagram.to_vec(), answer);
        Ok(HandshakeEvent::Reply { peer, datagram: reply, session })
    }

    fn response(&mut self, now: Instant, to: Index, noise: &[u8]) -> Result<HandshakeEvent, RejectReason> {
        let Some(&Owner::Pending(peer)) = self.by_index.get(&to) else { return Err(RejectReason::Unasked) };
        let from = self.peers.get_mut(peer).ok_or(RejectReason::Unasked)?;
        let pending = from.pending.as_mut().ok_or(RejectReason::Unasked)?;
        if !self.responses.take(now) {
            return Err(RejectReason::Flood);
        }
        let remote = handshake::read_response(&mut pending.state, noise)?;
        let pending = from.pending.take().ok_or(RejectReason::Unasked)?;
        self.by_index.remove(&to);
        let transport = pending.state.into_stateless_transport_mode().map_err(|_| RejectReason::Forged)?;
        let session = Arc::new(Session::new(transport, (to, remote), now, true));
        let displaced = from.keep(session.clone());
        self.keep(peer, &session, displaced);
        Ok(HandshakeEvent::Established { peer, session })
    }

    fn keep(&mut self, peer: usize, session: &Arc<Session>, displaced: Vec<Arc<Session>>) {
        self.by_index.insert(session.own, Owner::Session(peer, session.clone()));
        for session in displaced {
            self.by_index.remove(&session.own);
        }
    }

    fn free_index(&self) -> Option<Index> {
        for _ in 0..MAX_INDEX_ATTEMPTS {
            let mut bytes = [0; INDEX_BYTES];
            self.random.fill(&mut bytes).ok()?;
            if !self.by_index.contains_key(&Index(bytes)) {
                return Some(Index(bytes));
            }
        }
        None
    }
}

impl CachedResponse {
    /// Repeats the response to the same initiation, which was received over another path or repeated. If the session is
    /// in use, the response has arrived, and the initiation is a replay.
    fn repeat(&mut self, now: Instant) -> Result<HandshakeEvent, RejectReason> {
        if self.session.is_confirmed() || now.since(self.since) >= RESPONSE_TIMEOUT || self.count >= MAX_RESPONSES {
            return Err(RejectReason::Replayed);
        }
        self.count += 1;
        Ok(HandshakeEvent::Reply { peer: self.peer, datagram: self.datagram.clone(), session: self.session.clone() })
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").field("public", &self.private.public()).finish_non_exhaustive()
    }
}
