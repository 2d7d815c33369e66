//! The rate of the next second: of several methods, the one that was least wrong so far.
//!
//! The mean of the last two seconds lags behind a rate that rises or falls steadily, and a trend exaggerates what is
//! chance. Which of them fits shows in what the path carried.

use alloc::vec::Vec;

use super::{History, MEAN_INTERVALS};

/// Intervals that are predicted: 1 s.
const AHEAD: usize = 10;
/// Intervals of the mean that follows a change soonest: 0.6 s.
const LATEST_INTERVALS: usize = 6;
/// A trend predicts at least and at most this multiple of the mean.
const TREND_RANGE: (f64, f64) = (0.5, 1.5);

/// From the rates of the last intervals, the mean rate of this number of next ones.
type Method = fn(&[f64], f64) -> f64;
const METHODS: [Method; 3] = [|rates, _| mean(rates), latest_mean, trend];

/// The chosen method.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    method: Method,
    shortfall: f64,
}

/// What a path is predicted to carry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// In bytes/s.
    pub bytes_s: f64,
    /// How much less than predicted a second in five carried at least, as a part of the prediction.
    pub shortfall: f64,
}

impl History {
    /// The rate over the next `horizon_s`, of which the first second counts; `None` until a second was compared with what
    /// the two before it let expect.
    pub fn prediction(&self, horizon_s: f64) -> Option<Prediction> {
        let Chosen { method, shortfall } = self.chosen?;
        let rates = self.latest_rates(MEAN_INTERVALS);
        let ahead = (horizon_s / super::INTERVAL.as_secs_f64()).clamp(1.0, AHEAD as f64);
        Some(Prediction { bytes_s: method(&rates, ahead), shortfall })
    }

    /// Compares what was carried with what each method predicted.
    pub(super) fn choose_method(&mut self) {
        let rates = self.latest_rates(usize::MAX);
        let ends = || (MEAN_INTERVALS..(rates.len() + 1).saturating_sub(AHEAD)).step_by(2);
        let evaluate = |method: Method| {
            let mut ratios = Vec::new();
            let mut error = 0.0;
            for at in ends() {
                let (predicted, carried) =
                    (method(&rates[at - MEAN_INTERVALS..at], AHEAD as f64), mean(&rates[at..at + AHEAD]));
                error += (carried - predicted).abs();
                ratios.extend((predicted > 0.0).then_some(carried / predicted));
            }
            ratios.sort_by(f64::total_cmp);
            let shortfall = ratios.get(ratios.len() / 5).map_or(0.0, |ratio| (1.0 - ratio).max(0.0));
            (error, Chosen { method, shortfall })
        };
        let least_wrong = METHODS.into_iter().map(evaluate).min_by(|a, b| a.0.total_cmp(&b.0));
        self.chosen = least_wrong.filter(|_| ends().next().is_some()).map(|(_, chosen)| chosen);
    }

    fn latest_rates(&self, count: usize) -> Vec<f64> {
        let first = self.intervals.len().saturating_sub(count);
        self.intervals.range(first..).map(|interval| interval.bytes_s).collect()
    }
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

fn latest_mean(rates: &[f64], _: f64) -> f64 {
    mean(&rates[rates.len().saturating_sub(LATEST_INTERVALS)..])
}

/// The line of least squares, in the middle of the next intervals.
fn trend(rates: &[f64], ahead: f64) -> f64 {
    let (mean, middle) = (mean(rates), (rates.len() as f64 - 1.0) / 2.0);
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (place, rate) in rates.iter().enumerate() {
        let distance = place as f64 - middle;
        covariance += distance * (rate - mean);
        variance += distance * distance;
    }
    let (least, most) = TREND_RANGE;
    (mean + covariance / variance * (middle + (1.0 + ahead) / 2.0)).clamp(mean * least, mean * most)
}
