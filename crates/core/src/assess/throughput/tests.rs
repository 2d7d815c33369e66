use super::*;

/// A history of `count` intervals at these rates, repeated.
pub(crate) fn history(rates: &[f64], count: usize) -> History {
    let rtt = Duration::from_millis(100);
    let intervals = rates.iter().cycle().take(count).map(|&bytes_s| Interval { bytes_s, rtt });
    let mut history = History { intervals: intervals.collect(), rtt, ..History::default() };
    history.update_ratios();
    history
}

/// So many rates that rise and fall between 0.6 and 1.7 MB/s, twice a minute.
pub(crate) fn triangle(count: usize) -> Vec<f64> {
    (0..count).map(|place| 0.6e6 + 1.1e6 * (place % 300).min(300 - place % 300) as f64 / 150.0).collect()
}

fn fed(bytes_each_10_ms: impl Fn(u64) -> u64, unacked: u32) -> History {
    history_after(400, bytes_each_10_ms, |_| unacked)
}

/// The history after `samples` samples, with bytes acknowledged before each and packets
/// in flight at each.
pub(crate) fn history_after(
    samples: u64,
    bytes_each_10_ms: impl Fn(u64) -> u64,
    unacked: impl Fn(u64) -> u32,
) -> History {
    let mut rate = Rate::default();
    let mut bytes_acked = 0;
    for step in 0..samples {
        bytes_acked += bytes_each_10_ms(step);
        let rtt = Duration::from_millis(50);
        rate.watch(
            Instant::from_millis(step * 10),
            &Transport { rtt, unacked: unacked(step), bytes_acked, ..Transport::IDLE },
        );
    }
    rate.history
}

#[test]
fn a_steady_rate_is_forecast_exactly_and_its_slow_start_ignored() {
    let history = fed(|step| if step < 25 { 100 } else { 10_000 }, 10);
    assert_eq!(history.mean_rate(0.0), Some(1e6));
    assert_eq!(history.forecast_ratio(1.0, 0.95).1, 1.0);
}

#[test]
fn application_limited_rates_do_not_count() {
    let history = fed(|_| 10_000, 0);
    assert_eq!((history.mean_rate(0.0), history.forecast_ratio(1.0, 0.95).0), (None, 0.0));
    assert_eq!((history.idle_share(), history.recent_rate()), (1.0, 1e6));
}

#[test]
fn noise_averages_out_over_a_long_horizon_and_a_drop_does_not() {
    let noisy = history(&[0.5e6, 1.5e6], 100);
    assert!(noisy.forecast_ratio(4.0, 0.95).1 > 0.99);
    let mut dropping = history(&[1e6], 100);
    dropping.intervals.extend(history(&[0.2e6], 100).intervals);
    dropping.update_ratios();
    assert!(dropping.forecast_ratio(4.0, 0.95).1 < 0.35 && dropping.forecast_ratio(4.0, 0.5).1 > 0.99);
    assert_eq!(dropping.mean_rate(0.0), Some(0.2e6));
}

#[test]
fn higher_confidence_never_predicts_more_and_longer_horizons_have_fewer_windows() {
    let history = history(&[1e6, 0.2e6, 0.9e6, 0.5e6, 0.7e6], 60);
    for horizon in 1..40 {
        let of = |confidence| history.forecast_ratio(f64::from(horizon) * 0.1, confidence);
        assert!(of(0.99).1 <= of(0.9).1 && of(0.9).1 <= of(0.5).1, "{horizon}");
        assert!(of(0.9).0 >= history.forecast_ratio(f64::from(horizon) * 0.1 + 0.1, 0.9).0);
    }
}

/// BBR sends almost nothing for 0.4 s each 10 s.
#[test]
fn a_probe_of_the_rtt_is_no_shortfall_and_a_varying_rate_is() {
    let probed: Vec<f64> = (0..100).map(|interval| if interval < 4 { 0.1e6 } else { 1e6 }).collect();
    assert_eq!((history(&[1e6], 300).shortfall(), history(&probed, 300).shortfall()), (0.0, 0.0));
    let varying: Vec<f64> = (0..30).map(|interval| if interval < 10 { 0.5e6 } else { 1e6 }).collect();
    assert!(history(&varying, 300).shortfall() > 0.2, "{}", history(&varying, 300).shortfall());
    assert_eq!(History::default().shortfall(), 0.0);
}

#[test]
fn the_best_rate_is_the_greater_of_the_latest_and_the_longer_mean() {
    let mut dropping = history(&[1e6], 80);
    dropping.intervals.extend(history(&[0.5e6], 20).intervals);
    assert_eq!((dropping.mean_rate(10.0), dropping.best_rate(10.0)), (Some(0.5e6), Some(0.9e6)));
    let mut rising = history(&[0.5e6], 80);
    rising.intervals.extend(history(&[1e6], 20).intervals);
    assert_eq!((rising.mean_rate(10.0), rising.best_rate(10.0)), (Some(0.6e6), Some(1e6)));
}

/// A rate that rises and falls as a triangle of 30 s is predicted by its trend, and one of chance by its mean.
#[test]
fn a_rate_is_predicted_by_the_method_that_was_least_wrong() {
    assert_eq!(History::default().predicted_rate(1.0), None);
    let constant = history(&[1e6], 100);
    let (rate, (_, ratio)) = (constant.predicted_rate(1.0).unwrap(), constant.predicted_ratio(1.0, 0.95));
    assert!((rate - 1e6).abs() < 1.0 && (ratio - 1.0).abs() < 1e-6, "{rate} {ratio}");

    let steady = history(&triangle(400), 400);
    let next = triangle(410)[400..].iter().sum::<f64>() / 10.0;
    let predicted = steady.predicted_rate(1.0).unwrap();
    assert!((predicted / next - 1.0).abs() < 0.01 && steady.shortfall() < 0.01, "{predicted} {next}");
    assert!(steady.mean_rate(1.0).unwrap() < 0.95 * next);
    assert!(steady.predicted_ratio(1.0, 0.95).1 > steady.forecast_ratio(1.0, 0.95).1 + 0.05);
    assert_eq!(steady.predicted_rate(2.1), steady.mean_rate(2.1));

    let chance: Vec<f64> = (0..400u32).map(|place| f64::from(place.wrapping_mul(2_654_435_761) >> 16)).collect();
    let noise = history(&chance, 400);
    assert_eq!(noise.predicted_rate(1.0), noise.mean_rate(1.0));
}
