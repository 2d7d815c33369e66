//! When no round trip was as short as the least for 10 s, BBR sends four segments
//! at a time for 200 ms and a round to find a new one. Linux 6.18 over two paths
//! of 8 Mbit/s and 50 ms, each way: in a bulk transfer that begins 10.4 to 10.5 s
//! after the last one and lasts 395 to 428 ms, with SO_SNDBUF of 200 kB 10.3 to
//! 10.9 s and 309 to 350 ms. After a rest of 11 s a subflow of MPTCP begins with
//! it, for 433 to 476 ms; plain TCP, which is told that the application paused,
//! does not.
#![allow(missing_docs)]

mod pair;

use crosslane_sim::transport::Protocol;
use crosslane_sim::transport::congestion::Algorithm;
use pair::{Action, Pair, Setup, Source, Way};

const UNTIL_MS: u64 = 45_000;
const STEP_MS: usize = 10;

/// When the window of path 0 was cut to four segments, and for how long, in ms.
fn probes(source: Source, protocol: Protocol, send_buffer_bytes: u32) -> Vec<(u64, u64)> {
    let way = Way { queue_bytes: 2_000_000, ..Way::new(8.0, 50) };
    let ways = if protocol == Protocol::Tcp { vec![way] } else { vec![way, way] };
    let setup = Setup { algorithm: Algorithm::Bbr, protocol, send_buffer_bytes, ..Setup::new(&ways, source) };
    let plan = [(500, Action::Create { path: 1, backup: false })];
    let mut pair = Pair::new(setup, if protocol == Protocol::Tcp { &[] } else { &plan });
    let (mut found, mut since) = (Vec::new(), None);
    for ms in (0..UNTIL_MS).step_by(STEP_MS) {
        pair.run_until_ms(ms);
        let probes = pair.subflow(0).is_some_and(|info| info.window == 4);
        match since {
            None if probes => since = Some(ms),
            Some(began) if !probes => {
                found.push((began, ms - began));
                since = None;
            }
            _ => {}
        }
    }
    println!("{source:?} {protocol:?} {send_buffer_bytes}: {found:?}");
    found
}

#[test]
fn a_transfer_without_a_rest_probes_once_in_ten_seconds() {
    for (buffer, lengths) in [(0, 395..=428), (200_000, 309..=350)] {
        let found = probes(Source::Bulk, Protocol::Mptcp, buffer);
        assert_eq!(found.len(), 4, "as in the kernel");
        assert!(found.windows(2).all(|pair| (10_300..=10_950).contains(&(pair[1].0 - pair[0].0))));
        assert!(found.iter().all(|(_, ms)| (lengths.start() - 30..=lengths.end() + 30).contains(ms)));
    }
}

#[test]
fn after_a_rest_a_subflow_of_mptcp_probes_and_plain_tcp_does_not() {
    let source = Source::Messages { bytes: 1_000_000, every_ms: 12_000 };
    assert_eq!(probes(source, Protocol::Tcp, 0), []);
    let found = probes(source, Protocol::Mptcp, 0);
    assert_eq!(found.len(), 3);
    for (began, ms) in found {
        assert!(began % 12_000 < 300, "with the first acknowledgement");
        // The kernel's 433 to 476 ms begin in startup, with twice as much in flight.
        assert!((280..=540).contains(&ms));
    }
}
