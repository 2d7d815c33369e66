//! What is kept of one peer: its sessions, and how far its handshakes are.

use std::sync::Arc;
use std::time::Duration;

use crosslane_core::time::Instant;
use snow::HandshakeState;

use super::keys::PublicKey;
use super::message::{Index, Seal};
use super::refusal::Refusal;
use super::session::Session;

/// Least time between two answered initiations of one peer: what a peer gone mad can take is 1 % of a core.
pub(super) const ANSWER_EVERY: Duration = Duration::from_millis(20);
/// Confirmed sessions: the one in use, and the one before it, with which packets still come over the slow paths.
const CONFIRMED: usize = 2;

/// One peer.
pub(super) struct Peer {
    pub(super) key: PublicKey,
    /// For messages to it.
    pub(super) seal: Seal,
    /// The handshake that this end has begun.
    pub(super) pending: Option<Pending>,
    /// The initiation that was answered last.
    pub(super) answered: Option<Vec<u8>>,
    sent_unix_ns: u64,
    /// Time in the last initiation that was answered, by its clock and by ours.
    heard: Option<(u64, Instant)>,
    /// Newest first.
    sessions: Vec<Arc<Session>>,
}

/// A handshake that waits for its response.
pub(super) struct Pending {
    pub(super) index: Index,
    pub(super) state: HandshakeState,
    pub(super) datagram: Vec<u8>,
    pub(super) since: Instant,
}

impl Peer {
    pub(super) fn new(key: PublicKey) -> Peer {
        let seal = Seal::of(&key);
        Peer { key, seal, pending: None, answered: None, sent_unix_ns: 0, heard: None, sessions: Vec::new() }
    }

    /// The time to put into an initiation: later than in any before, even if the clock was set back.
    pub(super) fn next_unix_ns(&mut self, unix_ns: u64) -> u64 {
        self.sent_unix_ns = unix_ns.max(self.sent_unix_ns.saturating_add(1));
        self.sent_unix_ns
    }

    /// Takes note of an initiation that the peer has made, if it is to be answered.
    pub(super) fn admit(&mut self, now: Instant, unix_ns: u64) -> Result<(), Refusal> {
        if let Some((heard_unix_ns, at)) = self.heard {
            if unix_ns <= heard_unix_ns {
                return Err(Refusal::Replayed);
            }
            if now.since(at) < ANSWER_EVERY {
                return Err(Refusal::Flood);
            }
        }
        self.heard = Some((unix_ns, now));
        Ok(())
    }

    /// Keeps a new session, and returns those that it displaces. One that is not confirmed displaces only its like, so
    /// that handshakes whose answers are lost take nothing from the session in use.
    pub(super) fn keep(&mut self, session: Arc<Session>) -> Vec<Arc<Session>> {
        let displaces_unconfirmed = !session.is_confirmed();
        self.sessions.insert(0, session);
        let (mut confirmed, mut place) = (0, 0);
        self.drop_sessions(|session| {
            place += 1;
            if session.is_confirmed() {
                confirmed += 1;
                confirmed > CONFIRMED
            } else {
                displaces_unconfirmed && place > 1
            }
        })
    }

    /// Drops sessions that are over, and returns them.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Arc<Session>> {
        self.drop_sessions(|session| session.is_over(now))
    }

    fn drop_sessions(&mut self, mut is_dropped: impl FnMut(&Session) -> bool) -> Vec<Arc<Session>> {
        let (dropped, kept) = self.sessions.drain(..).partition(|session| is_dropped(session));
        self.sessions = kept;
        dropped
    }

    /// The session to send with: the newest of which it is known that the peer has it too.
    pub(super) fn sending(&self, now: Instant) -> Option<&Arc<Session>> {
        self.sessions.iter().find(|session| session.is_confirmed() && !session.is_over(now))
    }
}
