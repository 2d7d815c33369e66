//! One endpoint of the tunnel: its peers, and the processing of each
//! packet. It knows no socket, no device and no clock, so tests connect two
//! endpoints in memory.
//!
//! ```text
//! TUN ─ ingress ─▶ engine of the peer ─ transmit ─▶ encrypted ─▶ a path's socket
//! TUN ◀── flush ── engine of the peer ◀─ decrypted ◀─ on_datagram ◀─ socket
//! ```
//!
//! Two threads use it: one sends, one receives. Each peer's engine is
//! behind a lock, held for a batch; encryption and decryption are outside.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crosslane_core::engine::Engine;
use crosslane_core::path::{PathId, PathState, Sample};
use crosslane_core::time::Instant;
use crosslane_core::tunnel::wire::control_message::MAX_PATHS;
use crosslane_core::tunnel::wire::gre::NUMBERED_BYTES;
use crosslane_core::tunnel::wire::gre_key::GreKey;
use crosslane_core::tunnel::{Input, Output, Setup, Tunnel};

use super::config::Prefix;
use super::ip::{Inner, clamp_mss, fragment, too_big};
use super::security::Security;
use crate::tunnel::endpoint::egress::{Outbox, Transmit};

pub mod egress;
mod inbound;
mod limits;
mod status;
mod types;

pub use inbound::ReceiveState;
pub use status::{EndpointStatus, PeerStatusView};
pub use types::{Change, Counts, PathAddress, PeerPlan, Plan, TunnelPacket};

/// Without an answer for this time, the peer may have restarted and lost our
/// keys.
const SILENCE_TIMEOUT: Duration = Duration::from_millis(400);
/// Time between two initiations of a handshake.
const INITIATE_PERIOD: Duration = Duration::from_millis(250);
/// Time between two removals of expired keys.
const EXPIRE_PERIOD: Duration = Duration::from_secs(5);
/// Period in which a sender without keys checks for them.
const KEY_POLL_PERIOD: Duration = Duration::from_millis(10);
/// Maximum number of packets queued for an RFC 8086 peer: the newest are kept.
const MAX_KEYLESS: usize = 1024;
/// Minimum time between two ICMP "too big" messages.
const TOO_BIG_PERIOD: Duration = Duration::from_millis(5);

struct Peer {
    name: String,
    prefixes: Vec<Prefix>,
    at: Option<SocketAddr>,
    tunnel: Mutex<Tunnel<TunnelPacket>>,
    /// Queue for an RFC 8086 peer, which bypasses the engine.
    keyless_queue: Mutex<VecDeque<TunnelPacket>>,
    path_addresses: Mutex<[Option<PathAddress>; MAX_PATHS]>,
    /// Longest inner packet that all its paths carry.
    mtu: AtomicU32,
    /// Bytes queued in its engine.
    waiting_bytes: AtomicU64,
    /// When a packet of the peer was last decrypted, in ns.
    last_received_ns: AtomicU64,
    /// When a packet was first sent since then, in ns; 0: none was.
    unanswered_since_ns: AtomicU64,
}

/// The endpoint.
pub struct Endpoint {
    peers: Vec<Peer>,
    security: Option<Mutex<Security>>,
    is_initiator: bool,
    rfc8086_only: bool,
    /// Paths in order of preference.
    preference: Vec<u8>,
    /// Longest inner packet, in bytes; a peer's may be less.
    mtu: u32,
    overhead_bytes: u32,
    /// Bytes queued for all peers.
    waiting_bytes: AtomicU64,
    addresses: Vec<IpAddr>,
    /// Times of the last initiation, expiry and "too big".
    initiated: Mutex<Option<Instant>>,
    expired: Mutex<Instant>,
    answered: Mutex<Instant>,
    /// Counts of packets that were not carried.
    pub counts: Counts,
}

