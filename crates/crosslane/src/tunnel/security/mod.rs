//! Who is at the other end, and keys for what goes there: a Noise handshake that
//! is repeated every two minutes, and sessions in which every packet is sealed,
//! opened once, and never taken twice.
//!
//! [`Security`] knows no socket and no clock. Its caller sends what [`initiate`]
//! and [`receive`] give it, over as many paths as it likes, and takes the source
//! address of what a [`Session`] opens for the peer's.
//!
//! Nothing is answered to strangers. The checks stand in the order of their cost:
//! length, a hash that needs this end's public key, a look into the tables of
//! answers and of initiations that were opened before, a budget, and only then the
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

pub use keys::{KEY_BYTES, KEY_CHARACTERS, KeyFault, PrivateKey, PublicKey};
pub use message::is_data;
pub use reject::RejectReason;
pub use session::{
    DATA_OVERHEAD_BYTES, Opened, PATHS, REFUSE_AFTER_MESSAGES, REJECT_AFTER, REKEY_AFTER, REKEY_AFTER_MESSAGES, Session,
};

/// How long [`Security::initiate`] repeats one initiation: longer than the round trip of a path that is of any use, so
/// that repeating does not make the answer under way worthless.
pub const REPEAT_FOR: Duration = Duration::from_secs(5);
/// How long an answer is awaited, and repeated to the same initiation: the repetition, and a slow path's delay.
const ANSWER_FOR: Duration = Duration::from_secs(10);
/// How often one initiation is answered: once a second on every path, while it is repeated.
const ANSWERS: u32 = 5 * PATHS as u32;
/// Tries for an index that is free; with a thousand peers one of 4096 tries fails.
const INDEX_TRIES: usize = 16;

/// What became of a handshake message.
#[derive(Debug)]
pub enum HandshakeEvent {
    /// It is dropped.
    Nothing(RejectReason),
    /// A peer began a handshake: `datagram` goes back to where the message came from. The session opens at once;
    /// [`Security::session_for`] gives it for sending when it has opened something.
    Reply {
        /// Place of the peer among those given to [`Security::new`].
        peer: usize,
        /// What to send.
        datagram: Vec<u8>,
        /// The new session; the same for repetitions of the same initiation.
        session: Arc<Session>,
    },
    /// A peer answered: there is a new session to send with. It should carry something at once, be it empty, since the
    /// peer does not send with it before.
    Established {
        /// Place of the peer among those given to [`Security::new`].
        peer: usize,
        /// The new session.
        session: Arc<Session>,
    },
}

/// This end, its peers and their sessions.
pub struct Security {
    private: PrivateKey,
    mac1: Mac1,
    peers: Vec<Peer>,
    by_key: BTreeMap<PublicKey, usize>,
    by_index: BTreeMap<Index, Owner>,
    /// By initiation.
    answers: BTreeMap<Vec<u8>, Answer>,
    known: Known,
    /// Apart, so that a flood of initiations takes nothing from the responses.
    initiations: RateLimit,
    responses: RateLimit,
    random: SystemRandom,
}

/// What an index stands for.
enum Owner {
    Pending(usize),
    Session(usize, Arc<Session>),
}

/// What was answered to an initiation.
struct Answer {
    peer: usize,
    datagram: Vec<u8>,
    session: Arc<Session>,
    since: Instant,
    times: u32,
}

impl Security {
    /// This end with its key, and its peers, each once; a peer is named by its place.
    pub fn new(private: PrivateKey, peers: Vec<PublicKey>) -> Security {
        Security {
            mac1: Mac1::of(&private.public()),
            private,
            by_key: peers.iter().enumerate().map(|(place, key)| (*key, place)).collect(),
            peers: peers.into_iter().map(Peer::new).collect(),
            by_index: BTreeMap::new(),
            answers: BTreeMap::new(),
            known: Known::default(),
            initiations: RateLimit::default(),
            responses: RateLimit::default(),
            random: SystemRandom::new(),
        }
    }

