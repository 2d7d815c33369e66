//! What happened last to each connection, for those who ask why it is as it is.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::{Refusal, Token};
use super::Manager;
use super::plan::Plan;
use crate::path::{PathId, PathState};
use crate::reason::Reason;
use crate::time::Instant;

/// Events kept of each connection.
pub const MAX_EVENTS: usize = 8;

/// Something that happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionChange {
    /// When it happened, the last time.
    pub at: Instant,
    /// The path of the subflow; `None`: it concerns the whole connection.
    pub path: Option<PathId>,
    /// What happened.
    pub what: ConnectionEvent,
    /// How many times, with nothing else on that path in between.
    pub times: u16,
    /// Why the agent did it: the reason of the path's wanted state for the connection's class then.
    /// `None`: it was not the agent.
    pub reason: Option<Arc<str>>,
}

/// What happened to a connection, or to a subflow of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// The connection accepts further subflows.
    Began,
    /// The agent found the connection, or the subflow, in the kernel's tables.
    Found,
    /// The subflow was established, in this state.
    Opened(PathState),
    /// The subflow was requested and not established: `errno`, or 0 without an answer.
    NotOpened(u8),
    /// The subflow was requested, and the peer's answer had no MP_JOIN.
    NotJoined,
    /// The kernel refused a command about the subflow.
    Refused(Refusal),
    /// The agent changed the priority of the subflow.
    Set(PathState),
    /// The peer changed the priority of the subflow.
    PeerSet(PathState),
    /// The agent closed the subflow.
    Closed(CloseCause),
    /// The subflow ended, not by the agent: `errno`, 0 after an orderly close.
    Ended(u8),
    /// The peer accepts no more subflows.
    Full,
    /// The in-kernel path manager manages the connection.
    Left,
}

/// Why the agent closed a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// None is wanted over its path.
    Unwanted,
    /// Its local address is gone.
    NoAddress,
    /// Its data stalled while other subflows of the path carried.
    Stalled,
    /// There was another one over the same path.
    Duplicate,
    /// The peer has not confirmed it.
    Unconfirmed,
}

impl ConnectionEvent {
    /// A short name.
    pub const fn name(self) -> &'static str {
        match self {
            ConnectionEvent::Began => "began",
            ConnectionEvent::Found => "found",
            ConnectionEvent::Opened(_) => "opened",
            ConnectionEvent::NotOpened(_) => "not_opened",
            ConnectionEvent::NotJoined => "not_joined",
            ConnectionEvent::Refused(_) => "refused",
            ConnectionEvent::Set(_) => "set",
            ConnectionEvent::PeerSet(_) => "set_by_peer",
            ConnectionEvent::Closed(_) => "closed",
            ConnectionEvent::Ended(_) => "ended",
            ConnectionEvent::Full => "full",
            ConnectionEvent::Left => "left",
        }
    }
}

/// The last events of a connection, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    recent: VecDeque<ConnectionChange>,
}

impl History {
    pub fn add(&mut self, at: Instant, path: Option<PathId>, what: ConnectionEvent) {
        self.add_with(at, path, what, None);
    }

    /// The same, done by the agent because of the path's wanted state.
    pub fn add_own(&mut self, at: Instant, path: PathId, what: ConnectionEvent, plan: Plan) {
        self.add_with(at, Some(path), what, plan.reason(path));
    }

    fn add_with(&mut self, at: Instant, path: Option<PathId>, what: ConnectionEvent, reason: Option<Arc<str>>) {
        let mut times = 1;
        let last = self.recent.iter().rposition(|change| change.path == path);
        if let Some(place) = last.filter(|&place| self.recent[place].what == what) {
            times = self.recent.remove(place).map_or(1, |same| same.times.saturating_add(1));
        } else if self.recent.len() >= MAX_EVENTS {
            self.recent.pop_front();
        }
        self.recent.push_back(ConnectionChange { at, path, what, times, reason });
    }
}

impl Plan<'_> {
    /// The reason of a path's wanted state; an unknown class is the default one.
    fn reason(self, path: PathId) -> Option<Arc<str>> {
        let of_path = self.paths.reasons.get(usize::from(path.0))?;
        let (_, words) = of_path.get(usize::from(self.class.0)).or(of_path.first())?;
        (!words.is_empty()).then(|| Arc::clone(words))
    }
}

impl Manager {
    /// Sets the reasons of the wanted states, which all connections share: of each path those for
    /// each class.
    pub fn set_reasons<'a, I>(&mut self, paths: impl ExactSizeIterator<Item = I>)
    where
        I: Iterator<Item = &'a Reason>,
    {
        self.paths.reasons.resize_with(paths.len(), Vec::new);
        for (known, reasons) in self.paths.reasons.iter_mut().zip(paths) {
            for (class, reason) in reasons.enumerate() {
                match known.get_mut(class) {
                    Some((same, _)) if same == reason => {}
                    Some(other) => *other = (reason.clone(), reason.text().into()),
                    None => known.push((reason.clone(), reason.text().into())),
                }
            }
        }
    }

    /// What happened last to a connection, the oldest first; nothing: it is not managed.
    pub fn history(&self, token: Token) -> Vec<ConnectionChange> {
        self.connections.get(&token).map_or_else(Vec::new, |of| of.history.recent.iter().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_recurs_takes_one_place_and_the_oldest_event_makes_room() {
        let mut history = History::default();
        history.add(Instant::ZERO, None, ConnectionEvent::Began);
        for second in 1..=100 {
            history.add(Instant::from_millis(second * 1000), Some(PathId(0)), ConnectionEvent::NotOpened(0));
            history.add(Instant::from_millis(second * 1000), Some(PathId(1)), ConnectionEvent::NotOpened(0));
        }
        let seen: Vec<_> = history.recent.iter().map(|one| (one.path.map(|path| path.0), one.times)).collect();
        assert_eq!(seen, [(None, 1), (Some(0), 100), (Some(1), 100)]);
        for error in 1..=20 {
            history.add(Instant::ZERO, Some(PathId(0)), ConnectionEvent::NotOpened(error));
        }
        assert_eq!(history.recent.len(), MAX_EVENTS);
        assert_eq!(history.recent.back().map(|one| one.what), Some(ConnectionEvent::NotOpened(20)));
    }
}
