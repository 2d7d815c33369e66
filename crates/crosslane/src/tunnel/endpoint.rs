//! One end of the tunnel: who is at the other ends, and what becomes of each
//! packet. It knows no socket, no device and no clock, so two of them can be
//! joined in memory.
//!
//! ```text
//! TUN ─ take_in ─▶ engine of the peer ─ depart ─▶ sealed ─▶ a path's socket
//! TUN ◀─ settle ── engine of the peer ◀─ opened ◀─ take_out ◀─ socket
//! ```
//!
//! Two threads work on it: one sends, one receives. Each peer's engine is
//! behind a lock, held for a batch; packets are sealed and opened outside.

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
use crate::tunnel::endpoint::egress::{Outbox, Sent};

pub mod egress;
mod inbound;
mod limits;
mod status;
mod types;

pub use inbound::Intake;
pub use status::{EndpointStatus, PeerStatusView};
pub use types::{Carried, Change, Counts, PeerPlan, Plan, Way};

/// After so long without an answer the other end may have begun anew and know
/// nothing of our keys.
const SILENCE: Duration = Duration::from_millis(400);
/// Between two initiations of a handshake.
const INITIATE_EACH: Duration = Duration::from_millis(250);
/// Between two times that old keys are forgotten.
const EXPIRE_EACH: Duration = Duration::from_secs(5);
/// How soon to look again whether there are keys.
const NO_KEYS_YET: Duration = Duration::from_millis(10);
/// Packets that wait for a standard peer at most: the newest.
const MOST_BARE: usize = 1024;
/// "Too big" is answered so often at most.
const ANSWER_EACH: Duration = Duration::from_millis(5);

struct Peer {
    name: String,
    prefixes: Vec<Prefix>,
    at: Option<SocketAddr>,
    tunnel: Mutex<Tunnel<Carried>>,
    /// What waits for a standard peer, past the engine.
    bare: Mutex<VecDeque<Carried>>,
    ways: Mutex<[Option<Way>; MAX_PATHS]>,
    /// Longest packet inside that all its paths carry.
    mtu: AtomicU32,
    /// Bytes of packets that wait in its engine.
    waiting_bytes: AtomicU64,
    /// When something of it was last opened, in ns.
    heard_ns: AtomicU64,
    /// When something was first sent since then, in ns; 0: nothing was.
    asked_ns: AtomicU64,
}

/// The end.
pub struct End {
    peers: Vec<Peer>,
    security: Option<Mutex<Security>>,
    is_initiator: bool,
    standard: bool,
    /// Paths, the most preferred first.
    preference: Vec<u8>,
    /// Longest packet inside, in bytes; a peer's may be less.
    mtu: u32,
    overhead_bytes: u32,
    /// Over all peers.
    waiting_bytes: AtomicU64,
    addresses: Vec<IpAddr>,
    /// Times of the last initiation, expiry and "too big".
    initiated: Mutex<Option<Instant>>,
    expired: Mutex<Instant>,
    answered: Mutex<Instant>,
    /// What did not go through.
    pub counts: Counts,
}

