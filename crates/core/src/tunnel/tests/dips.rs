//! Paths whose rate falls by a factor within an RTT.

use super::*;

/// What was in flight on the second path then arrives 400 ms late, in the order in which it was sent.
#[test]
fn packets_in_flight_on_a_path_whose_rate_falls_are_delivered_in_order() {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(20.0, 25.0, 0.0), (20.0, 25.0, 0.0)]);
    testbed.stream(1, 38.0, 3000);
    for dip in 0..5 {
        let start_ms = 3000 + dip * 3000;
        testbed.set(1, 2.0, 25.0, 0.0);
        testbed.stream(1, 20.0, start_ms + 1000);
        testbed.set(1, 20.0, 25.0, 0.0);
        testbed.stream(1, 38.0, start_ms + 3000);
    }
    testbed.run_until(Instant::from_millis(19_000));
    let numbers: Vec<u64> = testbed.delivered.iter().map(|(_, packet)| packet.number).collect();
    let late = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert_eq!(late, 0, "of {}", numbers.len());
}