impl Endpoint {
    /// An endpoint that has received nothing. `unix_ns` is the time since 1970.
    pub fn new(plan: Plan, unix_ns: u64) -> Endpoint {
        let overhead_bytes = plan.overhead_bytes - NUMBERED_BYTES;
        let setup = |place: usize| Setup {
            mode: plan.mode,
            is_initiator: plan.is_initiator,
            ranks: plan.ranks.clone(),
            // Milliseconds: restarts are further apart.
            epoch: ((unix_ns / 1_000_000) as u32).wrapping_add(place as u32) | 1,
            overhead_bytes,
        };
        let engine = |place: usize| {
            let mut tunnel = Tunnel::new(setup(place));
            tunnel.probe_mtu_up_to(plan.mtu + plan.overhead_bytes);
            tunnel
        };
        let peers = plan.peers.into_iter().enumerate().map(|(place, peer)| Peer {
            name: peer.name,
            prefixes: peer.prefixes,
            at: peer.at,
            tunnel: Mutex::new(engine(place)),
            keyless_queue: Mutex::new(VecDeque::new()),
            path_addresses: Mutex::new([None; MAX_PATHS]),
            mtu: AtomicU32::new(plan.mtu),
            waiting_bytes: AtomicU64::new(0),
            last_received_ns: AtomicU64::new(0),
            unanswered_since_ns: AtomicU64::new(0),
        });
        let peers = peers.collect();
        let mut preference: Vec<u8> = (0..MAX_PATHS as u8).collect();
        preference.sort_by_key(|path| plan.ranks.get(usize::from(*path)).copied().unwrap_or(*path));
        Endpoint {
            peers,
            security: plan.keys.map(|(private, peers)| Mutex::new(Security::new(private, peers))),
            is_initiator: plan.is_initiator,
            rfc8086_only: plan.rfc8086_only,
            preference,
            mtu: plan.mtu,
            overhead_bytes: plan.overhead_bytes,
            waiting_bytes: AtomicU64::new(0),
            addresses: plan.addresses,
            initiated: Mutex::new(None),
            expired: Mutex::new(Instant::ZERO),
            answered: Mutex::new(Instant::ZERO),
            counts: Counts::default(),
        }
    }

    /// Number of peers.
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    /// Sets the socket `via` of a vehicle's path, or none.
    pub fn set_path(&self, now: Instant, path: PathId, via: Option<usize>) {
        for peer in &self.peers {
            let Some(to) = peer.at else { continue };
            let Some(address) = lock(&peer.path_addresses).get_mut(usize::from(path.0)).map(|address| {
                *address = via.map(|via| PathAddress { via, to, from: None });
                *address
            }) else {
                continue;
            };
            let mut tunnel = lock(&peer.tunnel);
            // A path with another address is another path.
            tunnel.handle(now, Input::Present(path, false));
            if address.is_some() {
                tunnel.handle(now, Input::Present(path, true));
            }
        }
    }

    /// Sets the wanted state of each path, and their order (empty: the user's preference).
    pub fn set_wanted(&self, now: Instant, states: &[PathState], order: &[PathId]) {
        for peer in &self.peers {
            let mut tunnel = lock(&peer.tunnel);
            tunnel.handle(now, Input::SetWantedStates(states.to_vec()));
            tunnel.handle(now, Input::SetOrder(order.to_vec()));
        }
    }

    /// A sample of each path, for its assessor.
    pub fn samples(&self) -> Vec<Sample> {
        let Some(peer) = self.peers.first() else { return Vec::new() };
        let tunnel = lock(&peer.tunnel);
        (0..MAX_PATHS as u8).filter_map(|path| tunnel.sample(PathId(path), TOKEN)).collect()
    }

    /// Passes a packet from inside to the engine of its peer, which is returned.
    /// `reply` gets the packets to send back inside.
    pub fn ingress(&self, now: Instant, packet: &mut [u8], mut reply: impl FnMut(&[u8])) -> Option<usize> {
        let Some(peer) = self.route(packet) else {
            self.counts.misrouted.fetch_add(1, Relaxed);
            return None;
        };
        let mtu = self.peers[peer].mtu.load(Relaxed) as u16;
        clamp_mss(packet, mtu);
        if packet.len() <= usize::from(mtu) {
            self.enqueue(now, peer, packet);
        } else if !fragment(packet, mtu, |part| self.enqueue(now, peer, part)) {
            self.counts.too_big.fetch_add(1, Relaxed);
            let mut answered = lock(&self.answered);
            if now.since(*answered) >= TOO_BIG_PERIOD {
                *answered = now;
                // The source is the destination's address: the kernel rejects packets from an address of this machine.
                let names = Inner::parse(packet).map(|inner| inner.destination()).filter(|to| !to.is_multicast());
                let message = names.iter().chain(&self.addresses).find_map(|address| too_big(packet, mtu, *address));
                message.iter().for_each(|message| reply(message));
            }
        }
        Some(peer)
    }

