//! Slow start of a path.

use super::*;

/// Sends as a TCP slow start does: each acknowledged packet allows two more. Returns when the first
/// `packets` had been delivered.
fn doubling(testbed: &mut Testbed, return_delay: Duration, packets: usize) -> Instant {
    testbed.bulk = true;
    let start = testbed.now;
    loop {
        let known_deliveries = testbed.delivered.iter().filter(|(at, _)| *at + return_delay <= testbed.now);
        // A later packet also acknowledges those before it.
        let acknowledged = known_deliveries.map(|(_, packet)| packet.number + 1).max().unwrap_or(0);
        while testbed.offered[1] < 10 + 2 * acknowledged {
            testbed.offer(1);
        }
        if let Some((at, _)) = testbed.delivered.get(packets - 1) {
            return *at;
        }
        assert!(testbed.now < start + Duration::from_secs(60), "{} packets were delivered", testbed.delivered.len());
        testbed.run_until(testbed.now + Duration::from_millis(1));
    }
}

/// The same without the tunnel: rounds of one RTT, each twice the last.
fn without_tunnel(rtt_ms: u64, packets: u64) -> Duration {
    let rounds = (packets / 10 + 1).ilog2();
    Duration::from_millis(u64::from(rounds) * rtt_ms + rtt_ms / 2)
}

#[test]
fn a_sender_that_doubles_each_rtt_is_not_delayed_before_the_path_is_full() {
    for loss in [0.0, 0.02] {
        let mut testbed = Testbed::new(Mode::Aggregate, &[(100.0, 105.0, loss)]);
        testbed.run_until(Instant::from_millis(500));
        let start = testbed.now;
        let took = doubling(&mut testbed, Duration::from_millis(105), 1000).since(start);
        let expected = without_tunnel(210, 1000);
        assert!(took < expected + Duration::from_millis(105), "{took:?} of {expected:?} at a loss of {loss}");
    }
}
