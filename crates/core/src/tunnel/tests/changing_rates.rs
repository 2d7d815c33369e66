//! Paths whose rate changes.

use super::*;

#[test]
fn a_path_that_was_slow_at_first_carries_bulk_later() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(20.0, 25.0, 0.0), (0.05, 25.0, 0.0)]);
    testbed.run_until(Instant::from_millis(2500));
    let estimated = testbed.sender(1).estimated_bytes_s().map_or(0.0, |bytes_s| bytes_s * 8e-6);
    assert!(estimated < 0.2, "{estimated} Mbit/s");
    testbed.set(1, 20.0, 25.0, 0.0);
    testbed.bulk = true;
    testbed.stream(1, 24.0, 5500);
    testbed.stream(2, 24.0, 6500);
    let paths = testbed.paths_of(2);
    let carried = paths.iter().filter(|path| path.0 == 1).count();
    assert!(carried * 8 > paths.len(), "{carried} packets of {}", paths.len());
}
