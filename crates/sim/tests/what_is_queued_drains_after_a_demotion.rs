//! The backup flag stops scheduling at once, but the data that the subflow already
//! has drains over it at the path's rate. Linux 6.18 at 8 Mbit/s: BBR 454 to 568 ms
//! and 390 to 443 kB, checked here within a factor 1.5 for an RTT of 40 ms and a
//! queue of 200 ms. CUBIC's 180 to 217 ms and 150 to 184 kB depend on the queue,
//! which the table does not state: CUBIC's window fills the queue, and the send
//! buffer is twice the window. They are checked for a queue of eight packets. With
//! an RTT of 100 ms BBR took 1571 to 1972 ms and 1445 to 1680 kB, with SO_SNDBUF of
//! 200 kB 4 to 81 ms and 6 to 80 kB.

use crate::pair::{Action, Pair, Setup, Source, TestPath, agrees_ms, median};
use crosslane_sim::transport::congestion::Congestion;

/// Transmission time of the last queued data, in ms, its amount, in kB, and the
/// subflow's queue at the demotion, in kB.
fn drained(algorithm: Congestion, test_path: TestPath, send_buffer_bytes: u32, seed: u64) -> [f64; 3] {
    let demote_ms = 6000 + seed * 137;
    let plan = [
        (500, Action::Create { path: 1, backup: true }),
        (demote_ms, Action::Flag { path: 1, backup: false }),
        (demote_ms, Action::Flag { path: 0, backup: true }),
    ];
    let setup = Setup { seed, algorithm, send_buffer_bytes, ..Setup::new(&[test_path, test_path], Source::Bulk) };
    let mut pair = Pair::new(setup, &plan);
    pair.watch.backups = true;
    pair.run_until_ms(demote_ms);
    let held = pair.subflow(0).map_or(0, |info| info.transport.notsent_bytes);
    pair.run_until_ms(demote_ms + 3000);
    let after: Vec<_> = pair.carried_between(0, demote_ms + 1, demote_ms + 3000).filter(|s| s.first).collect();
    let last_ms = after.last().map_or(0.0, |s| s.at.as_secs_f64() * 1e3 - demote_ms as f64);
    [last_ms, after.iter().map(|s| s.len as f64).sum::<f64>() / 1e3, f64::from(held) / 1e3]
}

#[test]
fn queued_data_drains_after_a_demotion() {
    let test_path = |delay_ms, queue_bytes| TestPath { queue_bytes, ..TestPath::new(8.0, delay_ms) };
    for (algorithm, test_path, buffer, ms, kb) in [
        (Congestion::Cubic, test_path(20, 12_000), 0, [180.0, 217.0], [150.0, 184.0]),
        (Congestion::Bbr, test_path(20, 200_000), 0, [454.0, 568.0], [390.0, 443.0]),
        (Congestion::Bbr, test_path(50, 2_000_000), 0, [1571.0, 1972.0], [1445.0, 1680.0]),
        (Congestion::Bbr, test_path(50, 2_000_000), 200_000, [4.0, 81.0], [6.0, 80.0]),
    ] {
        let last = median(9, |seed| drained(algorithm, test_path, buffer, seed)[0]);
        let bytes = median(9, |seed| drained(algorithm, test_path, buffer, seed)[1]);
        let excess = median(9, |seed| drained(algorithm, test_path, buffer, seed)[2]) - bytes;
        assert!(agrees_ms(last, ms[0], ms[1]), "{algorithm:?}");
        assert!((kb[0] / 1.5..kb[1] * 1.5).contains(&bytes), "{algorithm:?}: {bytes:.0} kB");
        assert!(excess.abs() < 10.0, "{algorithm:?}: {excess:.0} kB less drained than were queued");
    }
}
