//! If no RTT sample reached the minimum for 10 s, BBR reduces its window to four
//! segments for 200 ms and a round (ProbeRTT). Linux 6.18 over two paths of
//! 8 Mbit/s and 50 ms per direction: in a bulk transfer ProbeRTT starts 10.4 to
//! 10.5 s after the last one and lasts 395 to 428 ms; with SO_SNDBUF of 200 kB
//! 10.3 to 10.9 s and 309 to 350 ms. After an idle time of 11 s a subflow of MPTCP
//! starts with it, for 433 to 476 ms; plain TCP, which detects that the
//! application paused, does not.

use crate::pair::{Action, Pair, Setup, Source, TestPath};
use crosslane_sim::transport::Protocol;
use crosslane_sim::transport::congestion::Congestion;

const UNTIL_MS: u64 = 45_000;
const STEP_MS: usize = 10;

/// Start and duration of the times with a window of four segments on path 0, in
/// ms.
fn probes(source: Source, protocol: Protocol, send_buffer_bytes: u32) -> Vec<(u64, u64)> {
    let test_path = TestPath { queue_bytes: 2_000_000, ..TestPath::new(8.0, 50) };
    let test_paths = if protocol == Protocol::Tcp { vec![test_path] } else { vec![test_path, test_path] };
    let setup = Setup { algorithm: Congestion::Bbr, protocol, send_buffer_bytes, ..Setup::new(&test_paths, source) };
    let plan = [(500, Action::Create { path: 1, backup: false })];
    let mut pair = Pair::new(setup, if protocol == Protocol::Tcp { &[] } else { &plan });
    let (mut found, mut since) = (Vec::new(), None);
    for ms in (0..UNTIL_MS).step_by(STEP_MS) {
        pair.run_until_ms(ms);
        let probes = pair.subflow(0).is_some_and(|info| info.transport.cwnd == 4);
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
fn a_bulk_transfer_probes_once_in_ten_seconds() {
    for (buffer, lengths) in [(0, 395..=428), (200_000, 309..=350)] {
        let found = probes(Source::Bulk, Protocol::Mptcp, buffer);
        // Where the buffer limits the flow, a restart from idle may stand in for a probe.
        assert!(found.len() == 4 || (buffer > 0 && found.len() == 3), "as in the kernel: {found:?}");
        assert!((10_050..=10_200).contains(&found[0].0), "10 s after the handshake");
        assert!(found.windows(2).all(|pair| (10_300..=10_950).contains(&(pair[1].0 - pair[0].0))));
        assert!(found.iter().all(|(_, ms)| (lengths.start() - 30..=lengths.end() + 30).contains(ms)));
    }
}

#[test]
fn after_an_idle_period_a_subflow_of_mptcp_probes_and_plain_tcp_does_not() {
    let source = Source::Messages { bytes: 1_000_000, every_ms: 12_000 };
    assert_eq!(probes(source, Protocol::Tcp, 0), []);
    let found = probes(source, Protocol::Mptcp, 0);
    assert_eq!(found.len(), 3);
    for (began, ms) in found {
        assert!(began % 12_000 < 300, "with the first acknowledgement");
        // The kernel's 433 to 476 ms start in Startup, with twice the data in flight.
        assert!((260..=540).contains(&ms));
    }
}

/// An idle period in ProbeRTT ends it: with messages of 100 kB every 12 s over one
/// path, every second one probes, and each takes 155 ms in the kernel.
#[test]
fn an_idle_period_in_the_probe_restores_the_window() {
    let source = Source::Messages { bytes: 100_000, every_ms: 12_000 };
    let setup = Setup { algorithm: Congestion::Bbr, ..Setup::new(&[TestPath::new(8.0, 50)], source) };
    let mut pair = Pair::new(setup, &[]);
    let windows = [0, 1, 2, 3, 4].map(|message| {
        pair.run_until_ms(message * 12_000 + 400);
        pair.subflow(0).map_or(0, |info| info.transport.cwnd)
    });
    println!("windows 0.4 s after the start of each message: {windows:?}");
    assert_eq!(windows.map(|window| window == 4), [false, true, false, true, false]);
    for (message, delay_ms) in [(0, 366.0), (1, 155.0), (2, 155.0), (3, 155.0)] {
        let worst_ms = pair.worst_delay_ms(message * 12_000, message * 12_000 + 6000);
        assert!((worst_ms - delay_ms).abs() < 20.0, "message {message}: {worst_ms:.0} ms");
    }
}
