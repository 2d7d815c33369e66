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

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crosslane_core::engine::Engine;
use crosslane_core::packet::fragment::fragment;
use crosslane_core::packet::ip::IpView;
use crosslane_core::packet::mss_clamp::clamp_mss;
use crosslane_core::path::{PathId, PathState, Sample};
use crosslane_core::time::Instant;
use crosslane_core::tunnel::wire::control_message::MAX_PATHS;
use crosslane_core::tunnel::{Input, Keepalive, Setup, Tunnel};
use crosslane_core::wanted::Order;

use crate::tunnel::endpoint::egress::{Outbox, Transmit};

mod contact;
pub mod egress;
mod inbound;
mod key_exchange;
mod peer;
mod peers;
mod queued_bytes;
mod rfc8086;
mod status;
mod too_big_replies;
mod types;
mod vehicles;

pub use inbound::ReceiveState;
use key_exchange::{INITIATE_PERIOD, KeyExchange};
use peer::{Peer, PeerEngine};
use peers::Peers;
use queued_bytes::QueuedBytes;
use rfc8086::Rfc8086;
pub use status::{EndpointStatus, PeerStatusView};
use too_big_replies::TooBigReplies;
pub use types::{Change, Counts, PathAddress, PeerPlan, Plan, TunnelPacket};
pub use vehicles::VehicleChanges;

/// Time between two removals of expired keys.
const EXPIRE_PERIOD: Duration = Duration::from_secs(5);
/// Period in which a sender without keys checks for them.
const KEY_POLL_PERIOD: Duration = Duration::from_millis(10);
/// Minimum MTU of IPv6 (RFC 8200, section 5): a path that carries less gets longer packets in fragments.
const MIN_INNER_BYTES: u32 = 1280;
/// The connection token of the tunnel's samples for assessors.
const TOKEN: u32 = 0;

/// The endpoint.
pub struct Endpoint {
    peers: Peers,
    /// Parameters of a peer's engine.
    setup: Setup,
    keepalives: Vec<Keepalive>,
    rfc8086_only: bool,
    /// None: the tunnel is not encrypted.
    keys: Option<KeyExchange>,
    /// Longest inner packet, in bytes; a peer's may be less.
    mtu: u32,
    queued: QueuedBytes,
    too_big: TooBigReplies,
    /// When expired state was last removed.
    expired: Mutex<Instant>,
    /// Counts of packets that were not carried.
    pub counts: Counts,
}

impl Endpoint {
    /// An endpoint that has received nothing. `unix_ns` is the time since 1970.
    pub fn new(plan: Plan, unix_ns: u64) -> Endpoint {
        let setup = Setup {
            mode: plan.mode,
            is_initiator: plan.is_initiator,
            copies: plan.copies,
            ranks: plan.ranks,
            epoch: 0,
            overhead: plan.overhead,
        };
        let places = plan.max_peers.max(plan.peers.len());
        let endpoint = Endpoint {
            queued: QueuedBytes::new(places),
            peers: Peers::new(places),
            setup,
            keepalives: plan.keepalives,
            rfc8086_only: plan.rfc8086_only,
            keys: plan.keys.map(|(private, peers)| KeyExchange::new(private, peers)),
            mtu: plan.mtu,
            too_big: TooBigReplies::new(plan.addresses),
            expired: Mutex::new(Instant::ZERO),
            counts: Counts::default(),
        };
        plan.peers.into_iter().for_each(|peer| endpoint.add_peer(peer, unix_ns));
        endpoint
    }

    fn add_peer(&self, plan: PeerPlan, unix_ns: u64) {
        let setup = &self.setup;
        let engine = if self.rfc8086_only {
            PeerEngine::Rfc8086(Mutex::new(Rfc8086::new(&setup.ranks)))
        } else {
            // Milliseconds: restarts are further apart.
            let epoch = ((unix_ns / 1_000_000) as u32).wrapping_add(self.peers.used() as u32) | 1;
            let mut tunnel = Tunnel::new(Setup { epoch, ..setup.clone() });
            tunnel.set_keepalives(&self.keepalives);
            tunnel.probe_mtu_up_to(self.mtu + self.setup.overhead.around_packet());
            PeerEngine::Multipath(Box::new(Mutex::new(tunnel)))
        };
        self.peers.add(Peer::new(plan, engine, self.mtu));
    }

    /// Number of peers, with those that have left.
    pub fn peers(&self) -> usize {
        self.peers.used()
    }

