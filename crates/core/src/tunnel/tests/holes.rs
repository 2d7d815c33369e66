//! Paths that stall, lose everything for a while, lose some packets, or reorder.

use super::*;
use crate::link::jitter::JitterParams;

const ALL_LOST: f64 = 1.0;

#[test]
fn packets_lost_while_no_path_delivers_are_sent_on_the_first_that_answers() {
    for mode in [Mode::Aggregate, Mode::Standby, Mode::CheapestFirst] {
        let mut testbed = Testbed::new(mode, &[(25.0, 10.0, 0.0), (25.0, 10.0, 0.0)]);
        testbed.stream(1, 1.0, 2000);
        (0..2).for_each(|path| testbed.set(path, 25.0, 10.0, ALL_LOST));
        testbed.stream(1, 1.0, 2600);
        testbed.set(1, 25.0, 10.0, 0.0);
        testbed.stream(1, 1.0, 3000);
        testbed.run_until(Instant::from_millis(3500));
        let (delays, lost) = testbed.delays(1, 2100, 3000);
        assert_eq!(lost, 0, "{mode:?}");
        assert!(delays.last().is_some_and(|max_ms| *max_ms < 700.0), "{mode:?}: {:?} ms", delays.last());
    }
}

#[test]
fn a_stalled_path_holds_up_nothing_for_longer_than_its_feedback_is_due() {
    for mode in [Mode::Aggregate, Mode::Standby, Mode::CheapestFirst, Mode::Redundant] {
        // The difference of the delays does not prolong it.
        let mut testbed = Testbed::new(mode, &[(25.0, 10.0, 0.0), (25.0, 60.0, 0.0)]);
        testbed.stream(1, 0.5, 2000);
        testbed.set(0, 0.0, 10.0, 0.0);
        testbed.stream(1, 0.5, 4000);
        testbed.run_until(Instant::from_millis(4500));
        let (delays, lost) = testbed.delays(1, 1500, 3500);
        assert_eq!(lost, 0, "{mode:?}");
        // RTT, feedback timeout, reports that no longer use the stalled path, and the delay of the other path.
        assert!(delays.last().is_some_and(|max_ms| *max_ms < 180.0), "{mode:?}: {:?} ms", delays.last());
    }
}

#[test]
fn redundant_repairs_what_only_one_path_carries() {
    let mut testbed = Testbed::new(Mode::Redundant, &[(25.0, 10.0, 0.05), (25.0, 10.0, 0.0)]);
    testbed.set(1, 25.0, 10.0, ALL_LOST);
    testbed.stream(1, 5.0, 1000);
    testbed.stream(2, 5.0, 3000);
    testbed.run_until(Instant::from_millis(3500));
    assert_eq!(testbed.delays(2, 1000, 3000).1, 0);
}

#[test]
fn no_queue_of_copies_is_behind_a_stalled_path() {
    let mut testbed = Testbed::new(Mode::Redundant, &[(25.0, 10.0, 0.0), (25.0, 10.0, 0.0)]);
    testbed.stream(1, 5.0, 1000);
    testbed.set(1, 0.0, 10.0, 0.0);
    testbed.stream(1, 5.0, 1400);
    assert_eq!(testbed.sender(1).liveness(), Liveness::Down);
    let before = testbed.paths_of(1).iter().filter(|path| **path == PathId(1)).count();
    testbed.stream(1, 5.0, 4000);
    let after = testbed.paths_of(1).iter().filter(|path| **path == PathId(1)).count();
    assert!(after - before <= 17, "{}", after - before);
}

/// Service mode `backup` keeps one path active.
#[test]
fn copies_go_over_backups_too_and_hide_a_pause_of_the_active_path() {
    let mut testbed = Testbed::new(Mode::Redundant, &[(25.0, 10.0, 0.0), (25.0, 20.0, 0.0)]);
    let states = vec![PathState::Active, PathState::Backup];
    testbed.endpoints[0].handle(testbed.now, Input::SetWantedStates(states));
    testbed.stream(1, 1.0, 2000);
    testbed.set(0, 0.0, 10.0, 0.0);
    testbed.stream(1, 1.0, 4000);
    testbed.run_until(Instant::from_millis(4500));
    let (delays, lost) = testbed.delays(1, 1000, 4000);
    assert_eq!(lost, 0);
    assert!(delays.last().is_some_and(|max_ms| *max_ms < 25.0), "{:?} ms", delays.last());
}

/// One path of this rate and 20 ms, whose packets each take up to so many ms more.
fn with_jitter(mbit_s: f64, most_ms: u64) -> Testbed {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(mbit_s, 20.0, 0.0)]);
    let jitter = JitterParams { share: 1.0, most: Duration::from_millis(most_ms) };
    testbed.links[0].set_jitter(3, "jitter", jitter);
    testbed
}

#[test]
fn jitter_is_not_loss() {
    let mut testbed = with_jitter(50.0, 10);
    testbed.stream(1, 20.0, 2000);
    let lost = |testbed: &Testbed| testbed.endpoints[0].path(PathId(0)).map_or(0, |path| path.lost);
    let before = lost(&testbed);
    testbed.stream(1, 20.0, 6000);
    assert!(lost(&testbed) - before <= 3, "{} of 7000", lost(&testbed) - before);
    assert!(testbed.sender(0).counts.recent_loss < 0.01, "{}", testbed.sender(0).counts.recent_loss);
}

#[test]
fn jitter_is_no_queue() {
    let mut testbed = with_jitter(100.0, 20);
    testbed.stream(1, 90.0, 8000);
    testbed.run_until(Instant::from_millis(8000));
    let delivered = testbed.delivered.iter().filter(|(at, _)| *at >= Instant::from_millis(4000)).count();
    let mbit_s = delivered as f64 * f64::from(BYTES) * 8.0 / 4e6;
    assert!(mbit_s > 80.0, "{mbit_s} of 90 Mbit/s");
}