    fn enqueue(&self, now: Instant, peer: usize, packet: &[u8]) {
        let inner = Inner::parse(packet);
        let tos = inner.map_or(0, |inner| inner.tos());
        let carried = TunnelPacket { bytes: packet.into(), tos };
        if self.rfc8086_only {
            let mut keyless_queue = lock(&self.peers[peer].keyless_queue);
            if keyless_queue.len() == MAX_KEYLESS {
                keyless_queue.pop_front();
            }
            keyless_queue.push_back(carried);
            return;
        }
        let flow = inner.map_or(0, |inner| inner.flow_slot());
        let bulk = inner.is_some_and(|inner| inner.is_bulk());
        let input = Input::Packet { flow, bytes: packet.len() as u32, bulk, packet: carried };
        let peer = &self.peers[peer];
        {
            let mut tunnel = lock(&peer.tunnel);
            tunnel.handle(now, input);
            self.count_waiting(peer, tunnel.waiting_bytes());
        }
        self.shed();
    }

    /// The peer of a packet from inside.
    fn route(&self, packet: &[u8]) -> Option<usize> {
        let to = Inner::parse(packet)?.destination();
        let is_routed = |peer: &Peer| peer.prefixes.is_empty() || peer.prefixes.iter().any(|prefix| prefix.holds(to));
        self.peers.iter().position(is_routed)
    }

