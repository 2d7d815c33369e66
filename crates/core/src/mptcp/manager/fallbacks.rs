//! Connections that began without MPTCP although their program requested it: the network removed MP_CAPABLE (RFC 8684,
//! section 3.7), the kernel avoids MPTCP for a time (`blackhole_timeout`, Linux mptcp-sysctl.rst), or the peer has none.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::super::{HandshakeCounters, NETWORK_PASSES, PlainConnection};
use crate::path::PathId;
use crate::reason::Reason;
use crate::recent::push_recent;

/// Maximum number of peers that are known to have MPTCP; the oldest makes room.
const MAX_SPEAKERS: usize = 64;

/// What is known of handshakes with MP_CAPABLE.
#[derive(Debug, Default)]
pub(super) struct Fallbacks {
    counters: Option<HandshakeCounters>,
    /// Peers with which MPTCP was spoken.
    speakers: VecDeque<IpAddr>,
    /// Paths over which connections are plain TCP, with the peer of one.
    plain: BTreeMap<PathId, IpAddr>,
    avoids: bool,
}

/// A finding: the path, its rule and the sentence.
pub(super) type Finding = (Option<PathId>, &'static str, String);

impl Fallbacks {
    /// A connection that this endpoint opened over a path speaks MPTCP. Returns whether the path was said to prevent that.
    pub fn speaks(&mut self, path: Option<PathId>, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        if !self.speakers.contains(&peer) {
            push_recent(&mut self.speakers, MAX_SPEAKERS, peer);
        }
        let cleared = path.filter(|path| self.plain.get(path) == Some(&peer));
        cleared.is_some_and(|path| self.plain.remove(&path).is_some())
    }

    /// The counters at this time, and the connections that are plain TCP. Returns what is new; `name` names a path.
    pub fn observe(
        &mut self,
        counters: HandshakeCounters,
        found: &[PlainConnection],
        name: impl Fn(PathId) -> String,
    ) -> Vec<Finding> {
        let mut new = Vec::new();
        let Some(before) = self.counters.replace(counters) else { return new };
        let is_found = counters.blackholes > before.blackholes;
        if !self.avoids && (is_found || counters.disabled > before.disabled) {
            self.avoids = true;
            new.push((None, "network.blackhole", AVOIDS.into()));
        } else if self.avoids && !is_found && counters.answered > before.answered {
            // While the kernel avoids MPTCP it requests it of no peer.
            self.avoids = false;
            new.push((None, NETWORK_PASSES, "connections begin with MPTCP again".into()));
        }
        if counters.fallbacks > before.fallbacks {
            for &PlainConnection { path, peer } in found {
                let peer = peer.to_canonical();
                if self.plain.get(&path).is_none_or(|known| !self.speakers.contains(known) && *known != peer) {
                    self.plain.insert(path, peer);
                    let (rule, text) = self.sentence(&name(path), peer);
                    new.push((Some(path), rule, text));
                }
            }
        }
        new
    }

    /// The path has another address, and so another network.
    pub fn forget(&mut self, path: PathId) {
        self.plain.remove(&path);
    }

    /// What prevents MPTCP on a path.
    pub fn fault(&self, path: PathId, name: &str) -> Option<Reason> {
        let (rule, text) = self.sentence(name, *self.plain.get(&path)?);
        Some(Reason::plain(rule, text))
    }

    /// What prevents MPTCP everywhere.
    pub fn avoids(&self) -> Option<Reason> {
        self.avoids.then(|| Reason::plain("network.blackhole", AVOIDS))
    }

    fn sentence(&self, name: &str, peer: IpAddr) -> (&'static str, String) {
        match self.speakers.contains(&peer) {
            true => (
                "network.strips-mp-capable",
                format!(
                    "a connection to {peer} over {name} is plain TCP, though {peer} has MPTCP: a middlebox of its network \
                     removes MP_CAPABLE, and what begins over {name} stays on it"
                ),
            ),
            false => (
                "network.no-mptcp",
                format!(
                    "a connection to {peer} over {name} is plain TCP: {peer} has no MPTCP, or a middlebox removes \
                     MP_CAPABLE"
                ),
            ),
        }
    }
}

const AVOIDS: &str = "the kernel lets connections begin as plain TCP for an hour or longer, since a network dropped SYNs with \
                      MP_CAPABLE; `sysctl -w net.mptcp.blackhole_timeout=0` prevents that";
