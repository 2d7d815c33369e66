use super::*;

/// A history of so many intervals at these rates, over and over.
pub(crate) fn history(rates: &[f64], count: usize) -> History {
    let rtt = Duration::from_millis(100);
    let intervals = rates.iter().cycle().take(count).map(|&bytes_s| Interval { bytes_s, rtt });
    let mut history = History { intervals: intervals.collect(), rtt, ..History::default() };
    history.learn();
    history
}

fn fed(bytes_each_10_ms: impl Fn(u64) -> u64, unacked: u32) -> History {
    looked_at(400, bytes_each_10_ms, |_| unacked)
}

/// What is known after so many looks, of bytes acknowledged before each and
/// packets under way at it.
pub(crate) fn looked_at(looks: u64, bytes_each_10_ms: impl Fn(u64) -> u64, unacked: impl Fn(u64) -> u32) -> History {
    let mut rate = Rate::default();
    let mut bytes_acked = 0;
    for step in 0..looks {
        bytes_acked += bytes_each_10_ms(step);
        let rtt = Duration::from_millis(50);
        rate.watch(
            Instant::from_millis(step * 10),
            &Transport {
                token: 1,
                peer: Transport::NO_PEER,
                accepted: false,
                backup: false,
                rtt,
                rttvar: Duration::ZERO,
                unacked: unacked(step),
                delivered: 0,
                bytes_acked,
                notsent_bytes: 0,
                bytes_received: 0,
            },
        );
    }
    rate.history
}

#[test]
fn a_steady_rate_is_forecast_exactly_and_its_slow_start_forgotten() {
    let history = fed(|step| if step < 25 { 100 } else { 10_000 }, 10);
    assert_eq!(history.level(0.0), Some(1e6));
    assert_eq!(history.evidence(1.0, 0.95).1, 1.0);
}

#[test]
fn what_the_application_limited_says_nothing_about_the_path() {
    let history = fed(|_| 10_000, 0);
    assert_eq!((history.level(0.0), history.evidence(1.0, 0.95).0), (None, 0.0));
    assert_eq!((history.idle_share(), history.lately()), (1.0, 1e6));
}

#[test]
fn noise_averages_out_over_a_long_horizon_and_a_drop_does_not() {
    let noisy = history(&[0.5e6, 1.5e6], 100);
    assert!(noisy.evidence(4.0, 0.95).1 > 0.99);
    let mut dropping = history(&[1e6], 100);
    dropping.intervals.extend(history(&[0.2e6], 100).intervals);
    dropping.learn();
    assert!(dropping.evidence(4.0, 0.95).1 < 0.35 && dropping.evidence(4.0, 0.5).1 > 0.99);
    assert_eq!(dropping.level(0.0), Some(0.2e6));
}

#[test]
fn more_confidence_never_promises_more_and_a_longer_horizon_is_seen_less_often() {
    let history = history(&[1e6, 0.2e6, 0.9e6, 0.5e6, 0.7e6], 60);
    for horizon in 1..40 {
        let of = |confidence| history.evidence(f64::from(horizon) * 0.1, confidence);
        assert!(of(0.99).1 <= of(0.9).1 && of(0.9).1 <= of(0.5).1, "{horizon}");
        assert!(of(0.9).0 >= history.evidence(f64::from(horizon) * 0.1 + 0.1, 0.9).0);
    }
}
