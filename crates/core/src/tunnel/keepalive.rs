//! Keepalives of a path that carries nothing: for its NAT, and because its state must be known when it has to
//! carry.

use crate::time::Duration;

/// The shortest of the usual times after which NATs drop a mapping (RFC 4787, section 4.3, requires 2 minutes).
pub const NAT_TIMEOUT: Duration = Duration::from_secs(30);

/// Intervals of a path's keepalives after it has carried nothing for 5 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// While other paths carry something. `None`: no keepalives.
    pub(super) unused: Option<Duration>,
    /// While the whole tunnel is idle. `None`: no keepalives.
    pub(super) idle: Option<Duration>,
    /// Whether a keepalive is sent only after one of the peer.
    pub(super) only_after_peer: bool,
}

impl Keepalive {
    /// 0.6 MB an hour with all headers, in both directions, and 0.1 while the whole tunnel is idle.
    pub const DEFAULT: Keepalive =
        Keepalive { idle: Some(Duration::from_secs(15)), ..Keepalive::every(Duration::from_secs(2)) };
    /// Of a path whose bytes cost money.
    pub const PRICED: Keepalive = Keepalive::every(Duration::from_secs(25));
    /// None.
    pub const OFF: Keepalive = Keepalive { unused: None, idle: None, only_after_peer: false };
    /// Of the follower, which answers the initiator's keepalives: one when these have stopped.
    pub(super) const FOLLOWER: Keepalive = Keepalive { only_after_peer: true, ..Keepalive::every(NAT_TIMEOUT) };

    /// At this interval.
    pub const fn every(interval: Duration) -> Keepalive {
        Keepalive { unused: Some(interval), idle: Some(interval), only_after_peer: false }
    }
}
