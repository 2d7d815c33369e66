//! Received datagrams: decrypted, passed to the engine of the peer, and delivered.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crosslane_core::engine::Engine;
use crosslane_core::packet::ecn::{Verdict, decapsulate};
use crosslane_core::packet::ip::IpView;
use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_core::tunnel::Input;
use crosslane_core::tunnel::wire::compressed_gre;
use crosslane_core::tunnel::wire::control_message::Message;
use crosslane_core::tunnel::wire::gre::{self, Payload};
use crosslane_core::tunnel::wire::gre_key::GreKey;
use crosslane_core::tunnel::wire::path_feedback::PathFeedback;

use super::super::security::{HandshakeEvent, Session, is_data};
use super::peer::{Peer, PeerEngine};
use super::{Endpoint, PathAddress, TunnelPacket, lock};

/// The ECN field in the DS byte.
const ECN_MASK: u8 = 3;

/// Longest pure acknowledgement with the longest headers of TCP and IPv4 (IPv6 without extension headers is shorter).
const MAX_PURE_ACK_BYTES: usize = 120;

/// Whether it is a pure acknowledgement of TCP. Only short packets are parsed for this; delivery parses them again.
fn is_pure_ack(packet: &[u8]) -> bool {
    packet.len() <= MAX_PURE_ACK_BYTES && IpView::parse(packet).is_some_and(|packet| packet.is_pure_ack())
}

/// State of the receiving thread between datagrams.
#[derive(Default)]
pub struct ReceiveState {
    plain: Vec<u8>,
    /// Session of the newest datagram, by the datagram's first bytes.
    session: Option<([u8; 4], usize, Arc<Session>)>,
    pub(super) inputs: Vec<(usize, Input<TunnelPacket>)>,
}

impl Endpoint {
    /// Processes a datagram from outside; returns the reply to send at once.
    pub fn on_datagram(
        &self,
        state: &mut ReceiveState,
        now: Instant,
        address: PathAddress,
        tos: u8,
        datagram: &[u8],
    ) -> Option<Vec<u8>> {
        let Some(keys) = &self.keys else {
            // Without keys any host can impersonate the peer; a vehicle at least knows its gateway's address.
            let peer = self.peers.first().filter(|peer| peer.plan.at.is_none_or(|at| at == address.to));
            let Some(peer) = peer else { return self.reject() };
            let packet = gre::read(datagram).ok();
            let key = packet.and_then(|(header, _)| header.key);
            let path = if peer.is_rfc8086() { Some(0) } else { key.map(|key| GreKey::of_key(key).path.0) };
            self.receive_gre(state, now, 0, path.map(|path| (path, address)), tos, packet);
            return None;
        };
        if !is_data(datagram) {
            return match keys.security().receive(now, datagram) {
                HandshakeEvent::Reply { datagram, .. } => Some(datagram),
                HandshakeEvent::Established { peer, .. } => {
                    self.peers.get(peer)?.contact.on_receive(now);
                    None
                }
                HandshakeEvent::Nothing(_) => self.reject(),
            };
        }
        let Some(begin) = datagram.first_chunk::<4>() else { return self.reject() };
        if state.session.as_ref().is_none_or(|(known, _, session)| known != begin || session.is_over(now)) {
            let found = keys.security().session_of(now, datagram);
            let Some((peer, session)) = found else { return self.reject() };
            state.session = Some((*begin, peer, session));
        }
        let Some((_, peer, session)) = &state.session else { return None };
        let peer = *peer;
        let Ok(opened) = session.open(datagram, &mut state.plain) else { return self.reject() };
        let plain = std::mem::take(&mut state.plain);
        let packet = compressed_gre::read(PathId(opened.path), &plain);
        self.receive_gre(state, now, peer, Some((opened.path, address)), tos, packet);
        state.plain = plain;
        None
    }

