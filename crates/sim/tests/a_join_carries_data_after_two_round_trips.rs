//! The initiator of a subflow may send data after the fourth segment of the
//! MP_JOIN handshake (RFC 8684 §3.2), that is after two RTTs of 40 ms. At the
//! initiator, Linux reports SUB_ESTABLISHED after one RTT. If all that was written is
//! queued on the first subflow, the data is that of the next write, for which an
//! acknowledgement of that subflow (every 12 ms) makes space.

use crate::pair::{Action, Pair, Setup, Source, TestPath};
use crosslane_core::mptcp::Event;
use crosslane_core::time::Instant;

#[test]
fn a_join_carries_data_after_two_round_trips() {
    let test_paths = [TestPath::new(2.0, 20), TestPath::new(20.0, 20)];
    let plan = [(1000, Action::Create { path: 1, backup: false })];
    let mut pair = Pair::new(Setup::new(&test_paths, Source::Bulk), &plan);
    pair.run_until_ms(2000);
    let ms = |at: Instant| at.as_secs_f64() * 1e3 - 1000.0;
    let reported = pair.events.iter().find(|(_, event)| matches!(event, Event::SubflowEstablished { .. }));
    let reported = reported.map(|(at, _)| ms(*at));
    assert!(reported.is_some_and(|reported| (40.0..42.0).contains(&reported)), "SUB_ESTABLISHED after {reported:?} ms");
    let first = pair.carried_between(1, 1000, 2000).next().map(|segment| ms(segment.at));
    assert!(first.is_some_and(|first| (80.0..96.0).contains(&first)), "data after {first:?} ms");
}
