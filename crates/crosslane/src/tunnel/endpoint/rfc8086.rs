//! Sending to a peer that implements RFC 8086 (GRE-in-UDP) and nothing beyond: packets go
//! without key and sequence number over one path, and no control message is exchanged.

use std::collections::VecDeque;

use crosslane_core::path::PathId;
use crosslane_core::time::Instant;
use crosslane_core::tunnel::Output;
use crosslane_core::tunnel::wire::control_message::MAX_PATHS;
use crosslane_core::tunnel::wire::gre_key::GreKey;

use super::types::{EngineOutput, PathAddress, TunnelPacket};

/// Maximum number of queued packets: the newest are kept.
const MAX_QUEUED: usize = 1024;

/// The sender of one peer.
#[derive(Debug)]
pub(super) struct Rfc8086 {
    /// Paths in order of preference.
    preference: Vec<u8>,
    queue: VecDeque<TunnelPacket>,
}

impl Rfc8086 {
    /// `ranks`: the place of each path in the user's preference, 0 first.
    pub(super) fn new(ranks: &[u8]) -> Rfc8086 {
        let mut preference: Vec<u8> = (0..MAX_PATHS as u8).collect();
        preference.sort_by_key(|path| ranks.get(usize::from(*path)).copied().unwrap_or(*path));
        Rfc8086 { preference, queue: VecDeque::new() }
    }

    pub(super) fn enqueue(&mut self, packet: TunnelPacket) {
        if self.queue.len() == MAX_QUEUED {
            self.queue.pop_front();
        }
        self.queue.push_back(packet);
    }

    /// The path in use: a vehicle's most preferred one that is present; for a gateway, the source
    /// of the peer's newest packet counts as its only path.
    pub(super) fn path(&self, addresses: &[Option<PathAddress>]) -> Option<(PathId, PathAddress)> {
        self.preference.iter().find_map(|path| Some((PathId(*path), (*addresses.get(usize::from(*path))?)?)))
    }

    /// The next packet, over this path.
    pub(super) fn poll_transmit(&mut self, path: PathId) -> Option<EngineOutput> {
        let key = GreKey { path, flow: 0, sequence: 0 };
        self.queue.pop_front().map(|packet| Output::Send { key, number: 0, feedback: None, packet })
    }

    /// When to transmit: at once while packets are queued.
    pub(super) fn next_wakeup(&self, now: Instant) -> Option<Instant> {
        (!self.queue.is_empty()).then_some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u16) -> TunnelPacket {
        TunnelPacket { bytes: number.to_be_bytes().as_slice().into(), tos: 0 }
    }

    #[test]
    fn the_newest_packets_are_kept_and_leave_in_order() {
        let mut sender = Rfc8086::new(&[]);
        assert_eq!(sender.next_wakeup(Instant::ZERO), None);
        (0..2000).for_each(|number| sender.enqueue(packet(number)));
        assert_eq!(sender.next_wakeup(Instant::ZERO), Some(Instant::ZERO));
        for number in 2000 - MAX_QUEUED as u16..2000 {
            let Some(Output::Send { packet, .. }) = sender.poll_transmit(PathId(0)) else { panic!("{number}") };
            assert_eq!(*packet.bytes, number.to_be_bytes());
        }
        assert!(sender.poll_transmit(PathId(0)).is_none());
    }

    #[test]
    fn the_most_preferred_present_path_is_used() {
        let sender = Rfc8086::new(&[1, 0, 2]);
        let address = |via: usize| Some(PathAddress { via, to: ([192, 0, 2, 1], 4754).into(), from: None });
        let path = |addresses: &[Option<PathAddress>]| sender.path(addresses).map(|(path, at)| (path.0, at.via));
        assert_eq!(path(&[address(0), address(1), address(2)]), Some((1, 1)));
        assert_eq!(path(&[address(0), None, address(2)]), Some((0, 0)));
        assert_eq!(path(&[None, None, None]), None);
    }
}
