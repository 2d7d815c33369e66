//! Endpoints whose clocks differ: times on the wire are in µs modulo 2³².

use super::*;

const LINKS: [(f64, f64, f64); 2] = [(20.0, 10.0, 0.0), (20.0, 30.0, 0.0)];
const HALF_US: i64 = 1 << 31;
const WHOLE_US: i64 = 1 << 32;

/// A clock that is ahead by `us`, modulo 2³² µs.
fn ahead(us: i64) -> Clock {
    Clock { ahead: Duration::from_micros(us.rem_euclid(WHOLE_US) as u64), drift_ppm: 0 }
}

/// Goodput over both links in the second and third second, as a share of their capacity.
fn filled(clocks: [Clock; 2]) -> f64 {
    let mut testbed = Testbed::new(Mode::Aggregate, &LINKS);
    testbed.set_clocks(clocks);
    testbed.stream(1, 44.0, 3000);
    let carried = 40.0 * f64::from(BYTES) / f64::from(BYTES + OVERHEAD);
    testbed.goodput(1000, 3000) / carried
}

#[test]
fn every_path_is_used_at_any_clock_offset() {
    let near_half = [-1_000_000, -30_000, -20_000, -10_000, -1, 0, 1, 1_000_000].map(|off| HALF_US + off);
    let over_the_range = (0..8).map(|eighth| eighth * WHOLE_US / 8 + 12_345);
    for off_us in near_half.into_iter().chain(over_the_range) {
        for clocks in [[0, off_us], [off_us, 0]] {
            let share = filled(clocks.map(ahead));
            assert!(share > 0.98, "{clocks:?} us: {share}");
        }
    }
}

#[test]
fn every_path_is_used_while_a_clock_wraps() {
    for clocks in [[-1_500_000, 0], [0, -1_500_000], [HALF_US - 1_500_000, 0], [-1_500_000, HALF_US - 1_500_000]] {
        let share = filled(clocks.map(ahead));
        assert!(share > 0.98, "{clocks:?} us: {share}");
    }
}

/// By 200 ppm, twice the drift of a cheap crystal, across the point where the sign changes.
#[test]
fn every_path_is_used_while_clocks_drift() {
    for ahead_us in [0, HALF_US - 10_000 - 300, HALF_US - 30_000 - 300] {
        let clock = Clock { drift_ppm: 200, ..ahead(ahead_us) };
        for clocks in [[Clock::default(), clock], [clock, Clock::default()]] {
            let share = filled(clocks);
            assert!(share > 0.98, "{ahead_us} us: {share}");
        }
    }
}
