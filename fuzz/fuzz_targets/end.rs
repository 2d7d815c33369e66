//! Datagrams of anybody into a gateway: plain, encrypted, and standard.
#![no_main]

use std::net::SocketAddr;
use std::time::Duration;

use crosslane::tunnel::config::Prefix;
use crosslane::tunnel::end::{End, Intake, PeerPlan, Plan, Way};
use crosslane::tunnel::outbox::Outbox;
use crosslane::tunnel::security::PrivateKey;
use crosslane_core::time::Instant;
use crosslane_core::tunnel::Mode;

/// A fixed key: what is found can be found again.
const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

fn end(is_encrypted: bool, standard: bool) -> End {
    let prefix: Prefix = "10.77.0.2/32".parse().unwrap();
    let key: PrivateKey = KEY.parse().unwrap();
    let plan = Plan {
        peers: vec![PeerPlan { name: "car".into(), prefixes: vec![prefix], at: None }],
        keys: is_encrypted.then(|| (key.clone(), vec![key.public()])),
        leads: false,
        mode: Mode::Aggregate,
        ranks: vec![],
        overhead_bytes: 68,
        mtu: 1432,
        addresses: vec!["10.77.0.1".parse().unwrap()],
        standard,
    };
    End::new(plan, 1)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, mut rest)) = bytes.split_first() else { return };
    let end = end(kind & 1 == 1, kind & 2 == 2);
    let (mut intake, mut outbox) = (Intake::default(), Outbox::default());
    let mut now = Instant::from_millis(1);
    let to: SocketAddr = ([192, 0, 2, 1], 4754).into();
    while let Some((&[length, tos, wait], after)) = rest.split_first_chunk::<3>() {
        let (datagram, after) = after.split_at(after.len().min(usize::from(length)));
        rest = after;
        let reply = end.take_out(&mut intake, now, Way { via: 0, to }, tos, datagram);
        assert!(reply.is_none_or(|reply| reply.len() <= 200));
        end.settle(&mut intake, now, |packet| {
            assert_eq!(packet.get(12..16).filter(|_| packet[0] >> 4 == 4), Some(&[10, 77, 0, 2][..]));
        });
        end.take_in(now, &mut datagram.to_vec(), |told| assert!(told.len() <= 1280));
        end.depart(now, 0, &mut outbox, |sent| assert!(!sent.bytes.is_empty()));
        end.deliveries(0, |_| {});
        now = now + Duration::from_millis(u64::from(wait));
    }
});
