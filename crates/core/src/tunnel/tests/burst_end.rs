//! Losses at the end of a burst.

use super::*;

const LOW_DELAY: (f64, f64) = (100.0, 10.0);

/// A loss shows only by a later packet, and feedback is overdue only after the delay of the highest-delay
/// path.
#[test]
fn the_end_of_a_burst_is_retransmitted_soon_despite_a_high_delay_path() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(LOW_DELAY.0, LOW_DELAY.1, 0.0), (100.0, 110.0, 0.0)]);
    testbed.stream(1, 150.0, 2000);
    testbed.run_until(Instant::from_millis(2500));
    let path = |loss| params(LOW_DELAY.0, LOW_DELAY.1, loss);
    for last in 10..30 {
        let start_ms = testbed.now.as_nanos() / 1_000_000;
        testbed.stream(2, 20.0, start_ms + 50);
        testbed.links[0].set(testbed.now, Direction::Up, path(1.0));
        assert_eq!(testbed.path_of(last, false), Some(PathId(0)));
        testbed.links[0].set(testbed.now, Direction::Up, path(0.0));
        testbed.run_until(testbed.now + Duration::from_millis(300));
        let (delays, lost) = testbed.delays(last, 0, start_ms + 300);
        assert_eq!(lost, 0);
        assert!(delays[0] > LOW_DELAY.1 + 20.0, "it was not lost: {delays:?} ms");
        assert!(delays[0] < LOW_DELAY.1 + 60.0, "{delays:?} ms");
    }
}
