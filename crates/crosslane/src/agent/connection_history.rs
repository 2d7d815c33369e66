//! What happened last to a connection, in sentences.

use crosslane_core::mptcp::Refusal;
use crosslane_core::mptcp::manager::{CloseCause, ConnectionChange, ConnectionEvent};
use crosslane_core::path::PathState;
use crosslane_core::time::Instant;
use nix::errno::Errno;

use crate::control::report::ConnectionChangeReport;
use crate::control::status::path_name;

/// The change as the control socket has it; `names` are those of the paths.
pub fn report(now: Instant, names: &[&str], change: &ConnectionChange) -> ConnectionChangeReport {
    let path = change.path.map(|path| path_name(names, path));
    ConnectionChangeReport {
        ago_s: now.since(change.at).as_secs_f64(),
        what: change.what.name().into(),
        times: change.times,
        text: sentence(change.what, path.as_deref(), change.reason.as_deref()),
        path,
    }
}

fn sentence(what: ConnectionEvent, path: Option<&str>, reason: Option<&str>) -> String {
    let subflow = path.map_or_else(|| "a subflow".into(), |path| format!("the subflow over {path}"));
    let because = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    match what {
        ConnectionEvent::Began => "it accepts further subflows".into(),
        ConnectionEvent::Found if path.is_none() => "the agent found it".into(),
        ConnectionEvent::Found => format!("the agent found {subflow}"),
        ConnectionEvent::Opened(state) => format!("{subflow} was established, {}", as_state(state)),
        ConnectionEvent::NotOpened(0) => format!("{subflow} was not established: no answer from the peer"),
        ConnectionEvent::NotOpened(error) => format!("{subflow} was not established: {}", of_kernel(error)),
        ConnectionEvent::NotJoined => format!("{subflow} was not established: the peer's answer had no MP_JOIN"),
        ConnectionEvent::Refused(why) => format!("the kernel refused a command about {subflow}: {}", of_refusal(why)),
        ConnectionEvent::Set(state) => format!("the agent made {subflow} {}{because}", as_state(state)),
        ConnectionEvent::PeerSet(state) => format!("the peer made {subflow} {}", as_state(state)),
        ConnectionEvent::Closed(CloseCause::Unwanted) if reason.is_some() => {
            format!("the agent closed {subflow}{because}")
        }
        ConnectionEvent::Closed(cause) => format!("the agent closed {subflow}: {}", of_close(cause)),
        ConnectionEvent::Ended(0) => format!("{subflow} ended"),
        ConnectionEvent::Ended(error) => format!("{subflow} ended: {}", of_kernel(error)),
        ConnectionEvent::Full => "the peer accepts no more subflows".into(),
        ConnectionEvent::Left => "it is left to the in-kernel path manager, which managed it already".into(),
    }
}

fn as_state(state: PathState) -> &'static str {
    match state {
        PathState::Active => "active",
        PathState::Backup => "a backup",
        PathState::Closed => "closed",
    }
}

fn of_kernel(error: u8) -> String {
    Errno::from_raw(error.into()).desc().to_lowercase()
}

fn of_refusal(why: Refusal) -> String {
    match why {
        Refusal::UnknownConnection => "it has no such connection".into(),
        Refusal::NotOurs => "the in-kernel path manager manages it".into(),
        Refusal::UnknownSubflow => "it has no such subflow".into(),
        Refusal::IdTaken => "it has another id for the address".into(),
        Refusal::Other(0) => "it gives no reason".into(),
        Refusal::Other(errno) => Errno::from_raw(errno).desc().to_lowercase(),
    }
}

fn of_close(cause: CloseCause) -> &'static str {
    match cause {
        CloseCause::Unwanted => "it was not wanted",
        CloseCause::NoAddress => "its local address is gone",
        CloseCause::Stalled => "its data stalled, and another subflow carries",
        CloseCause::Unconfirmed => "the peer had not confirmed it",
        CloseCause::Duplicate => "there was another one over the same path",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_path_cause_and_reason() {
        let lte = Some("lte");
        let of = |what, reason| sentence(what, lte, reason);
        let set = of(ConnectionEvent::Set(PathState::Backup), Some("its-g5 is good"));
        assert_eq!(set, "the agent made the subflow over lte a backup: its-g5 is good");
        let refused = of(ConnectionEvent::NotOpened(Errno::ECONNREFUSED as u8), None);
        assert_eq!(refused, "the subflow over lte was not established: connection refused");
        let closed = of(ConnectionEvent::Closed(CloseCause::NoAddress), None);
        assert_eq!(closed, "the agent closed the subflow over lte: its local address is gone");
        assert_eq!(sentence(ConnectionEvent::Found, None, None), "the agent found it");
    }
}