    /// Sets the socket `via` of a vehicle's path, or none.
    pub fn set_path(&self, now: Instant, path: PathId, via: Option<usize>) {
        for peer in self.peers.iter().map(|(_, peer)| peer).filter(|peer| peer.set_socket(path, via)) {
            let Some(mut tunnel) = peer.multipath() else { continue };
            // A path with another address is another path.
            tunnel.handle(now, Input::Present(path, false));
            if via.is_some() {
                tunnel.handle(now, Input::Present(path, true));
            }
        }
    }

    /// Sets the wanted state of each path, and their order.
    pub fn set_wanted(&self, now: Instant, states: &[PathState], order: &Order) {
        for mut tunnel in self.peers.iter().filter_map(|(_, peer)| peer.multipath()) {
            tunnel.handle(now, Input::SetWantedStates(states.to_vec()));
            tunnel.handle(now, Input::SetOrder(order.clone()));
        }
    }

    /// A sample of each path, for its assessor; none of an RFC 8086 peer, which sends no feedback.
    pub fn samples(&self) -> Vec<Sample> {
        let Some(tunnel) = self.peers.first().and_then(Peer::multipath) else { return Vec::new() };
        (0..MAX_PATHS as u8).filter_map(|path| tunnel.sample(PathId(path), TOKEN)).collect()
    }

    /// Passes a packet from inside to the engine of its peer, which is returned.
    /// `reply` gets the packets to send back inside.
    pub fn ingress(&self, now: Instant, packet: &mut [u8], mut reply: impl FnMut(&[u8])) -> Option<usize> {
        let route = |to| self.peers.iter().find(|(_, peer)| peer.holds(to));
        let routed = IpView::parse(packet).and_then(|packet| Some((route(packet.destination())?, packet)));
        let Some(((place, peer), mut packet)) = routed else {
            self.counts.misrouted.fetch_add(1, Relaxed);
            return None;
        };
        let mtu = peer.mtu.load(Relaxed) as u16;
        clamp_mss(&mut packet, mtu);
        if packet.packet().len() <= usize::from(mtu) {
            self.enqueue(now, place, peer, &packet);
        } else if !fragment(&packet, mtu, |part| self.enqueue(now, place, peer, &part)) {
            self.counts.too_big.fetch_add(1, Relaxed);
            self.too_big.reply(now, &packet, mtu).iter().for_each(|message| reply(message));
        }
        Some(place)
    }

    fn enqueue(&self, now: Instant, place: usize, peer: &Peer, packet: &IpView<impl AsRef<[u8]>>) {
        let carried = TunnelPacket { bytes: packet.packet().into(), tos: packet.tos() };
        match &peer.engine {
            PeerEngine::Rfc8086(sender) => lock(sender).enqueue(carried),
            PeerEngine::Multipath(tunnel) => {
                let (flow, bulk, bytes) = (packet.flow_slot(), packet.is_bulk(), carried.bytes.len() as u32);
                {
                    let mut tunnel = lock(tunnel);
                    tunnel.handle(now, Input::Packet { flow, bytes, bulk, packet: carried });
                    self.queued.set(place, tunnel.waiting_bytes());
                }
                self.shed();
            }
        }
    }

    /// While too many bytes are queued, the peer with the most drops its oldest packet.
    fn shed(&self) {
        while let Some(place) = self.queued.must_shed() {
            let Some(mut tunnel) = self.peers.get(place).and_then(Peer::multipath) else {
                // It has left meanwhile.
                self.queued.set(place, 0);
                continue;
            };
            tunnel.shed();
            self.queued.set(place, tunnel.waiting_bytes());
        }
    }