    /// Sends what the engine of a peer releases; returns when to call again.
    pub fn transmit(
        &self,
        now: Instant,
        peer: usize,
        outbox: &mut Outbox,
        mut send: impl FnMut(Transmit<'_>),
    ) -> Option<Instant> {
        let at = self.peers.get(peer)?;
        if self.rfc8086_only {
            return self.transmit_keyless(now, at, outbox, send);
        }
        let session = match &self.security {
            Some(security) => match lock(security).session_for(now, peer) {
                Some(session) => Some(session),
                // The event that brings a gateway new keys also wakes the sending thread.
                None => return self.is_initiator.then_some(now + KEY_POLL_PERIOD),
            },
            None => None,
        };
        let (wakeup, passes) = {
            let mut tunnel = lock(&at.tunnel);
            while let Some(output) = tunnel.poll_transmit(now) {
                outbox.push(output);
                if outbox.is_full() {
                    break;
                }
            }
            self.count_waiting(at, tunnel.waiting_bytes());
            self.follow_paths(at, &tunnel);
            (if outbox.is_full() { Some(now) } else { tunnel.next_wakeup() }, self.passes(&tunnel))
        };
        if outbox.expects_answer() {
            at.mark_unanswered(now);
        }
        let path_addresses = *lock(&at.path_addresses);
        outbox.send_all(session.as_deref(), |path, batch| {
            let place = usize::from(path.0);
            if let Some((to, passes)) = path_addresses.get(place).copied().flatten().zip(passes.get(place)) {
                send(Transmit { may_fragment: !batch.dont_fragment && batch.segment > *passes, ..batch.transmit(to) });
            }
        });
        wakeup
    }

    /// Sends to an RFC 8086 peer: a vehicle over its most preferred path, a gateway
    /// to the source of the peer's newest packet, which counts as its only path.
    fn transmit_keyless(
        &self,
        now: Instant,
        peer: &Peer,
        outbox: &mut Outbox,
        mut send: impl FnMut(Transmit<'_>),
    ) -> Option<Instant> {
        let path_addresses = *lock(&peer.path_addresses);
        let (path, to) =
            self.preference.iter().find_map(|path| Some((*path, (*path_addresses.get(usize::from(*path))?)?)))?;
        let key = GreKey { path: PathId(path), flow: 0, sequence: 0 };
        let mut keyless_queue = lock(&peer.keyless_queue);
        while !outbox.is_full()
            && let Some(packet) = keyless_queue.pop_front()
        {
            outbox.push(Output::Send { key, number: 0, packet });
        }
        let wakeup = (!keyless_queue.is_empty()).then_some(now);
        drop(keyless_queue);
        outbox.send_all_keyless(|_, batch| send(batch.transmit(to)));
        wakeup
    }

    /// Changes of paths' liveness since the last call.
    pub fn changes(&self, peer: usize, outbox: &mut Outbox) -> Vec<Change> {
        let Some(peer) = self.peers.get(peer) else { return Vec::new() };
        let changes = outbox.changes.drain(..);
        changes.map(|(path, liveness, reason)| Change { peer: peer.name.clone(), path, liveness, reason }).collect()
    }

    /// Maintains the keys: an initiation for every path, if one is due, and the removal of expired state.
    pub fn maintain(&self, now: Instant, unix_ns: u64, mut send: impl FnMut(Transmit<'_>)) {
        let mut expired = lock(&self.expired);
        let is_over = now.since(*expired) >= EXPIRE_PERIOD;
        if is_over {
            *expired = now;
        }
        drop(expired);
        if is_over {
            self.expire_queues(now);
            self.security.iter().for_each(|security| lock(security).expire(now));
        }
        let Some(security) = &self.security else { return };
        let mut initiated = lock(&self.initiated);
        let is_due = initiated.is_none_or(|last| now.since(last) >= INITIATE_PERIOD);
        let Some(peer) = self.peers.first().filter(|_| self.is_initiator && is_due) else { return };
        let mut security = lock(security);
        if !security.wants_rekey(now, 0) && !peer.is_silent(now) {
            return;
        }
        *initiated = Some(now);
        let Some(initiation) = security.initiate(now, unix_ns, 0) else { return };
        for address in lock(&peer.path_addresses).iter().flatten() {
            peer.mark_unanswered(now);
            send(Transmit::one(*address, &initiation));
        }
    }

    /// Time since the first packet that a vehicle's gateway has not answered;
    /// `None` if no answer is due, or the peer sends none.
    pub fn unanswered(&self, now: Instant) -> Option<Duration> {
        let peer = self.peers.first().filter(|_| self.is_initiator && !self.rfc8086_only)?;
        let unanswered_since_ns = peer.unanswered_since_ns.load(Relaxed);
        (unanswered_since_ns > 0).then(|| now.since(Instant::from_nanos(unanswered_since_ns)))
    }

    /// When [`maintain`](Self::maintain) must be called again at the latest.
    pub fn maintenance_due(&self, now: Instant) -> Instant {
        now + if self.is_initiator { INITIATE_PERIOD } else { EXPIRE_PERIOD }
    }
}

/// The connection token of the tunnel's samples for assessors.
const TOKEN: u32 = 0;

impl Peer {
    fn answered(&self, now: Instant) {
        self.last_received_ns.store(now.as_nanos(), Relaxed);
        self.unanswered_since_ns.store(0, Relaxed);
    }

    fn mark_unanswered(&self, now: Instant) {
        let _ = self.unanswered_since_ns.compare_exchange(0, now.as_nanos(), Relaxed, Relaxed);
    }

    fn is_silent(&self, now: Instant) -> bool {
        let unanswered_since_ns = self.unanswered_since_ns.load(Relaxed);
        unanswered_since_ns > 0
            && now.as_nanos().saturating_sub(unanswered_since_ns) > SILENCE_TIMEOUT.as_nanos() as u64
    }

    /// Sets the peer's address on a path to the source of its newest packet.
    fn learn(&self, path: u8, address: PathAddress) {
        if self.at.is_some() {
            return;
        }
        let mut path_addresses = lock(&self.path_addresses);
        if let Some(known) = path_addresses.get_mut(usize::from(path))
            && *known != Some(address)
        {
            *known = Some(address);
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
