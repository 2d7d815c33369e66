//! What a path is forecast to carry.

use super::{Deadline, Due, Source};

/// Initial congestion window, in bytes (RFC 6928: 10 segments).
const INITIAL_WINDOW_BYTES: f64 = 14_240.0;
/// Length of the windows with which a forecast is compared, in horizons.
const WINDOW_HORIZONS: f64 = 2.0;
/// Caution where the rate varies, on separate connections: this multiple of the shortfall, and of at most so much of it, is
/// taken off the forecast.
const CAUTION: f64 = 3.0;
const MAX_SHORTFALL: f64 = 0.15;
/// No such caution for objects that have this time at most in all, in s: it would send a good part of each over the costlier
/// path, and how wrong a prediction over that time was is known. At the end of a long object it costs little.
pub(super) const BRIEF_S: f64 = 1.1;
/// For brief objects that have this time at least, in s, what the window lost is charged once, for the same reason. Frames of a
/// camera have less: they become smaller if they arrive just in time.
pub(super) const CHARGED_ONCE_S: f64 = 0.4;
/// Paths that carry this multiple of what is due at the rates observed need no other one, whatever is feared, while at least
/// so much time is left, in s: a lower rate shows in the mean by then.
const PLENTY: f64 = 1.2;
const MIN_PLENTY_S: f64 = 2.0;
/// Weight of an assumed rate, in observed windows.
const PRIOR_WINDOWS: f64 = 0.3;

/// Whether these paths carry so much more than what is due that no other one is needed yet.
pub(super) fn has_plenty(sources: &[Source], due: &Due) -> bool {
    let observed = |source: &Source| source.history.mean_rate(due.within_s).unwrap_or(0.0) * due.within_s;
    due.within_s >= MIN_PLENTY_S && due.bytes * PLENTY <= sources.iter().map(observed).sum()
}

impl Deadline {
    /// Forecast rate over a horizon, in bytes/s. What is unknown of a path is taken
    /// from the others, and what is unknown of all from an assumption.
    pub(super) fn rate(&self, sources: &[Source], source: &Source, horizon_s: f64) -> f64 {
        let (window_s, confidence) = (horizon_s * WINDOW_HORIZONS, self.params.confidence);
        let forecast_ratio = |source: &Source| match self.is_unordered {
            true => source.history.predicted_ratio(window_s, confidence),
            false => source.history.forecast_ratio(window_s, confidence),
        };
        let kept = if self.is_brief { 1.0 } else { 1.0 - CAUTION * self.shortfall(source) };
        // What the longer window lost is charged to this one: a path that stalls
        // occasionally loses no more in the longer window, a path of varying rate does.
        let charged = if self.is_charged_once { 1.0 } else { WINDOW_HORIZONS };
        let weighted = |(windows, part): (f64, f64), assumed: f64| {
            let part = (1.0 - charged * (1.0 - part)).max(0.0) * kept;
            (windows * part + PRIOR_WINDOWS * assumed) / (windows + PRIOR_WINDOWS)
        };
        let others = sources.iter().filter(|other| other.place != source.place);
        let assumed = others.fold(self.params.prior_share, |assumed, other| weighted(forecast_ratio(other), assumed));
        let expected = match self.is_unordered {
            true => source.history.predicted_rate(horizon_s),
            false => source.history.mean_rate(horizon_s),
        };
        match expected {
            Some(rate) => rate * weighted(forecast_ratio(source), assumed),
            None => source.prior * assumed,
        }
    }

    /// What caution takes into account of the shortfall of the rate.
    pub(super) fn shortfall(&self, source: &Source) -> f64 {
        if self.is_unordered { source.history.shortfall().min(MAX_SHORTFALL) } else { 0.0 }
    }

    /// Bytes that it carries within `within_s` if it is on from now.
    pub(super) fn carries(&self, sources: &[Source], source: &Source, within_s: f64) -> f64 {
        if !source.on {
            return self.carries_after_start(sources, source, within_s);
        }
        self.rate(sources, source, within_s) * within_s.max(0.0)
    }

    /// Bytes that it carries within `within_s` if it is switched on at the beginning.
    pub(super) fn carries_after_start(&self, sources: &[Source], source: &Source, within_s: f64) -> f64 {
        let rate = self.rate(sources, source, within_s);
        let rtt_s = source.history.min_rtt().as_secs_f64();
        let doublings = libm::log2((rate * rtt_s / INITIAL_WINDOW_BYTES).max(1.0));
        let learned_s = source.history.start_cost_s().unwrap_or(0.0);
        // On a separate connection a path pauses so briefly that it is warm, and may yet have to start slowly.
        let is_warm = source.history.is_warm() && !(source.on && self.is_unordered);
        let lead_s = if is_warm { rtt_s } else { (rtt_s * (1.0 + doublings)).max(learned_s) };
        rate * (within_s - lead_s).max(0.0)
    }
}
