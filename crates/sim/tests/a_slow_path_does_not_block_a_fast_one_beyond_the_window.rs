//! Data waits at the receiver for data on a slow path, but never more than the
//! receive window that all subflows share (RFC 8684 §3.3.1).

use crate::pair::{Action, Pair, Setup, Source, TestPath};

/// Half of `net.ipv4.tcp_rmem[2]`: the maximum window.
const MAX_WINDOW: u64 = 16 * 1024 * 1024;

#[test]
fn a_slow_path_does_not_block_a_fast_one_beyond_the_window() {
    let test_paths = [TestPath::new(20.0, 10), TestPath::new(20.0, 10)];
    let plan = [(500, Action::Create { path: 1, backup: false }), (5000, Action::Carry { path: 1, on: false })];
    let setup = Setup { stale_loss_count: 0, send_buffer_bytes: 8_000_000, ..Setup::new(&test_paths, Source::Bulk) };
    let mut pair = Pair::new(setup, &plan);
    let mut held = 0;
    for ms in (5000..9000).step_by(10) {
        pair.run_until_ms(ms);
        let sent = pair.carried.iter().rev().find(|segment| segment.first).map_or(0, |s| s.dsn + s.len);
        held = held.max(sent - pair.server.delivered());
    }
    println!("at most {held} bytes waited");
    assert!((MAX_WINDOW / 4..=MAX_WINDOW).contains(&held), "{held}");
}
