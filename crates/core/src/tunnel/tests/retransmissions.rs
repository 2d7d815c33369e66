//! When what is lost is sent again, and waited for.

use super::*;

/// One path of 100 Mbit/s, with loss there and back.
fn lossy(delay_ms: f64, there: f64, back: f64) -> Testbed {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(100.0, delay_ms, there)]);
    testbed.links[0].set(testbed.now, Direction::Down, params(100.0, delay_ms, back));
    testbed
}

/// Longest time that a packet of a light flow takes, in ms, and packets lost, up to
/// this moment, once the flow has found its rate.
fn light_flow(mut testbed: Testbed, until_ms: u64) -> (f64, usize) {
    testbed.stream(1, 10.0, 4000);
    testbed.stream(2, 10.0, until_ms);
    testbed.run_until(Instant::from_millis(until_ms + 1000));
    let (delays, lost) = testbed.delays(2, 4000, until_ms);
    (delays.last().copied().unwrap_or(f64::INFINITY), lost)
}

#[test]
fn what_comes_after_a_loss_far_away_is_not_held_up() {
    let (longest, lost) = light_flow(lossy(105.0, 0.02, 0.0), 9500);
    assert!(longest < 125.0, "{longest} ms");
    assert!(lost > 50, "{lost}");
}

#[test]
fn what_comes_after_a_loss_near_by_waits_for_it_to_be_repaired() {
    let (longest, lost) = light_flow(lossy(10.0, 0.02, 0.02), 9500);
    assert!((20.0..100.0).contains(&longest), "{longest} ms");
    assert_eq!(lost, 0);
}

#[test]
fn a_path_that_carries_keeps_its_rate_where_nothing_is_sent_again() {
    let (longest, lost) = light_flow(lossy(105.0, 0.0, 0.0), 25_000);
    assert!(longest < 125.0, "{longest} ms");
    assert_eq!(lost, 0);
}

#[test]
fn a_question_that_the_receiver_loses_holds_no_flow_up() {
    let (longest, _) = light_flow(lossy(105.0, 0.02, 0.1), 9500);
    assert!(longest < 125.0, "{longest} ms");
}

#[test]
fn no_repair_is_promised_while_the_only_path_is_far_and_late() {
    let mut testbed = lossy(105.0, 0.0, 0.0);
    testbed.stream(1, 10.0, 2000);
    testbed.set(0, 0.0, 105.0, 0.0);
    testbed.stream(1, 10.0, 2400);
    assert_ne!(testbed.out(0).liveness, Liveness::Up);
    assert!(!testbed.endpoints[0].retransmits());
}
