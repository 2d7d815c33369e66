//! The rate soon, by the method that was least wrong so far.
//!
//! The mean of the last two seconds that counted lags behind a rate that rises or falls steadily, and of a path that is idle
//! between objects these are many seconds ago. A trend exaggerates what is chance. Which one fits shows in what the path
//! carried, as does how wrong it is.

use alloc::vec::Vec;

use super::{HORIZONS, History, INTERVAL, MEAN_INTERVALS, MIN_INTERVALS};

/// The first of [`HORIZONS`], up to 2 s, are predicted.
pub(super) const SOON: usize = 3;
/// Intervals of the mean that follows a change soonest: 0.6 s.
const LATEST_INTERVALS: usize = 6;
/// A trend predicts at least and at most this multiple of the mean.
const TREND_RANGE: (f64, f64) = (0.5, 1.5);

/// From the rates of the last intervals, the mean rate of this number of next ones.
type Method = fn(&[f64], f64) -> f64;
const METHODS: [Method; 3] = [mean, latest_mean, trend];

/// How the mean rate over a horizon is predicted, and ratios of what was carried to that, in rising order.
#[derive(Clone, Debug)]
pub(super) struct Prediction {
    method: Method,
    pub ratios: Vec<f64>,
}

impl Default for Prediction {
    fn default() -> Prediction {
        Prediction { method: mean, ratios: Vec::new() }
    }
}

impl History {
    /// Mean rate over the next `horizon_s`, in bytes/s: [`mean_rate`](Self::mean_rate) beyond 2 s.
    pub fn predicted_rate(&self, horizon_s: f64) -> Option<f64> {
        let ahead = horizon_s / INTERVAL.as_secs_f64();
        let place = HORIZONS.iter().rposition(|&horizon| horizon as f64 <= ahead).unwrap_or(0);
        let Some(prediction) = self.predictions.get(place).filter(|_| ahead <= HORIZONS[SOON - 1] as f64) else {
            return self.mean_rate(horizon_s);
        };
        let first = self.intervals.len().saturating_sub(MEAN_INTERVALS);
        let rates: Vec<f64> = self.intervals.range(first..).map(|interval| interval.bytes_s).collect();
        (rates.len() >= MIN_INTERVALS).then(|| (prediction.method)(&rates, ahead.max(1.0)))
    }

    /// Compares what was carried with what each method predicted. `sums`: of the rates of all intervals before each.
    pub(super) fn choose_methods(&mut self, sums: &[f64]) {
        let rates: Vec<f64> = self.intervals.iter().map(|interval| interval.bytes_s).collect();
        for (prediction, horizon) in self.predictions.iter_mut().zip(HORIZONS) {
            let evaluate = |method: Method| {
                let mut error = 0.0;
                let mut ratios = Vec::new();
                for at in (MEAN_INTERVALS..sums.len().saturating_sub(horizon)).step_by(2) {
                    let predicted = method(&rates[at - MEAN_INTERVALS..at], horizon as f64);
                    let carried = (sums[at + horizon] - sums[at]) / horizon as f64;
                    error += (carried - predicted).abs();
                    ratios.extend((predicted > 0.0).then_some(carried / predicted));
                }
                (error, Prediction { method, ratios })
            };
            let least_wrong = METHODS.into_iter().map(evaluate).min_by(|a, b| a.0.total_cmp(&b.0));
            *prediction = least_wrong.map(|(_, prediction)| prediction).unwrap_or_default();
            prediction.ratios.sort_by(f64::total_cmp);
        }
    }
}

fn mean(rates: &[f64], _: f64) -> f64 {
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

fn latest_mean(rates: &[f64], ahead: f64) -> f64 {
    mean(&rates[rates.len().saturating_sub(LATEST_INTERVALS)..], ahead)
}

/// The line of least squares, in the middle of the next intervals.
fn trend(rates: &[f64], ahead: f64) -> f64 {
    let (mean, middle) = (mean(rates, ahead), (rates.len() as f64 - 1.0) / 2.0);
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (place, rate) in rates.iter().enumerate() {
        let distance = place as f64 - middle;
        covariance += distance * (rate - mean);
        variance += distance * distance;
    }
    let (least, most) = TREND_RANGE;
    (mean + covariance / variance * (middle + (1.0 + ahead) / 2.0)).clamp(mean * least, mean * most)
}