    /// Sends what the engine of a peer releases; returns when to call again.
    pub fn transmit(
        &self,
        now: Instant,
        place: usize,
        outbox: &mut Outbox,
        send: impl FnMut(Transmit<'_>),
    ) -> Option<Instant> {
        let peer = self.peers.get(place)?;
        let tunnel = match &peer.engine {
            PeerEngine::Rfc8086(sender) => return transmit_rfc8086(now, peer, sender, outbox, send),
            PeerEngine::Multipath(tunnel) => tunnel,
        };
        let session = self.keys.as_ref().and_then(|keys| keys.security().session_for(now, place));
        if self.keys.is_some() && session.is_none() {
            // The event that brings a gateway new keys also wakes the sending thread.
            return self.setup.is_initiator.then_some(now + KEY_POLL_PERIOD);
        }
        let (wakeup, passes) = {
            let mut tunnel = lock(tunnel);
            while let Some(output) = tunnel.poll_transmit(now) {
                outbox.push(output);
                if outbox.is_full() {
                    break;
                }
            }
            self.queued.set(place, tunnel.waiting_bytes());
            peer.mtu.store(self.inner_mtu(&tunnel), Relaxed);
            let wakeup = if outbox.is_full() { Some(now) } else { tunnel.next_wakeup() };
            (wakeup, self.datagram_bytes(&tunnel))
        };
        if outbox.expects_answer() {
            peer.contact.on_send(now);
        }
        let addresses = peer.addresses();
        let route = |path: PathId| {
            let place = usize::from(path.0);
            addresses.get(place).copied().flatten().zip(passes.get(place).copied())
        };
        outbox.send_all(session.as_deref(), false, route, send);
        wakeup
    }

    /// The longest datagram known to pass each path unfragmented, as UDP payload in bytes.
    fn datagram_bytes(&self, tunnel: &Tunnel<TunnelPacket>) -> [usize; MAX_PATHS] {
        std::array::from_fn(|path| {
            let passes = tunnel.passes_bytes(PathId(path as u8));
            passes.map_or(usize::MAX, |bytes| bytes.saturating_sub(self.setup.overhead.around_datagram()) as usize)
        })
    }

    /// The inner MTU: what every path of the peer carries, but not below IPv6's minimum.
    fn inner_mtu(&self, tunnel: &Tunnel<TunnelPacket>) -> u32 {
        let all = tunnel.passes_all_bytes();
        let passes = all.map_or(self.mtu, |bytes| bytes.saturating_sub(self.setup.overhead.around_packet()));
        passes.clamp(self.mtu.min(MIN_INNER_BYTES), self.mtu)
    }

    /// Changes of paths' liveness since the last call.
    pub fn changes(&self, peer: usize, outbox: &mut Outbox) -> Vec<Change> {
        let Some(peer) = self.peers.get(peer) else { return Vec::new() };
        let changes = outbox.changes.drain(..);
        changes
            .map(|(path, liveness, reason)| Change { peer: peer.plan.name.clone(), path, liveness, reason })
            .collect()
    }

    /// Maintains the keys: an initiation for every path, if one is due, and the removal of expired state. Without a
    /// path none is due, so that the first path does not wait for the second initiation.
    pub fn maintain(&self, now: Instant, unix_ns: u64, mut send: impl FnMut(Transmit<'_>)) {
        self.expire(now);
        let Some((keys, peer)) = self.keys.as_ref().zip(self.peers.first()).filter(|_| self.setup.is_initiator) else {
            return;
        };
        let addresses = peer.addresses();
        if addresses.iter().all(Option::is_none) {
            return;
        }
        let Some(initiation) = keys.initiation(now, unix_ns, peer.contact.is_silent(now)) else { return };
        for address in addresses.iter().flatten() {
            peer.contact.on_send(now);
            send(Transmit::one(*address, &initiation));
        }
    }

    /// Drops expired keys, and expired packets of peers that are gone, with their memory.
    fn expire(&self, now: Instant) {
        let mut expired = lock(&self.expired);
        if now.since(*expired) < EXPIRE_PERIOD {
            return;
        }
        *expired = now;
        drop(expired);
        let before = self.queued.total();
        for (place, peer) in self.peers.iter() {
            let Some(mut tunnel) = peer.multipath() else { continue };
            tunnel.expire(now);
            self.queued.set(place, tunnel.waiting_bytes());
        }
        self.queued.trim_memory(before);
        self.keys.iter().for_each(|keys| keys.security().expire(now));
    }

    /// Time since the first packet that a vehicle's gateway has not answered;
    /// `None` if no answer is due, or the peer sends none.
    pub fn unanswered(&self, now: Instant) -> Option<Duration> {
        self.peers.first().filter(|peer| self.setup.is_initiator && !peer.is_rfc8086())?.contact.unanswered(now)
    }

    /// When [`maintain`](Self::maintain) must be called again at the latest.
    pub fn maintenance_due(&self, now: Instant) -> Instant {
        now + if self.setup.is_initiator { INITIATE_PERIOD } else { EXPIRE_PERIOD }
    }
}

/// Sends to an RFC 8086 peer, in GRE without key and sequence number; returns when to call again.
fn transmit_rfc8086(
    now: Instant,
    peer: &Peer,
    sender: &Mutex<Rfc8086>,
    outbox: &mut Outbox,
    send: impl FnMut(Transmit<'_>),
) -> Option<Instant> {
    let mut sender = lock(sender);
    let (path, to) = sender.path(&peer.addresses())?;
    while !outbox.is_full()
        && let Some(output) = sender.poll_transmit(path)
    {
        outbox.push(output);
    }
    let wakeup = sender.next_wakeup(now);
    drop(sender);
    outbox.send_all(None, true, |_| Some((to, usize::MAX)), send);
    wakeup
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
