//! Mode adaptive: the preferred path while it delivers in time, another one and copies while it does not.

use super::*;

/// A preferred path with an RTT of 60 ms, and a backup with 50.
fn testbed(mode: Mode) -> Testbed {
    let mut testbed = Testbed::new(mode, &[(25.0, 30.0, 0.0), (25.0, 25.0, 0.0)]);
    testbed.endpoints[0].handle(testbed.now, Input::SetWantedStates(vec![PathState::Active, PathState::Backup]));
    testbed
}

/// Packets of a flow that were sent first, and again, by path.
fn sent(testbed: &Testbed, flow: u8) -> (usize, usize) {
    let mut sequences: Vec<u32> = Vec::new();
    sequences.extend(testbed.in_flight.iter().filter_map(|(output, _)| match output {
        Output::Send { key, .. } if key.flow == flow => Some(key.sequence),
        _ => None,
    }));
    let all = sequences.len();
    sequences.sort_unstable();
    sequences.dedup();
    (sequences.len(), all - sequences.len())
}

fn longest_ms(testbed: &Testbed, from_ms: u64, to_ms: u64) -> f64 {
    let (delays, lost) = testbed.delays(1, from_ms, to_ms);
    assert_eq!(lost, 0);
    delays.last().copied().unwrap_or(f64::INFINITY)
}

#[test]
fn the_preferred_path_alone_carries_while_it_delivers_in_time() {
    let mut testbed = testbed(Mode::Adaptive);
    testbed.stream(1, 0.5, 10_000);
    testbed.run_until(Instant::from_millis(10_500));
    assert!(testbed.paths_of(1).iter().skip(5).all(|path| *path == PathId(0)));
    assert_eq!(sent(&testbed, 1).1, 0);
}

#[test]
fn what_is_late_on_a_stalled_path_arrives_over_the_backup() {
    let longest = [Mode::Adaptive, Mode::Standby].map(|mode| {
        let mut testbed = testbed(mode);
        testbed.stream(1, 0.5, 4000);
        testbed.set(0, 0.0, 30.0, 0.0);
        testbed.stream(1, 0.5, 4300);
        testbed.set(0, 25.0, 30.0, 0.0);
        testbed.stream(1, 0.5, 9000);
        testbed.run_until(Instant::from_millis(9500));
        assert_eq!(testbed.paths_of(1).last(), Some(&PathId(0)), "{mode:?} returns");
        longest_ms(&testbed, 2000, 9000)
    });
    // 1.3 RTT, the delay of a report, and the backup's delay.
    assert!(longest[0] < 60.0 * 1.3 + 9.0 + 25.0 + 3.0, "{longest:?} ms");
    assert!(longest[0] + 10.0 < longest[1], "{longest:?} ms");
}

/// Each answer comes, later than the last: a path that is not called down.
#[test]
fn a_path_that_carries_less_than_is_offered_is_left() {
    let mut testbed = testbed(Mode::Adaptive);
    testbed.stream(1, 0.5, 4000);
    testbed.set(0, 0.25, 30.0, 0.0);
    testbed.stream(1, 0.5, 24_000);
    testbed.run_until(Instant::from_millis(24_500));
    assert!(longest_ms(&testbed, 5000, 24_000) < 150.0, "{} ms", longest_ms(&testbed, 5000, 24_000));
    let late = testbed.delays(1, 5000, 24_000).0.iter().filter(|delay| **delay > 100.0).count();
    assert!(late < 20, "{late} of 848 packets after early returns");
}

#[test]
fn a_path_that_becomes_slower_is_left_for_good() {
    let mut testbed = testbed(Mode::Adaptive);
    testbed.stream(1, 0.5, 4000);
    testbed.set(0, 25.0, 300.0, 0.0);
    testbed.stream(1, 0.5, 60_000);
    testbed.run_until(Instant::from_millis(61_000));
    assert!(longest_ms(&testbed, 5000, 60_000) < 45.0, "{} ms", longest_ms(&testbed, 5000, 60_000));
}

#[test]
fn a_backup_that_answers_again_carries_before_a_preferred_path_that_is_late() {
    let mut testbed = testbed(Mode::Adaptive);
    testbed.stream(1, 0.5, 4000);
    testbed.set(0, 25.0, 250.0, 0.0);
    testbed.stream(1, 0.5, 5000);
    testbed.endpoints[0].copy_budget = CopyBudget::new(0.0);
    testbed.set(1, 25.0, 25.0, 1.0);
    testbed.stream(1, 0.5, 5300);
    testbed.set(1, 25.0, 25.0, 0.0);
    testbed.stream(1, 0.5, 7000);
    testbed.run_until(Instant::from_millis(8000));
    assert!(longest_ms(&testbed, 5600, 7000) < 150.0, "{} ms", longest_ms(&testbed, 5600, 7000));
}

#[test]
fn copies_stay_within_their_share_whatever_a_path_does() {
    for (share, least) in [(0.1, 3), (0.002, 1), (0.0, 0)] {
        let mut testbed = testbed(Mode::Adaptive);
        testbed.endpoints[0].copy_budget = CopyBudget::new(share);
        // Each second the delay grows at once, and shrinks so slowly that nothing is reordered.
        for step in 0..1200_u64 {
            let delay_ms = 30.0 + 35.0_f64.min(39.0 - (step % 40) as f64);
            testbed.set(0, 25.0, delay_ms, 0.0);
            testbed.stream(1, 0.5, (step + 1) * 25);
        }
        testbed.run_until(Instant::from_millis(30_500));
        let (first, again) = sent(&testbed, 1);
        assert!(again >= least && again as f64 <= first as f64 * share, "{share}: {again} of {first}");
    }
}

/// What the path delivered while it was almost down does not pace what it carries afterwards.
#[test]
fn a_path_that_was_almost_down_carries_at_once_when_it_is_tried_again() {
    let mut testbed = testbed(Mode::Adaptive);
    testbed.stream(1, 0.5, 4000);
    testbed.set(0, 0.07, 30.0, 0.0);
    testbed.stream(1, 0.5, 10_000);
    testbed.set(0, 25.0, 30.0, 0.0);
    testbed.stream(1, 0.5, 20_000);
    testbed.run_until(Instant::from_millis(20_500));
    assert_eq!(testbed.paths_of(1).last(), Some(&PathId(0)), "returns");
    assert!(longest_ms(&testbed, 10_500, 20_000) < 60.0, "{} ms", longest_ms(&testbed, 10_500, 20_000));
}

/// Both paths are active, so that what finds no room on the one may use the other.
#[test]
fn what_finds_no_room_waits_rather_than_use_a_path_that_is_late() {
    let mut testbed = Testbed::new(Mode::Adaptive, &[(25.0, 30.0, 0.0), (0.8, 25.0, 0.0)]);
    testbed.stream(1, 0.5, 4000);
    testbed.set(0, 0.03, 30.0, 0.0);
    testbed.stream(1, 0.5, 8000);
    testbed.stream(1, 4.0, 8100);
    testbed.stream(1, 0.5, 10_000);
    testbed.run_until(Instant::from_millis(20_000));
    assert!(longest_ms(&testbed, 8000, 10_000) < 800.0, "{} ms", longest_ms(&testbed, 8000, 10_000));
}
