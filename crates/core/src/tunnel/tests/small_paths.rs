//! A path that is much slower than the fastest one.

use super::*;

/// A window of ten packets per RTT leaves the other path in slow start, with room.
#[test]
fn a_small_path_carries_bulk_once_the_rate_of_the_fastest_is_known() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(5.0, 15.0, 0.0), (100.0, 20.0, 0.0)]);
    testbed.run_until(Instant::from_millis(500));
    testbed.bulk = true;
    let carried = |testbed: &Testbed, flow| testbed.paths_of(flow).iter().filter(|path| path.0 == 0).count();
    for _ in 0..20 {
        (0..10).for_each(|_| testbed.offer(1));
        testbed.run_until(testbed.now + Duration::from_millis(45));
    }
    assert!(testbed.sender(1).in_slow_start());
    assert_eq!((carried(&testbed, 1), testbed.paths_of(1).len()), (0, 200));
    testbed.stream(2, 110.0, 2500);
    testbed.stream(3, 110.0, 3500);
    assert!(!testbed.sender(1).in_slow_start());
    assert!(carried(&testbed, 3) > 200, "{} packets of 446 in a second", carried(&testbed, 3));
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