impl End {
    /// An end that has heard of nobody. `unix_ns` is the time since 1970.
    pub fn new(plan: Plan, unix_ns: u64) -> End {
        let overhead_bytes = plan.overhead_bytes - NUMBERED_BYTES;
        let setup = |place: usize| Setup {
            mode: plan.mode,
            is_initiator: plan.is_initiator,
            ranks: plan.ranks.clone(),
            // Milliseconds: no two starts are nearer.
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
            bare: Mutex::new(VecDeque::new()),
            ways: Mutex::new([None; MAX_PATHS]),
            mtu: AtomicU32::new(plan.mtu),
            waiting_bytes: AtomicU64::new(0),
            heard_ns: AtomicU64::new(0),
            asked_ns: AtomicU64::new(0),
        });
        let peers = peers.collect();
        let mut preference: Vec<u8> = (0..MAX_PATHS as u8).collect();
        preference.sort_by_key(|path| plan.ranks.get(usize::from(*path)).copied().unwrap_or(*path));
        End {
            peers,
            security: plan.keys.map(|(private, peers)| Mutex::new(Security::new(private, peers))),
            is_initiator: plan.is_initiator,
            standard: plan.standard,
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

    /// How many other ends there are.
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    /// A vehicle's path can be used by socket `via` from now on, or cannot.
    pub fn set_path(&self, now: Instant, path: PathId, via: Option<usize>) {
        for peer in &self.peers {
            let Some(to) = peer.at else { continue };
            let Some(way) = lock(&peer.ways).get_mut(usize::from(path.0)).map(|way| {
                *way = via.map(|via| Way { via, to, from: None });
                *way
            }) else {
                continue;
            };
            let mut tunnel = lock(&peer.tunnel);
            // A path that comes by another address is another path.
            tunnel.handle(now, Input::Present(path, false));
            if way.is_some() {
                tunnel.handle(now, Input::Present(path, true));
            }
        }
    }

    /// What is wanted of each path.
    pub fn want(&self, now: Instant, states: &[PathState]) {
        for peer in &self.peers {
            lock(&peer.tunnel).handle(now, Input::SetWantedStates(states.to_vec()));
        }
    }

    /// What was seen of each path, as an assessor takes it.
    pub fn samples(&self) -> Vec<Sample> {
        let Some(peer) = self.peers.first() else { return Vec::new() };
        let tunnel = lock(&peer.tunnel);
        (0..MAX_PATHS as u8).filter_map(|path| tunnel.sample(PathId(path), TOKEN)).collect()
    }

    /// Takes packets from inside into the engine of the peer that they are for.
    /// `answer` gets what goes back inside.
    pub fn take_in(&self, now: Instant, packet: &mut [u8], mut answer: impl FnMut(&[u8])) -> Option<usize> {
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
            if now.since(*answered) >= ANSWER_EACH {
                *answered = now;
                // In the name of the destination: what bears an address of this machine its kernel does not believe.
                let names = Inner::parse(packet).map(|inner| inner.destination()).filter(|to| !to.is_multicast());
                let told = names.iter().chain(&self.addresses).find_map(|address| too_big(packet, mtu, *address));
                told.iter().for_each(|told| answer(told));
            }
        }
        Some(peer)
    }

