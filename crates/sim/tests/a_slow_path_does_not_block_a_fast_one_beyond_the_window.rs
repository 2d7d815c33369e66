//! Data waits at the receiver for what a slow path still carries, within the
//! receive window that all subflows share (RFC 8684 §3.3.1). Linux's scheduler
//! leaves a slow path empty rather than block a fast one.
#![allow(missing_docs)]

mod pair;

use pair::{Action, Pair, Setup, Source, Way};

/// Half of `net.ipv4.tcp_rmem[2]`: the greatest window.
const GREATEST_WINDOW: u64 = 3 * 1024 * 1024;

#[test]
fn a_slow_path_does_not_block_a_fast_one() {
    let (fast, slow) = (Way::new(20.0, 10), Way::new(0.5, 100));
    let run = |plan: &[(u64, Action)]| {
        let mut pair = Pair::new(Setup::new(&[fast, slow], Source::Bulk), plan);
        pair.run_until_ms(20_000);
        pair.server.delivered() as f64
    };
    let (alone, both) = (run(&[]), run(&[(500, Action::Create { path: 1, backup: false })]));
    println!("with the slow path {:.3} of the fast one alone", both / alone);
    assert!(both > 0.95 * alone, "{both} of {alone}");
}

#[test]
fn a_silent_path_holds_up_no_more_than_the_window() {
    let ways = [Way::new(20.0, 10), Way::new(20.0, 10)];
    let plan = [(500, Action::Create { path: 1, backup: false }), (5000, Action::Carry { path: 1, on: false })];
    let setup = Setup { stale_loss_count: 0, send_buffer_bytes: 8_000_000, ..Setup::new(&ways, Source::Bulk) };
    let mut pair = Pair::new(setup, &plan);
    let mut held = 0;
    for ms in (5000..9000).step_by(10) {
        pair.run_until_ms(ms);
        let sent = pair.carried.iter().rev().find(|segment| segment.first).map_or(0, |s| s.dsn + s.len);
        held = held.max(sent - pair.server.delivered());
    }
    println!("at most {held} bytes waited");
    assert!((GREATEST_WINDOW / 4..=GREATEST_WINDOW).contains(&held), "{held}");
}
