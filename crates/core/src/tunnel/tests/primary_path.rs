//! The path on which bulk flows begin.

use super::*;

const LOW_DELAY: Option<PathId> = Some(PathId(0));
const HIGH_DELAY: Option<PathId> = Some(PathId(1));

/// Idle paths of 5 ms and 55 ms with these rates in Mbit/s.
fn idle(mode: Mode, low_mbit_s: f64, high_mbit_s: f64) -> Testbed {
    let mut testbed = Testbed::new(mode, &[(low_mbit_s, 5.0, 0.0), (high_mbit_s, 55.0, 0.0)]);
    testbed.run_until(Instant::from_millis(1000));
    testbed
}

#[test]
fn a_bulk_flow_begins_on_a_faster_high_delay_path_and_others_on_the_low_delay_path() {
    let mut testbed = idle(Mode::Aggregate, 5.0, 100.0);
    assert_eq!([testbed.path_of(1, true), testbed.path_of(2, false)], [HIGH_DELAY, LOW_DELAY]);
}

#[test]
fn every_flow_begins_on_the_low_delay_path_if_the_other_is_not_faster() {
    for (low_mbit_s, high_mbit_s) in [(50.0, 50.0), (100.0, 5.0), (90.0, 100.0)] {
        let mut testbed = idle(Mode::Aggregate, low_mbit_s, high_mbit_s);
        assert_eq!(
            [testbed.path_of(1, true), testbed.path_of(2, false)],
            [LOW_DELAY, LOW_DELAY],
            "{low_mbit_s} and {high_mbit_s}"
        );
    }
}

/// The second path is hardly later than the first, and much faster than the third.
#[test]
fn a_path_is_not_primary_if_a_faster_one_is_hardly_later_than_the_lowest_delay_path() {
    let links = [(3.0, 25.0, 0.0), (177.0, 33.0, 0.0), (34.0, 71.0, 0.0)];
    for count in [2, 3] {
        let mut testbed = Testbed::new(Mode::Aggregate, &links[..count]);
        testbed.run_until(Instant::from_millis(1000));
        testbed.path_of(1, true);
        assert_eq!(testbed.endpoints[0].scheduler.primary, None, "{count} paths");
    }
    let mut testbed = Testbed::new(Mode::Aggregate, &[links[0], links[2]]);
    testbed.run_until(Instant::from_millis(1000));
    testbed.path_of(1, true);
    assert_eq!(testbed.endpoints[0].scheduler.primary, HIGH_DELAY, "without the second");
}

#[test]
fn there_is_no_primary_path_in_standby() {
    let mut testbed = idle(Mode::Standby, 5.0, 100.0);
    assert_eq!((testbed.path_of(1, true), testbed.endpoints[0].scheduler.primary), (LOW_DELAY, None));
    let mut testbed = idle(Mode::Aggregate, 5.0, 100.0);
    assert_eq!(testbed.endpoints[0].scheduler.primary, HIGH_DELAY);
    testbed.endpoints[0].handle(testbed.now, Input::SetMode(Mode::Standby));
    assert_eq!((testbed.path_of(1, true), testbed.endpoints[0].scheduler.primary), (LOW_DELAY, None));
}

#[test]
fn the_primary_path_is_kept_until_the_low_delay_path_is_as_fast() {
    let mut testbed = idle(Mode::Aggregate, 5.0, 100.0);
    testbed.stream(1, 110.0, 3000);
    testbed.set(0, 90.0, 5.0, 0.0);
    testbed.stream(1, 210.0, 9000);
    assert_eq!(testbed.endpoints[0].scheduler.primary, HIGH_DELAY);
    testbed.set(0, 120.0, 5.0, 0.0);
    testbed.stream(1, 240.0, 13_000);
    assert_eq!(testbed.endpoints[0].scheduler.primary, None);
}

#[test]
fn bulk_flows_use_the_low_delay_path_when_the_primary_path_is_removed() {
    let mut testbed = idle(Mode::Aggregate, 5.0, 100.0);
    assert_eq!(testbed.path_of(1, true), HIGH_DELAY);
    testbed.endpoints[0].handle(testbed.now, Input::Present(PathId(1), false));
    assert_eq!((testbed.path_of(2, true), testbed.endpoints[0].scheduler.primary), (LOW_DELAY, None));
}

#[test]
fn bulk_flows_use_the_low_delay_path_when_the_primary_path_stalls() {
    let mut testbed = idle(Mode::Aggregate, 5.0, 100.0);
    testbed.set(1, 0.0, 55.0, 0.0);
    assert_eq!(testbed.path_of(1, true), HIGH_DELAY);
    // RTT, its variation, and the feedback timeout.
    testbed.run_until(testbed.now + Duration::from_millis(300));
    assert_eq!((testbed.path_of(2, true), testbed.endpoints[0].scheduler.primary), (LOW_DELAY, None));
}

/// The repair of a loss takes 35 ms on the low-delay path, which is 25 ms quicker.
#[test]
fn a_sparse_flow_leaves_the_primary_path_for_that_on_which_it_arrives_soonest_with_its_repairs() {
    for (loss, expected) in [(0.0, PathId(0)), (0.05, PathId(1))] {
        let mut testbed = Testbed::new(Mode::Aggregate, &[(5.0, 5.0, loss), (100.0, 30.0, 0.0)]);
        testbed.run_until(Instant::from_millis(1000));
        testbed.bulk = true;
        testbed.stream(1, 1.0, 4000);
        let paths = testbed.paths_of(1);
        assert_eq!((paths[0], paths[250]), (PathId(1), expected), "{paths:?}");
    }
}
