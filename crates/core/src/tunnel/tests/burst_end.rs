//! What is lost at the end of a burst.

use super::*;

const NEAR: (f64, f64) = (100.0, 10.0);

/// A gap shows by what comes after it only, and reports are waited for as long as they may
/// take over the farthest path.
#[test]
fn the_last_of_a_burst_is_repaired_soon_though_a_path_is_far() {
    let mut bed = Bed::new(Mode::Aggregate, &[(NEAR.0, NEAR.1, 0.0), (100.0, 110.0, 0.0)]);
    bed.stream(1, 150.0, 2000);
    bed.run_until(Instant::from_millis(2500));
    let path = |loss| params(NEAR.0, NEAR.1, loss);
    for last in 10..30 {
        let begins_ms = bed.now.as_nanos() / 1_000_000;
        bed.stream(2, 20.0, begins_ms + 50);
        bed.links[0].set(bed.now, Direction::Up, path(1.0));
        assert_eq!(bed.way_of(last, false), Some(PathId(0)));
        bed.links[0].set(bed.now, Direction::Up, path(0.0));
        bed.run_until(bed.now + Duration::from_millis(300));
        let (delays, lost) = bed.delays(last, 0, begins_ms + 300);
        assert_eq!(lost, 0);
        assert!(delays[0] > NEAR.1 + 20.0, "it was not lost: {delays:?} ms");
        assert!(delays[0] < NEAR.1 + 60.0, "{delays:?} ms");
    }
}
