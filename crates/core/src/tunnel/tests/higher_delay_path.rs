//! When a farther path carries beside a near one.

use super::*;

/// Two paths of 20 Mbit/s that know their rates: one of 20 ms, one 50 ms farther.
fn with_known_rates(high_delay_loss: f64) -> Testbed {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(20.0, 20.0, 0.0), (20.0, 70.0, high_delay_loss)]);
    testbed.stream(1, 50.0, 3000);
    testbed.run_until(Instant::from_millis(3500));
    testbed
}

/// Whether any goes far of a burst that the near path carries in so long.
fn uses_high_delay_path(testbed: &mut Testbed, flow: u8, lasts_ms: u32) -> bool {
    let packets = lasts_ms * 20_000 / 8 / (BYTES + NUMBERED_BYTES + OVERHEAD);
    (0..packets).for_each(|_| testbed.offer(flow));
    testbed.run_until(testbed.now + Duration::from_millis(800));
    testbed.paths_of(flow).contains(&PathId(1))
}

/// What waits must last for the 50 ms that it is farther, and for the near round trip of 40 ms.
#[test]
fn a_farther_path_carries_only_what_waits_for_a_round_trip_more() {
    for (lasts_ms, used) in [(40, false), (85, false), (105, true)] {
        assert_eq!(uses_high_delay_path(&mut with_known_rates(0.0), 2, lasts_ms), used, "{lasts_ms} ms");
    }
}

/// A round trip and 25 ms more, for what is sent again.
#[test]
fn a_farther_path_that_loses_packets_carries_only_what_waits_for_longer_still() {
    for (lasts_ms, used) in [(105, false), (145, false), (175, true)] {
        assert_eq!(uses_high_delay_path(&mut with_known_rates(0.05), 2, lasts_ms), used, "{lasts_ms} ms");
    }
}
