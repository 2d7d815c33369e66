//! Arbitrary datagrams into a gateway: unencrypted, encrypted, and RFC 8086 only.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crosslane::tunnel::endpoint::egress::Outbox;
use crosslane::tunnel::endpoint::{PathAddress, ReceiveState};

#[path = "gateway.rs"]
#[allow(dead_code)]
mod gateway;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Some((kind, mut rest)) = bytes.split_first() else { return };
    let endpoint = gateway::endpoint(0, &[1], None, kind & 1 == 1, kind & 2 == 2);
    let (mut receive_state, mut outbox) = (ReceiveState::default(), Outbox::default());
    let mut now = gateway::BEGIN;
    let to: SocketAddr = ([192, 0, 2, 1], 4754).into();
    while let Some((&[length, tos, wait], after)) = rest.split_first_chunk::<3>() {
        let (datagram, after) = after.split_at(after.len().min(usize::from(length)));
        rest = after;
        let reply =
            endpoint.on_datagram(&mut receive_state, now, PathAddress { via: 0, to, from: None }, tos, datagram);
        assert!(reply.is_none_or(|reply| reply.len() <= 200));
        endpoint.flush(&mut receive_state, now, |packet| {
            assert_eq!(packet.source(), IpAddr::from(gateway::inside(1)));
        });
        endpoint.ingress(now, &mut datagram.to_vec(), |error| assert!(error.len() <= 1280));
        endpoint.transmit(now, 0, &mut outbox, |sent| assert!(!sent.bytes.is_empty()));
        endpoint.deliver(0, |_| {});
        now = now + Duration::from_millis(u64::from(wait));
    }
}