    fn enqueue(&self, now: Instant, peer: usize, packet: &[u8]) {
        let inner = Inner::parse(packet);
        let tos = inner.map_or(0, |inner| inner.tos());
        let carried = Carried { bytes: packet.into(), tos };
        if self.standard {
            let mut bare = lock(&self.peers[peer].bare);
            if bare.len() == MOST_BARE {
                bare.pop_front();
            }
            bare.push_back(carried);
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

    /// The peer that a packet from inside is for.
    fn route(&self, packet: &[u8]) -> Option<usize> {
        let to = Inner::parse(packet)?.destination();
        let leads_there = |peer: &Peer| peer.prefixes.is_empty() || peer.prefixes.iter().any(|prefix| prefix.holds(to));
        self.peers.iter().position(leads_there)
    }

    /// Sends what may leave to a peer; when to come again.
    pub fn depart(
        &self,
        now: Instant,
        peer: usize,
        outbox: &mut Outbox,
        mut send: impl FnMut(Sent<'_>),
    ) -> Option<Instant> {
        let at = self.peers.get(peer)?;
        if self.standard {
            return self.depart_bare(now, at, outbox, send);
        }
        let session = match &self.security {
            Some(security) => match lock(security).session_for(now, peer) {
                Some(session) => Some(session),
                // What brings a gateway new keys wakes it.
                None => return self.is_initiator.then_some(now + NO_KEYS_YET),
            },
            None => None,
        };
        let (wakeup, passes) = {
            let mut tunnel = lock(&at.tunnel);
            while let Some(output) = tunnel.poll_transmit(now) {
                outbox.take(output);
                if outbox.is_full() {
                    break;
                }
            }
            self.count_waiting(at, tunnel.waiting_bytes());
            self.follow_paths(at, &tunnel);
            (if outbox.is_full() { Some(now) } else { tunnel.next_wakeup() }, self.passes(&tunnel))
        };
        if outbox.asks() {
            at.asked(now);
        }
        let ways = *lock(&at.ways);
        outbox.leave(session.as_deref(), |path, batch| {
            let place = usize::from(path.0);
            if let Some((way, passes)) = ways.get(place).copied().flatten().zip(passes.get(place)) {
                send(Sent { way, may_be_cut: !batch.stays_whole && batch.segment > *passes, ..batch.sent(way) });
            }
        });
        wakeup
    }

    /// Sends to a standard peer: a vehicle over its most preferred path, a gateway
    /// to where the peer's newest packet came from, which stands for its only path.
    fn depart_bare(
        &self,
        now: Instant,
        peer: &Peer,
        outbox: &mut Outbox,
        mut send: impl FnMut(Sent<'_>),
    ) -> Option<Instant> {
        let ways = *lock(&peer.ways);
        let (path, way) = self.preference.iter().find_map(|path| Some((*path, (*ways.get(usize::from(*path))?)?)))?;
        let label = GreKey { path: PathId(path), flow: 0, sequence: 0 };
        let mut bare = lock(&peer.bare);
        while !outbox.is_full()
            && let Some(packet) = bare.pop_front()
        {
            outbox.take(Output::Send { key: label, number: 0, packet });
        }
        let wakeup = (!bare.is_empty()).then_some(now);
        drop(bare);
        outbox.leave_bare(|_, batch| send(batch.sent(way)));
        wakeup
    }

    /// Changes of paths' health since the last time, to be told.
    pub fn changes(&self, peer: usize, outbox: &mut Outbox) -> Vec<Change> {
        let Some(peer) = self.peers.get(peer) else { return Vec::new() };
        let told = outbox.changes.drain(..);
        told.map(|(path, liveness, reason)| Change { peer: peer.name.clone(), path, liveness, reason }).collect()
    }

    /// What keeps the keys fresh: an initiation for every path, if one is due. Forgets what is too old to be of use.
    pub fn upkeep(&self, now: Instant, unix_ns: u64, mut send: impl FnMut(Sent<'_>)) {
        let mut expired = lock(&self.expired);
        let is_over = now.since(*expired) >= EXPIRE_EACH;
        if is_over {
            *expired = now;
        }
        drop(expired);
        if is_over {
            self.forget_old(now);
            self.security.iter().for_each(|security| lock(security).expire(now));
        }
        let Some(security) = &self.security else { return };
        let mut initiated = lock(&self.initiated);
        let is_due = initiated.is_none_or(|last| now.since(last) >= INITIATE_EACH);
        let Some(peer) = self.peers.first().filter(|_| self.is_initiator && is_due) else { return };
        let mut security = lock(security);
        if !security.wants_rekey(now, 0) && !peer.is_silent(now) {
            return;
        }
        *initiated = Some(now);
        let Some(initiation) = security.initiate(now, unix_ns, 0) else { return };
        for way in lock(&peer.ways).iter().flatten() {
            peer.asked(now);
            send(Sent::one(*way, &initiation));
        }
    }

    /// For how long a vehicle's gateway has answered nothing, since something was
    /// sent to it; `None` if nothing is awaited, or none needs to answer.
    pub fn unanswered(&self, now: Instant) -> Option<Duration> {
        let peer = self.peers.first().filter(|_| self.is_initiator && !self.standard)?;
        let asked_ns = peer.asked_ns.load(Relaxed);
        (asked_ns > 0).then(|| now.since(Instant::from_nanos(asked_ns)))
    }

    /// When [`upkeep`](Self::upkeep) is to be called again at the latest.
    pub fn upkeep_due(&self, now: Instant) -> Instant {
        now + if self.is_initiator { INITIATE_EACH } else { EXPIRE_EACH }
    }
}

/// Stands for the tunnel among the connections that assessors watch.
const TOKEN: u32 = 0;

impl Peer {
    fn answered(&self, now: Instant) {
        self.heard_ns.store(now.as_nanos(), Relaxed);
        self.asked_ns.store(0, Relaxed);
    }

    fn asked(&self, now: Instant) {
        let _ = self.asked_ns.compare_exchange(0, now.as_nanos(), Relaxed, Relaxed);
    }

    fn is_silent(&self, now: Instant) -> bool {
        let asked_ns = self.asked_ns.load(Relaxed);
        asked_ns > 0 && now.as_nanos().saturating_sub(asked_ns) > SILENCE.as_nanos() as u64
    }

    /// The peer's address on a path is where its newest packet came from.
    fn learn(&self, path: u8, way: Way) {
        if self.at.is_some() {
            return;
        }
        let mut ways = lock(&self.ways);
        if let Some(known) = ways.get_mut(usize::from(path))
            && *known != Some(way)
        {
            *known = Some(way);
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
