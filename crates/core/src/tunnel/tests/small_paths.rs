//! A path that is much slower than the fastest one.

use alloc::string::String;

use super::*;

/// How many packets of bulk a path of 5 Mbit/s with this loss carries beside one of 100, and what its status says.
fn on_small_path(loss: f64) -> (usize, String) {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(5.0, 20.0, loss), (100.0, 20.0, 0.0)]);
    testbed.run_until(Instant::from_millis(500));
    testbed.bulk = true;
    testbed.stream(1, 110.0, 3000);
    testbed.stream(2, 110.0, 4000);
    let carried = testbed.paths_of(2).iter().filter(|path| **path == PathId(0)).count();
    (carried, testbed.endpoints[0].path(PathId(0)).expect("the path is present").carries)
}

#[test]
fn a_small_path_carries_bulk_only_if_it_loses_nothing() {
    let (carried, _) = on_small_path(0.0);
    assert!(carried > 200, "{carried} packets of 446 in a second");
    let (carried, words) = on_small_path(0.05);
    assert!(carried == 0 && words.starts_with("no bulk: it loses"), "{carried} packets; {words}");
}

/// Beyond 1,900 packets in flight the queue of 50 ms drops up to half of a round.
#[test]
fn what_slow_start_loses_does_not_make_a_path_untrusted() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(100.0, 105.0, 0.0)]);
    testbed.run_until(Instant::from_millis(500));
    testbed.bulk = true;
    testbed.stream(1, 400.0, 3000);
    let sender = testbed.sender(0);
    assert!(sender.counts.lost > 500 && !sender.in_slow_start(), "{} packets were lost", sender.counts.lost);
    assert_eq!(sender.reason(), "it delivers");
}