    /// The key that the peers know this end by.
    pub fn public(&self) -> PublicKey {
        self.private.public()
    }

    /// An initiation to send to `peer` over all paths, each second or so until [`HandshakeEvent::Established`]: the same bytes
    /// for [`REPEAT_FOR`], then a new one. `unix_ns` is the time since 1970 in nanoseconds; if it is earlier than before a
    /// restart, the peer may let a second pass before it answers. `None` if there is no such peer or the system
    /// gives no randomness.
    pub fn initiate(&mut self, now: Instant, unix_ns: u64, peer: usize) -> Option<Vec<u8>> {
        if let Some(pending) = &self.peers.get(peer)?.pending
            && now.since(pending.since) < REPEAT_FOR
        {
            return Some(pending.datagram.clone());
        }
        let index = self.free_index()?;
        let to = self.peers.get_mut(peer)?;
        let says = Introduction { index, unix_ns: to.next_unix_ns(unix_ns) };
        let (state, noise) = handshake::initiate(&self.private, &to.key, says).ok()?;
        let datagram = to.mac1.initiation(&noise);
        if let Some(given_up) = to.pending.replace(Pending { index, state, datagram: datagram.clone(), since: now }) {
            self.by_index.remove(&given_up.index);
        }
        self.by_index.insert(index, Owner::Pending(peer));
        Some(datagram)
    }

    /// Takes in a datagram that is not [data](is_data).
    pub fn receive(&mut self, now: Instant, datagram: &[u8]) -> HandshakeEvent {
        let heard = Message::read(datagram, &self.mac1).and_then(|message| match message {
            Message::Initiation(noise) => self.initiation(now, datagram, noise),
            Message::Response(to, noise) => self.response(now, to, noise),
        });
        heard.unwrap_or_else(HandshakeEvent::Nothing)
    }

    /// The session of a data message and the peer at its other end. That it is theirs is known when it
    /// [opens](Session::open).
    pub fn session_of(&self, now: Instant, datagram: &[u8]) -> Option<(usize, Arc<Session>)> {
        let (index, ..) = message::read_data(datagram).ok()?;
        match self.by_index.get(&index) {
            Some(Owner::Session(peer, session)) if !session.is_over(now) => Some((*peer, session.clone())),
            _ => None,
        }
    }

    /// The session to send to `peer` with, if there is one. It is to be asked for anew every second or so: it is
    /// followed by another after [`REKEY_AFTER`].
    pub fn session_for(&self, now: Instant, peer: usize) -> Option<Arc<Session>> {
        self.peers.get(peer)?.sending(now).cloned()
    }

    /// Whether an initiator should [`initiate`](Security::initiate): there is no session to send with, or the one there
    /// is has served long enough and it was this end that began it.
    pub fn wants_rekey(&self, now: Instant, peer: usize) -> bool {
        let Some(peer) = self.peers.get(peer) else { return false };
        peer.sending(now).is_none_or(|session| session.wants_rekey(now))
    }

    /// Forgets sessions and handshakes that are over, and their keys. To be called every few seconds.
    pub fn expire(&mut self, now: Instant) {
        for peer in &mut self.peers {
            let is_over = |pending: &mut Pending| now.since(pending.since) >= ANSWER_FOR;
            if let Some(pending) = peer.pending.take_if(is_over) {
                self.by_index.remove(&pending.index);
            }
            for session in peer.expire(now) {
                self.by_index.remove(&session.index());
            }
        }
        self.answers.retain(|_, answer| now.since(answer.since) < ANSWER_FOR);
    }

