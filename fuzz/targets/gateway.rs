//! Endpoints of a gateway and its vehicles without sockets and clocks.

use std::net::IpAddr;
use std::time::Duration;

use crosslane::tunnel::endpoint::{Endpoint, PeerPlan, Plan};
use crosslane::tunnel::security::PrivateKey;
use crosslane_core::time::Instant;

use crosslane_core::tunnel::wire::overhead::Overhead;
use crosslane_core::tunnel::{Copies, Mode};

/// Beginning of the run.
pub const BEGIN: Instant = Instant::from_millis(1);
/// Time since 1970 at the beginning, in ns.
pub const UNIX_NS: u64 = 1_700_000_000_000_000_000;

/// A fixed key, so that findings are reproducible: 32 bytes of `number`, 0 to 5, in base64.
pub fn key(number: usize) -> PrivateKey {
    let (three, two) =
        [("AAAA", "AAA"), ("AQEB", "AQE"), ("AgIC", "AgI"), ("AwMD", "AwM"), ("BAQE", "BAQ"), ("BQUF", "BQU")][number];
    format!("{}{two}=", three.repeat(10)).parse().expect("a key")
}

/// The inner address of a vehicle, from 1; 0: of the hosts behind the gateway.
pub fn inside(vehicle: usize) -> [u8; 4] {
    [10, 77, vehicle as u8, 2]
}

/// An endpoint of the tunnel; `peers` by number (0: the gateway), all with the
/// address `at`.
pub fn endpoint(
    number: usize,
    peers: &[usize],
    at: Option<([u8; 4], u16)>,
    is_encrypted: bool,
    standard: bool,
) -> Endpoint {
    let planned = |peer: &usize| PeerPlan {
        name: format!("peer{peer}"),
        prefixes: if *peer == 0 { vec![] } else { vec![IpAddr::from(inside(*peer)).into()] },
        at: at.map(Into::into),
    };
    let plan = Plan {
        peers: peers.iter().map(planned).collect(),
        keys: is_encrypted.then(|| (key(number), peers.iter().map(|peer| key(*peer).public()).collect())),
        is_initiator: number != 0,
        mode: Mode::Aggregate,
        ranks: vec![],
        copies: Copies::default(),
        keepalives: Vec::new(),
        overhead: Overhead::new(false, is_encrypted),
        mtu: 1432,
        max_peers: 1,
        addresses: vec![IpAddr::from(inside(number))],
        rfc8086_only: standard,
    };
    Endpoint::new(plan, UNIX_NS)
}

/// Time since 1970, in ns, at `since` after the beginning.
pub fn unix_ns(since: Duration) -> u64 {
    UNIX_NS + since.as_nanos() as u64
}
