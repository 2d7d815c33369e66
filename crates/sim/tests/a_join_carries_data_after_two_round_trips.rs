//! A subflow may carry data of its opener once the fourth segment of MP_JOIN's
//! handshake has come (RFC 8684 §3.2): after two round trips of 40 ms. Linux
//! tells SUB_ESTABLISHED after one at the opener.
#![allow(missing_docs)]

mod pair;

use crosslane_core::mptcp::Event;
use crosslane_core::time::Instant;
use pair::{Action, Pair, Setup, Source, Way};

#[test]
fn a_join_carries_data_after_two_round_trips() {
    let ways = [Way::new(2.0, 20), Way::new(20.0, 20)];
    let plan = [(1000, Action::Create { path: 1, backup: false })];
    let mut pair = Pair::new(Setup::new(&ways, Source::Bulk), &plan);
    pair.run_until_ms(2000);
    let ms = |at: Instant| at.as_secs_f64() * 1e3 - 1000.0;
    let told = pair.events.iter().find(|(_, event)| matches!(event, Event::SubflowEstablished { .. }));
    let told = told.map(|(at, _)| ms(*at));
    assert!(told.is_some_and(|told| (40.0..42.0).contains(&told)), "SUB_ESTABLISHED after {told:?} ms");
    let first = pair.carried_between(1, 1000, 2000).next().map(|segment| ms(segment.at));
    assert!(first.is_some_and(|first| (80.0..84.0).contains(&first)), "data after {first:?} ms");
}