    fn initiation(&mut self, now: Instant, datagram: &[u8], noise: &[u8]) -> Result<HandshakeEvent, RejectReason> {
        if let Some(answer) = self.answers.get_mut(datagram) {
            return answer.again(now);
        }
        if self.known.refuses(now, noise) {
            return Err(RejectReason::Replayed);
        }
        if !self.initiations.take(now) {
            return Err(RejectReason::Flood);
        }
        let (state, key, says) = handshake::hear(&self.private, noise)?;
        let peer = *self.by_key.get(&key).ok_or(RejectReason::Stranger)?;
        let from = self.peers.get_mut(peer).ok_or(RejectReason::Stranger)?;
        let age = from.admit(now, says.unix_ns).map_err(|due| {
            self.known.remember(peer, noise, Some(due));
            RejectReason::Flood
        })?;
        self.known.remember(peer, noise, None);
        let own = self.free_index().ok_or(RejectReason::Flood)?;
        let (transport, noise) = handshake::answer(state, own).map_err(|_| RejectReason::Forged)?;
        let session = Arc::new(Session::new(transport, (own, says.index), now, false));
        let from = self.peers.get_mut(peer).ok_or(RejectReason::Stranger)?;
        let displaced = from.keep_unconfirmed(session.clone(), age, says.unix_ns);
        let reply = from.mac1.response(says.index, &noise);
        if let Some(older) = from.answered[age as usize].replace(datagram.to_vec()) {
            self.answers.remove(&older);
        }
        self.keep(peer, &session, displaced);
        let answer = Answer { peer, datagram: reply.clone(), session: session.clone(), since: now, times: 1 };
        self.answers.insert(datagram.to_vec(), answer);
        Ok(HandshakeEvent::Reply { peer, datagram: reply, session })
    }

    fn response(&mut self, now: Instant, to: Index, noise: &[u8]) -> Result<HandshakeEvent, RejectReason> {
        let Some(&Owner::Pending(peer)) = self.by_index.get(&to) else { return Err(RejectReason::Unasked) };
        let from = self.peers.get_mut(peer).ok_or(RejectReason::Unasked)?;
        let pending = from.pending.as_mut().ok_or(RejectReason::Unasked)?;
        if !self.responses.take(now) {
            return Err(RejectReason::Flood);
        }
        let remote = handshake::hear_answer(&mut pending.state, noise)?;
        let pending = from.pending.take().ok_or(RejectReason::Unasked)?;
        self.by_index.remove(&to);
        let transport = pending.state.into_stateless_transport_mode().map_err(|_| RejectReason::Forged)?;
        let session = Arc::new(Session::new(transport, (to, remote), now, true));
        let displaced = self.peers.get_mut(peer).map(|peer| peer.keep(session.clone())).unwrap_or_default();
        self.keep(peer, &session, displaced);
        Ok(HandshakeEvent::Established { peer, session })
    }

    fn keep(&mut self, peer: usize, session: &Arc<Session>, displaced: Vec<Arc<Session>>) {
        self.by_index.insert(session.index(), Owner::Session(peer, session.clone()));
        for session in displaced {
            self.by_index.remove(&session.index());
        }
    }

    fn free_index(&self) -> Option<Index> {
        for _ in 0..INDEX_TRIES {
            let mut bytes = [0; INDEX_BYTES];
            self.random.fill(&mut bytes).ok()?;
            if !self.by_index.contains_key(&Index(bytes)) {
                return Some(Index(bytes));
            }
        }
        None
    }
}

impl Answer {
    /// The same answer to the same initiation, which came over another path or was repeated. When the session is in
    /// use, the answer has arrived, and who sends the initiation now has recorded it.
    fn again(&mut self, now: Instant) -> Result<HandshakeEvent, RejectReason> {
        if self.session.is_confirmed() || now.since(self.since) >= ANSWER_FOR || self.times >= ANSWERS {
            return Err(RejectReason::Replayed);
        }
        self.times += 1;
        Ok(HandshakeEvent::Reply { peer: self.peer, datagram: self.datagram.clone(), session: self.session.clone() })
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").field("public", &self.private.public()).finish_non_exhaustive()
    }
}
