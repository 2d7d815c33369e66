//! One peer of an endpoint: its addresses, its engine, and the contact with it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use crosslane_core::path::PathId;
use crosslane_core::tunnel::Tunnel;
use crosslane_core::tunnel::wire::control_message::MAX_PATHS;

use super::contact::Contact;
use super::lock;
use super::rfc8086::Rfc8086;
use super::types::{PathAddress, PeerPlan, TunnelPacket};

/// What distributes the packets to a peer over its paths.
pub(super) enum PeerEngine {
    /// Over all paths, with feedback of the peer.
    Multipath(Box<Mutex<Tunnel<TunnelPacket>>>),
    /// Over one path, as another implementation understands.
    Rfc8086(Mutex<Rfc8086>),
}

/// A peer, for both threads.
pub(super) struct Peer {
    pub(super) plan: PeerPlan,
    pub(super) engine: PeerEngine,
    addresses: Mutex<[Option<PathAddress>; MAX_PATHS]>,
    /// Longest inner packet that all its paths carry, in bytes.
    pub(super) mtu: AtomicU32,
    pub(super) contact: Contact,
    has_left: AtomicBool,
}

impl Peer {
    pub(super) fn new(plan: PeerPlan, engine: PeerEngine, mtu: u32) -> Peer {
        Peer {
            plan,
            engine,
            addresses: Mutex::new([None; MAX_PATHS]),
            mtu: AtomicU32::new(mtu),
            contact: Contact::default(),
            has_left: AtomicBool::new(false),
        }
    }

    /// Whether an inner address is one of the peer's.
    pub(super) fn holds(&self, address: IpAddr) -> bool {
        let prefixes = &self.plan.prefixes;
        prefixes.is_empty() || prefixes.iter().any(|prefix| prefix.contains(&address))
    }

    /// Whether it was removed: nothing is sent to it, and nothing received from it.
    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// Removes it.
    pub(super) fn leave(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    /// Its engine over all paths, locked; none for an RFC 8086 peer.
    pub(super) fn multipath(&self) -> Option<MutexGuard<'_, Tunnel<TunnelPacket>>> {
        match &self.engine {
            PeerEngine::Multipath(tunnel) => Some(lock(tunnel)),
            PeerEngine::Rfc8086(_) => None,
        }
    }

    /// Whether it implements RFC 8086 and nothing beyond.
    pub(super) fn is_rfc8086(&self) -> bool {
        matches!(self.engine, PeerEngine::Rfc8086(_))
    }

    /// The address of each path.
    pub(super) fn addresses(&self) -> [Option<PathAddress>; MAX_PATHS] {
        *lock(&self.addresses)
    }

    /// Sets the socket of a path to the peer's configured address, or none. False if it has no
    /// such address, or there is no such path.
    pub(super) fn set_socket(&self, path: PathId, via: Option<usize>) -> bool {
        let Some(to) = self.plan.at else { return false };
        let mut addresses = lock(&self.addresses);
        let Some(address) = addresses.get_mut(usize::from(path.0)) else { return false };
        *address = via.map(|via| PathAddress { via, to, from: None });
        true
    }

    /// Sets the peer's address on a path to the source of its newest packet, unless it is configured.
    pub(super) fn learn(&self, path: u8, address: PathAddress) {
        if self.plan.at.is_some() {
            return;
        }
        if let Some(known) = lock(&self.addresses).get_mut(usize::from(path)) {
            *known = Some(address);
        }
    }
}
