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

/// After the first acknowledgements of a flow's first window two packets follow each, while reports come every 8 ms.
#[test]
fn a_small_path_carries_nothing_while_a_window_of_slow_start_is_full_for_a_moment() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(168.0, 35.0, 0.0), (2.4, 25.0, 0.0)]);
    testbed.run_until(Instant::from_millis(500));
    testbed.bulk = true;
    (0..10).for_each(|_| testbed.offer(1));
    testbed.run_until(Instant::from_millis(565));
    (0..20).for_each(|_| testbed.offer(1));
    testbed.run_until(Instant::from_millis(580));
    let paths = testbed.paths_of(1);
    assert_eq!(paths.iter().filter(|path| path.0 == 1).count(), 0, "{paths:?}");
    assert_eq!(paths.len(), 30);
}

/// The third path is the fastest by its packet train, but later: nothing finds its rate.
#[test]
fn a_small_path_carries_bulk_while_a_faster_path_carries_nothing() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(81.0, 16.5, 0.0), (15.4, 11.0, 0.0), (92.8, 69.0, 0.0)]);
    testbed.run_until(Instant::from_millis(500));
    testbed.bulk = true;
    testbed.stream(1, 80.0, 3000);
    let carried = testbed.paths_of(1).iter().filter(|path| path.0 == 1).count();
    assert!(carried > 1000, "{carried} packets of {}", testbed.paths_of(1).len());
}

/// Over the first path alone, the last of 800 would arrive after 115 ms.
#[test]
fn acknowledgements_do_not_wait_for_a_path_longer_than_another_takes() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(7.0, 30.0, 0.0), (100.0, 60.0, 0.0)]);
    testbed.stream(200, 60.0, 3000);
    (0..800).for_each(|_| testbed.offer(200));
    testbed.run_until(Instant::from_millis(4000));
    let (delays, lost) = testbed.delays(200, 3000, 4000);
    assert!(delays.last().is_some_and(|last| *last < 90.0), "{:?} ms", delays.last());
    assert_eq!((delays.len(), lost), (800, 0));
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

/// It takes half of them. If the others waited for as long as the second path is later, 60 ms, all would.
#[test]
fn acknowledgements_beyond_what_a_small_path_takes_do_not_delay_the_others() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(2.0, 15.0, 0.0), (100.0, 75.0, 0.0)]);
    testbed.run_until(Instant::from_millis(500));
    testbed.stream(200, 44.8, 3000);
    testbed.run_until(Instant::from_millis(3200));
    let (delays, lost) = testbed.delays(200, 2000, 3000);
    let median = delays[delays.len() / 2];
    assert!(median < 60.0, "{median} ms");
    assert_eq!(lost, 0);
}

/// A load that exceeds the rate of the fastest path, and then bursts that fill its window for a moment.
#[test]
fn a_small_lossy_path_carries_bulk_only_while_much_waits() {
    let carried = |delay_ms: f64, loss: f64| {
        let mut testbed = Testbed::new(Mode::Aggregate, &[(100.0, 60.0, 0.0), (9.5, delay_ms, loss)]);
        testbed.run_until(Instant::from_millis(500));
        testbed.bulk = true;
        testbed.stream(1, 120.0, 4000);
        testbed.run_until(Instant::from_millis(5000));
        for _ in 0..200 {
            (0..60).for_each(|_| testbed.offer(2));
            testbed.run_until(testbed.now + Duration::from_millis(10));
        }
        let share = |flow| {
            let paths = testbed.paths_of(flow);
            paths.iter().filter(|path| path.0 == 1).count() as f64 / paths.len() as f64
        };
        [share(1), share(2)]
    };
    let [much, little] = carried(65.0, 0.012);
    assert!(much > 0.03 && little < 0.005, "{much}, {little}");
    let [without_loss, repaired_in_time] = [carried(65.0, 0.0)[1], carried(12.0, 0.012)[1]];
    assert!(without_loss > 0.03 && repaired_in_time > 0.03, "{without_loss}, {repaired_in_time}");
}
