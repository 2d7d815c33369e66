//! What comes from outside: opened, given to the engine of the peer, and let out.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crosslane_core::engine::Engine;
use crosslane_core::time::Instant;
use crosslane_core::tunnel::Input;
use crosslane_core::tunnel::wire::control_message::Message;
use crosslane_core::tunnel::wire::gre::{self, Payload};
use crosslane_core::tunnel::wire::gre_key::GreKey;

use super::super::security::{HandshakeEvent, Session, is_data};
use super::{Carried, End, Peer, Way, lock};
use crate::tunnel::ip::{Inner, Verdict, decapsulate};

/// The bits of congestion in DSCP and ECN.
const CONGESTION: u8 = 3;

/// What the receiving thread keeps between datagrams.
#[derive(Default)]
pub struct Intake {
    plain: Vec<u8>,
    /// Session of the newest datagram, by its first bytes.
    session: Option<([u8; 4], usize, Arc<Session>)>,
    pub(super) inputs: Vec<(usize, Input<Carried>)>,
}

impl End {
    /// Takes a datagram from outside; what is to be sent back at once.
    pub fn take_out(&self, intake: &mut Intake, now: Instant, way: Way, tos: u8, datagram: &[u8]) -> Option<Vec<u8>> {
        let Some(security) = &self.security else {
            self.take_plain(intake, now, way, tos, datagram);
            return None;
        };
        if !is_data(datagram) {
            return match lock(security).receive(now, datagram) {
                HandshakeEvent::Reply { datagram, .. } => Some(datagram),
                HandshakeEvent::Established { peer, .. } => {
                    self.peers.get(peer)?.answered(now);
                    None
                }
                HandshakeEvent::Nothing(_) => self.refuse(),
            };
        }
        let Some(begin) = datagram.first_chunk::<4>() else { return self.refuse() };
        if intake.session.as_ref().is_none_or(|(known, _, session)| known != begin || session.is_over(now)) {
            let found = lock(security).session_of(now, datagram);
            let Some((peer, session)) = found else { return self.refuse() };
            intake.session = Some((*begin, peer, session));
        }
        let Some((_, peer, session)) = &intake.session else { return None };
        let peer = *peer;
        match session.open(datagram, &mut intake.plain) {
            Ok(opened) => {
                let plain = std::mem::take(&mut intake.plain);
                self.take_gre(intake, now, peer, Some((opened.path, way)), tos, &plain);
                intake.plain = plain;
                None
            }
            Err(_) => self.refuse(),
        }
    }

    fn take_plain(&self, intake: &mut Intake, now: Instant, way: Way, tos: u8, datagram: &[u8]) {
        // Without keys anybody may say that he is the other end; a vehicle at least
        // knows where its gateway is.
        if self.peers.first().is_some_and(|peer| peer.at.is_none_or(|at| at == way.to)) {
            let key = gre::read(datagram).ok().and_then(|(header, _)| header.key);
            let path = if self.standard { Some(0) } else { key.map(|key| GreKey::of_key(key).path.0) };
            self.take_gre(intake, now, 0, path.map(|path| (path, way)), tos, datagram);
        } else {
            self.refuse();
        }
    }

    fn take_gre(
        &self,
        intake: &mut Intake,
        now: Instant,
        place: usize,
        from: Option<(u8, Way)>,
        tos: u8,
        packet: &[u8],
    ) {
        let Some(peer) = self.peers.get(place) else { return };
        peer.answered(now);
        let Ok((header, payload)) = gre::read(packet) else {
            self.refuse();
            return;
        };
        let label = header.key.filter(|_| !self.standard).map(GreKey::of_key);
        if let Some((path, way)) = from
            && label.is_none_or(|label| label.path.0 == path)
        {
            peer.learn(path, way);
        }
        if header.payload == Payload::Control {
            let told = label.zip(Message::read(payload));
            match told {
                Some((label, message)) => {
                    intake.inputs.push((place, Input::Message { path: label.path, number: header.sequence, message }));
                }
                None => drop(self.refuse()),
            }
            return;
        }
        let (length, bytes) = (payload.len() as u32, payload.into());
        let packet = Carried { bytes, tos };
        let input = match label {
            Some(label) => Input::Arrived { key: label, number: header.sequence, bytes: length, packet },
            None => Input::Keyless(packet),
        };
        intake.inputs.push((place, input));
    }

    /// Nothing is answered.
    fn refuse(&self) -> Option<Vec<u8>> {
        self.counts.rejected.fetch_add(1, Relaxed);
        None
    }

    /// Hands what was taken out to the engines, and what they let go to
    /// `deliver`; when the sending thread has something to do.
    pub fn settle(&self, intake: &mut Intake, now: Instant, mut deliver: impl FnMut(&[u8])) -> Option<Instant> {
        let mut wakeup: Option<Instant> = None;
        let mut inputs = intake.inputs.drain(..).peekable();
        while let Some((place, first)) = inputs.next() {
            let Some(peer) = self.peers.get(place) else { continue };
            let mut tunnel = lock(&peer.tunnel);
            tunnel.handle(now, first);
            while let Some((_, input)) = inputs.next_if(|(other, _)| *other == place) {
                tunnel.handle(now, input);
            }
            while let Some(packet) = tunnel.poll_delivery() {
                self.let_out(peer, packet, &mut deliver);
            }
            wakeup = wakeup.into_iter().chain(tunnel.next_wakeup()).min();
        }
        wakeup
    }

    /// What became free by waiting, for the sending thread.
    pub fn deliveries(&self, peer: usize, mut deliver: impl FnMut(&[u8])) {
        let Some(peer) = self.peers.get(peer) else { return };
        let mut tunnel = lock(&peer.tunnel);
        while let Some(packet) = tunnel.poll_delivery() {
            self.let_out(peer, packet, &mut deliver);
        }
    }

    /// Lets a packet out of the tunnel if its source is the peer's to use.
    fn let_out(&self, peer: &Peer, mut packet: Carried, deliver: &mut impl FnMut(&[u8])) {
        let is_of =
            |source: IpAddr| peer.prefixes.is_empty() || peer.prefixes.iter().any(|prefix| prefix.holds(source));
        if !Inner::parse(&packet.bytes).is_some_and(|inner| is_of(inner.source())) {
            self.counts.misrouted.fetch_add(1, Relaxed);
            return;
        }
        if packet.tos & CONGESTION != 0
            && let Some(bytes) = Arc::get_mut(&mut packet.bytes)
            && decapsulate(bytes, packet.tos) == Verdict::Drop
        {
            return;
        }
        deliver(&packet.bytes);
    }
}
