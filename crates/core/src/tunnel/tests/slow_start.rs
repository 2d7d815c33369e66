//! How a path looks for its rate.

use super::*;

/// Sends as a slow start does, each packet that was delivered letting two more go
/// as soon as the sender can know of it: when the first `packets` had come out.
fn doubling(testbed: &mut Testbed, back: Duration, packets: usize) -> Instant {
    testbed.bulk = true;
    let begun = testbed.now;
    loop {
        let known_deliveries = testbed.delivered.iter().filter(|(at, _)| *at + back <= testbed.now);
        // What comes after a loss tells of what was before it as well.
        let acknowledged = known_deliveries.map(|(_, packet)| packet.number + 1).max().unwrap_or(0);
        while testbed.offered[1] < 10 + 2 * acknowledged {
            testbed.offer(1);
        }
        if let Some((at, _)) = testbed.delivered.get(packets - 1) {
            return *at;
        }
        assert!(testbed.now < begun + Duration::from_secs(60), "{} came", testbed.delivered.len());
        testbed.run_until(testbed.now + Duration::from_millis(1));
    }
}

/// How long that takes if nothing holds it up: rounds of a round trip, each twice the last.
fn unhindered(rtt_ms: u64, packets: u64) -> Duration {
    let rounds = (packets / 10 + 1).ilog2();
    Duration::from_millis(u64::from(rounds) * rtt_ms + rtt_ms / 2)
}

#[test]
fn who_doubles_each_round_trip_is_not_held_up_before_the_path_is_full() {
    for loss in [0.0, 0.02] {
        let mut testbed = Testbed::new(Mode::Aggregate, &[(100.0, 105.0, loss)]);
        testbed.run_until(Instant::from_millis(500));
        let begun = testbed.now;
        let took = doubling(&mut testbed, Duration::from_millis(105), 1000).since(begun);
        let least = unhindered(210, 1000);
        assert!(took < least + Duration::from_millis(105), "{took:?} of {least:?} at a loss of {loss}");
    }
}