    fn receive_gre(
        &self,
        state: &mut ReceiveState,
        now: Instant,
        place: usize,
        from: Option<(u8, PathAddress)>,
        tos: u8,
        packet: Option<(gre::Header, &[u8])>,
    ) {
        let Some(peer) = self.peers.get(place) else { return drop(self.reject()) };
        peer.contact.on_receive(now);
        let Some((header, payload)) = packet else { return drop(self.reject()) };
        let key = header.key.filter(|_| !peer.is_rfc8086()).map(GreKey::of_key);
        if let Some((path, address)) = from {
            peer.learn(path, address);
        }
        let number = header.sequence;
        let packet = |bytes: &[u8]| TunnelPacket { bytes: bytes.into(), tos };
        let arrived = |key, feedback, inner: &[u8]| Input::Arrived {
            key,
            number,
            bytes: inner.len() as u32,
            feedback,
            is_pure_ack: is_pure_ack(inner),
            packet: packet(inner),
        };
        let input = match (key, header.payload) {
            (key, Payload::Control) => match key.zip(Message::read(payload)) {
                Some((key, message)) => Input::Message { path: key.path, number, message },
                None => return drop(self.reject()),
            },
            (key, Payload::WithFeedback) => match key.zip(PathFeedback::read(payload)) {
                Some((key, (feedback, inner))) => arrived(key, Some(feedback), inner),
                None => return drop(self.reject()),
            },
            (Some(key), Payload::Ipv4 | Payload::Ipv6) => arrived(key, None, payload),
            (None, Payload::Ipv4 | Payload::Ipv6) => Input::Keyless(packet(payload)),
        };
        state.inputs.push((place, input));
    }

    /// Counts a rejected datagram; nothing is replied.
    fn reject(&self) -> Option<Vec<u8>> {
        self.counts.rejected.fetch_add(1, Relaxed);
        None
    }

    /// Passes the received packets to the engines, and the packets they release to
    /// `deliver`; returns when the sending thread must run.
    pub fn flush(
        &self,
        state: &mut ReceiveState,
        now: Instant,
        mut deliver: impl FnMut(&IpView<&[u8]>),
    ) -> Option<Instant> {
        let mut wakeup: Option<Instant> = None;
        let mut inputs = state.inputs.drain(..).peekable();
        while let Some((place, first)) = inputs.next() {
            let Some(peer) = self.peers.get(place) else { continue };
            let mut tunnel = match &peer.engine {
                PeerEngine::Multipath(tunnel) => lock(tunnel),
                PeerEngine::Rfc8086(sender) => {
                    if let Input::Keyless(packet) = first {
                        self.deliver_packet(peer, packet, &mut deliver);
                    }
                    wakeup = wakeup.into_iter().chain(lock(sender).next_wakeup(now)).min();
                    continue;
                }
            };
            tunnel.handle(now, first);
            while let Some((_, input)) = inputs.next_if(|(other, _)| *other == place) {
                tunnel.handle(now, input);
            }
            while let Some(packet) = tunnel.poll_delivery() {
                self.deliver_packet(peer, packet, &mut deliver);
            }
            wakeup = wakeup.into_iter().chain(tunnel.next_wakeup()).min();
        }
        wakeup
    }

    /// Delivers packets whose reorder timeout has expired, for the sending thread.
    pub fn deliver(&self, peer: usize, mut deliver: impl FnMut(&IpView<&[u8]>)) {
        let Some(peer) = self.peers.get(peer) else { return };
        let Some(mut tunnel) = peer.multipath() else { return };
        while let Some(packet) = tunnel.poll_delivery() {
            self.deliver_packet(peer, packet, &mut deliver);
        }
    }

    /// Delivers a packet if the peer may use its source address. Only a packet with a mark in its
    /// outer header is changed.
    fn deliver_packet(&self, peer: &Peer, mut packet: TunnelPacket, deliver: &mut impl FnMut(&IpView<&[u8]>)) {
        if packet.tos & ECN_MASK == 0 {
            self.admit(peer, &packet.bytes[..]).iter().for_each(deliver);
        } else if let Some(mut view) = self.admit(peer, Arc::make_mut(&mut packet.bytes))
            && decapsulate(&mut view, packet.tos) == Verdict::Forward
        {
            deliver(&view.borrowed());
        }
    }

    /// The packet of a peer, if it is one and the peer may use its source address.
    fn admit<B: AsRef<[u8]>>(&self, peer: &Peer, bytes: B) -> Option<IpView<B>> {
        let view = IpView::parse(bytes).filter(|view| peer.holds(view.source()));
        if view.is_none() {
            self.counts.misrouted.fetch_add(1, Relaxed);
        }
        view
    }
}
