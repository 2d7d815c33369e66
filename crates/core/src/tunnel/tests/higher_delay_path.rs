//! When a higher-delay path carries packets in addition to a low-delay path.

use super::*;

/// Two paths of 20 Mbit/s with known rates: one of 20 ms, one of 70 ms.
fn with_known_rates(high_delay_loss: f64) -> Testbed {
    let mut testbed = Testbed::new(Mode::Aggregate, &[(20.0, 20.0, 0.0), (20.0, 70.0, high_delay_loss)]);
    testbed.stream(1, 50.0, 3000);
    testbed.run_until(Instant::from_millis(3500));
    testbed
}

/// Whether the higher-delay path is used for a burst that the low-delay path carries in `duration_ms`.
fn uses_high_delay_path(testbed: &mut Testbed, flow: u8, duration_ms: u32) -> bool {
    let packets = duration_ms * 20_000 / 8 / (BYTES + OVERHEAD);
    (0..packets).for_each(|_| testbed.offer(flow));
    testbed.run_until(testbed.now + Duration::from_millis(800));
    testbed.paths_of(flow).contains(&PathId(1))
}

/// The backlog must last for the delay difference of 50 ms and the RTT of 40 ms.
#[test]
fn a_higher_delay_path_carries_only_a_backlog_of_one_more_rtt() {
    for (duration_ms, used) in [(40, false), (85, false), (105, true)] {
        assert_eq!(uses_high_delay_path(&mut with_known_rates(0.0), 2, duration_ms), used, "{duration_ms} ms");
    }
}

/// The RTT of the higher-delay path and 25 ms more, for a retransmission: 255 ms in all.
#[test]
fn a_lossy_higher_delay_path_carries_only_a_still_longer_backlog() {
    for (duration_ms, used) in [(105, false), (205, false), (275, true)] {
        assert_eq!(uses_high_delay_path(&mut with_known_rates(0.05), 2, duration_ms), used, "{duration_ms} ms");
    }
}
