//! State of one peer: its sessions and handshakes.

use std::sync::Arc;
use std::time::Duration;

use crosslane_core::time::Instant;
use snow::HandshakeState;

use super::keys::PublicKey;
use super::message::{Index, Mac1};
use super::session::Session;

/// Minimum time between two responses to one peer: a misbehaving peer costs at most 1 % of a core.
pub(super) const MIN_RESPONSE_INTERVAL: Duration = Duration::from_millis(20);
/// Minimum time between a response and one to an initiation with an earlier time: it may be a recorded one, and
/// each of those is answered once.
pub(super) const MIN_DOUBTED_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of confirmed sessions: the one in use, and the one before it, whose packets still arrive over slow
/// paths.
const MAX_CONFIRMED: usize = 2;

/// One peer.
pub(super) struct Peer {
    pub(super) key: PublicKey,
    /// For messages to the peer.
    pub(super) mac1: Mac1,
    /// The handshake that this endpoint has initiated.
    pub(super) pending: Option<Pending>,
    /// The last initiations that were answered, by [`Age`].
    pub(super) last_initiations: [Option<Vec<u8>>; 2],
    sent_unix_ns: u64,
    /// Latest time in an initiation, by the peer's clock. It is not a strict limit: see [`admit`](Self::admit).
    received_unix_ns: Option<u64>,
    /// When initiations were last answered, by [`Age`].
    answered_at: [Option<Instant>; 2],
    /// The newest session of an initiation with an earlier time, and that time.
    doubted: Option<(u64, Arc<Session>)>,
    /// Newest first.
    sessions: Vec<Arc<Session>>,
}

/// The time in an initiation, compared with earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// It is later than any before: the initiation is no replay.
    Later,
    /// It is earlier: a replay, or the peer's clock was ahead and has been corrected.
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
            last_initiations: [None, None],
            sent_unix_ns: 0,
            received_unix_ns: None,
            answered_at: [None; 2],
            doubted: None,
            sessions: Vec::new(),
        }
    }

    /// The time for a new initiation: later than in any before, even if the clock was set back.
    pub(super) fn next_unix_ns(&mut self, unix_ns: u64) -> u64 {
        self.sent_unix_ns = unix_ns.max(self.sent_unix_ns.saturating_add(1));
        self.sent_unix_ns
    }

    /// Records an initiation of the peer, if it may be answered now.
    ///
    /// The time in it only affects the waiting time: a clock that was once ahead must not lock its owner out. Only data
    /// in the resulting session proves that an initiation is no replay; until then that session replaces neither one in
    /// use nor one that is in less doubt.
    ///
    /// # Errors
    /// When it would be answered.
    pub(super) fn admit(&mut self, now: Instant, unix_ns: u64) -> Result<Age, Instant> {
        self.end_doubt();
        let is_later = self.received_unix_ns.is_none_or(|latest| unix_ns > latest);
        let [later_at, earlier_at] = self.answered_at;
        let (age, due) = match is_later {
            true => (Age::Later, later_at.map(|at| at + MIN_RESPONSE_INTERVAL)),
            false => (Age::Earlier, later_at.max(earlier_at).map(|at| at + MIN_DOUBTED_INTERVAL)),
        };
        if let Some(due) = due.filter(|due| now < *due) {
            return Err(due);
        }
        self.answered_at[age as usize] = Some(now);
        if is_later {
            self.received_unix_ns = Some(unix_ns);
        }
        Ok(age)
    }

    /// Accepts the peer's clock once the session that stated it is confirmed.
    fn end_doubt(&mut self) {
        if let Some((unix_ns, _)) = self.doubted.take_if(|(_, session)| session.is_confirmed()) {
            self.received_unix_ns = Some(unix_ns);
        }
    }

    /// Stores a session that this endpoint initiated, and returns those that it replaces.
    pub(super) fn keep(&mut self, session: Arc<Session>) -> Vec<Arc<Session>> {
        self.sessions.insert(0, session);
        self.drop_unused(|_| false)
    }

    /// Stores a session that the peer initiated at that time of its clock, and returns those that it replaces: of the
    /// unconfirmed ones only its own kind, so that handshakes with lost responses do not affect the session in use.
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

    /// Drops the confirmed sessions beyond the maximum, and the unconfirmed ones that `displaces` selects.
    fn drop_unused(&mut self, displaces: impl Fn(&Arc<Session>) -> bool) -> Vec<Arc<Session>> {
        let mut confirmed = 0;
        self.drop_sessions(|session| {
            if session.is_confirmed() {
                confirmed += 1;
                confirmed > MAX_CONFIRMED
            } else {
                displaces(session)
            }
        })
    }

    /// Drops expired sessions, and returns them.
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

    /// The session for sending: the newest that the peer is known to have too.
    pub(super) fn sending(&self, now: Instant) -> Option<&Arc<Session>> {
        self.sessions.iter().find(|session| session.is_confirmed() && !session.is_over(now))
    }
}
