//! The backup flag stops scheduling at once, but the data that the subflow already
//! has drains over it at the path's rate. How much that is depends on the window,
//! and on the send buffer. The figures are of Linux 6.18 (without CONFIG_WLAN), 8
//! Mbit/s: `notsent_bytes` of a bulk transfer, the tenth and ninetieth percentile
//! over 7 s of a drive.

use crate::pair::{Action, Pair, Setup, Source, TestPath, median};
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
    for (algorithm, test_path, buffer, kb) in [
        (Congestion::Cubic, test_path(20, 12_000), 0, [74.0, 127.0]),
        (Congestion::Cubic, test_path(20, 200_000), 0, [239.0, 530.0]),
        (Congestion::Bbr, test_path(20, 200_000), 0, [397.0, 443.0]),
        (Congestion::Bbr, test_path(50, 2_000_000), 0, [880.0, 1267.0]),
        (Congestion::Bbr, test_path(50, 2_000_000), 200_000, [128.0, 242.0]),
    ] {
        let last = median(9, |seed| drained(algorithm, test_path, buffer, seed)[0]);
        let bytes = median(9, |seed| drained(algorithm, test_path, buffer, seed)[1]);
        let excess = median(9, |seed| drained(algorithm, test_path, buffer, seed)[2]) - bytes;
        assert!((kb[0] / 1.2..kb[1] * 1.2).contains(&bytes), "{algorithm:?}: {bytes:.0} kB");
        assert!((1.0..1.15).contains(&(last / bytes)), "{algorithm:?}: {bytes:.0} kB in {last:.0} ms");
        assert!(excess.abs() < 10.0, "{algorithm:?}: {excess:.0} kB less drained than were queued");
    }
}
