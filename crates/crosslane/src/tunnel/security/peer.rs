//! What is kept of one peer: its sessions, and how far its handshakes are.

use std::sync::Arc;
use std::time::Duration;

use crosslane_core::time::Instant;
use snow::HandshakeState;

use super::keys::PublicKey;
use super::message::{Index, Mac1};
use super::session::Session;

/// Least time between two answered initiations of one peer: what a peer gone mad can take is 1 % of a core.
pub(super) const ANSWER_EVERY: Duration = Duration::from_millis(20);
/// Least time between an answered initiation and one that says an earlier time: it may be a recorded one, of which
/// each is answered once.
pub(super) const DOUBT_EVERY: Duration = Duration::from_secs(1);
/// Confirmed sessions: the one in use, and the one before it, with which packets still come over the slow paths.
const CONFIRMED: usize = 2;

/// One peer.
pub(super) struct Peer {
    pub(super) key: PublicKey,
    /// For messages to it.
    pub(super) mac1: Mac1,
    /// The handshake that this end has begun.
    pub(super) pending: Option<Pending>,
    /// The initiations that were answered last, by [`Age`].
    pub(super) answered: [Option<Vec<u8>>; 2],
    sent_unix_ns: u64,
    /// Latest time in an initiation, by the peer's clock. It bounds nothing: see [`admit`](Self::admit).
    heard_unix_ns: Option<u64>,
    /// When initiations were answered last, by [`Age`].
    answered_at: [Option<Instant>; 2],
    /// The newest session of an initiation that said an earlier time, and that time.
    doubted: Option<(u64, Arc<Session>)>,
    /// Newest first.
    sessions: Vec<Arc<Session>>,
}

/// What the time in an initiation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// It is later than any before: none was recorded.
    Later,
    /// It is earlier: a recorded one, or the peer's clock was ahead once and is right again.
    Earlier,
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
        Peer {
            key,
            mac1: Mac1::of(&key),
            pending: None,
            answered: [None, None],
            sent_unix_ns: 0,
            heard_unix_ns: None,
            answered_at: [None; 2],
            doubted: None,
            sessions: Vec::new(),
        }
    }

    /// The time to put into an initiation: later than in any before, even if the clock was set back.
    pub(super) fn next_unix_ns(&mut self, unix_ns: u64) -> u64 {
        self.sent_unix_ns = unix_ns.max(self.sent_unix_ns.saturating_add(1));
        self.sent_unix_ns
    }

    /// Takes note of an initiation that the peer has made, if it is to be answered now.
    ///
    /// The time in it only says how soon: a clock that was once ahead must not lock its owner out. What proves that an
    /// initiation is no recorded one is data in the session that comes of it, and until then that session takes the
    /// place of none that is in use, nor of one that is in less doubt.
    ///
    /// # Errors
    /// From when on it would be answered.
    pub(super) fn admit(&mut self, now: Instant, unix_ns: u64) -> Result<Age, Instant> {
        self.end_doubt();
        let is_later = self.heard_unix_ns.is_none_or(|heard| unix_ns > heard);
        let [later_at, earlier_at] = self.answered_at;
        let (age, due) = match is_later {
            true => (Age::Later, later_at.map(|at| at + ANSWER_EVERY)),
            false => (Age::Earlier, later_at.max(earlier_at).map(|at| at + DOUBT_EVERY)),
        };
        if let Some(due) = due.filter(|due| now < *due) {
            return Err(due);
        }
        self.answered_at[age as usize] = Some(now);
        if is_later {
            self.heard_unix_ns = Some(unix_ns);
        }
        Ok(age)
    }

    /// The peer's clock is what it said when it had the keys to say it.
    fn end_doubt(&mut self) {
        if let Some((unix_ns, _)) = self.doubted.take_if(|(_, session)| session.is_confirmed()) {
            self.heard_unix_ns = Some(unix_ns);
        }
    }

    /// Keeps a session that this end began, and returns those that it displaces.
    pub(super) fn keep(&mut self, session: Arc<Session>) -> Vec<Arc<Session>> {
        self.sessions.insert(0, session);
        self.drop_unused(|_| false)
    }

    /// Keeps a session that the peer began at that time of its clock, and returns those that it displaces: of those that
    /// are not confirmed its like only, so that handshakes whose answers are lost take nothing from the session in use.
    pub(super) fn keep_unconfirmed(&mut self, session: Arc<Session>, age: Age, unix_ns: u64) -> Vec<Arc<Session>> {
        let doubted = self.doubted.as_ref().map(|(_, session)| session.clone());
        let is_doubted = |session: &Arc<Session>| doubted.as_ref().is_some_and(|other| Arc::ptr_eq(other, session));
        let displaced = self.drop_unused(|session| is_doubted(session) == (age == Age::Earlier));
        if age == Age::Earlier {
            self.doubted = Some((unix_ns, session.clone()));
        }
        self.sessions.insert(0, session);
        displaced
    }

    /// Drops the confirmed sessions that are too many, and of the others those that `displaces` names.
    fn drop_unused(&mut self, displaces: impl Fn(&Arc<Session>) -> bool) -> Vec<Arc<Session>> {
        let mut confirmed = 0;
        self.drop_sessions(|session| {
            if session.is_confirmed() {
                confirmed += 1;
                confirmed > CONFIRMED
            } else {
                displaces(session)
            }
        })
    }

    /// Drops sessions that are over, and returns them.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Arc<Session>> {
        self.end_doubt();
        self.doubted.take_if(|(_, session)| session.is_over(now));
        self.drop_sessions(|session| session.is_over(now))
    }

    fn drop_sessions(&mut self, mut is_dropped: impl FnMut(&Arc<Session>) -> bool) -> Vec<Arc<Session>> {
        let (dropped, kept) = self.sessions.drain(..).partition(|session| is_dropped(session));
        self.sessions = kept;
        dropped
    }

    /// The session to send with: the newest of which it is known that the peer has it too.
    pub(super) fn sending(&self, now: Instant) -> Option<&Arc<Session>> {
        self.sessions.iter().find(|session| session.is_confirmed() && !session.is_over(now))
    }
}
