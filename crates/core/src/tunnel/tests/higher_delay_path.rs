//! When a farther path carries beside a near one.

use super::*;

/// Two paths of 20 Mbit/s that know their rates: one of 20 ms, one 50 ms farther.
fn known(far_loss: f64) -> Bed {
    let mut bed = Bed::new(Mode::Aggregate, &[(20.0, 20.0, 0.0), (20.0, 70.0, far_loss)]);
    bed.stream(1, 50.0, 3000);
    bed.run_until(Instant::from_millis(3500));
    bed
}

/// Whether any goes far of a burst that the near path carries in so long.
fn goes_far(bed: &mut Bed, flow: u8, lasts_ms: u32) -> bool {
    let packets = lasts_ms * 20_000 / 8 / (BYTES + NUMBERED_BYTES + AROUND);
    (0..packets).for_each(|_| bed.offer(flow));
    bed.run_until(bed.now + Duration::from_millis(800));
    bed.active_paths(flow).contains(&PathId(1))
}

/// What waits must last for the 50 ms that it is farther, and for the near round trip of 40 ms.
#[test]
fn a_farther_path_carries_only_what_waits_for_a_round_trip_more() {
    for (lasts_ms, far) in [(40, false), (85, false), (105, true)] {
        assert_eq!(goes_far(&mut known(0.0), 2, lasts_ms), far, "{lasts_ms} ms");
    }
}

/// A round trip and 25 ms more, for what is sent again.
#[test]
fn a_farther_path_that_loses_packets_carries_only_what_waits_for_longer_still() {
    for (lasts_ms, far) in [(105, false), (145, false), (175, true)] {
        assert_eq!(goes_far(&mut known(0.05), 2, lasts_ms), far, "{lasts_ms} ms");
    }
}
