//! What the signal tells of a path's near future, learned from what the path delivered.
//!
//! Each radio has one learned figure: the level, the smoothed signal at and below which
//! messages begin to be late. It moves only when delivery confirms it. Messages that are
//! delivered in time below the level lower it; a path that is left a little above it
//! raises it. Where a late message cannot be saved, the level falls only a little below the
//! sensitivity of the radio. A path that is left at a signal well above the level was not left because
//! of its signal: then the signal says nothing, and the level stays.
//!
//! The time to loss is the time until the level is reached at the slope of the last
//! signals, if that slope is distinct from their scatter.

use alloc::collections::VecDeque;

use super::averages::share;
use crate::path::Rat;
use crate::recent::push_recent;
use crate::time::{Duration, Instant};

/// Time constant of the smoothing.
const SMOOTHING_S: f64 = 0.3;
/// After a pause this long the smoothing starts again.
const GAP: Duration = Duration::from_secs(1);
/// The slope is that of the signals of this time, of at least this many and at most
/// [`MAX_SIGNALS`].
const SLOPE_SPAN: Duration = Duration::from_secs(2);
const MIN_SIGNALS: usize = 8;
const MAX_SIGNALS: usize = 32;
/// The signal now is the end of the line through those of this time, if they are so many.
const LINE_SPAN: Duration = Duration::from_secs(1);
const MIN_LINE: usize = 4;
/// A slope counts if it is this many times its standard error.
const SIGNIFICANCE: f64 = 2.0;

/// So far above the level a signal still explains that a path is left, in dB.
const MARGIN_DB: f64 = 3.0;
/// Where a late message cannot be saved, the level is at most so far below the sensitivity.
const CAUTION_DB: f64 = 1.0;
/// Time constant of the mean signal while messages are delivered in time.
const GOOD_S: f64 = 10.0;
/// Time constant at which delivery in time lowers the level.
const LEARNING_S: f64 = 1.0;
/// The signal is known to tell if it explained at least so many departures, and twice as
/// many as it did not; each departure counts this much less with the next.
const MIN_EXPLAINED: f64 = 2.0;
const FORGETTING: f64 = 0.9;

/// The signal of one path, and what it means.
#[derive(Clone, Debug, Default)]
pub(super) struct Forecast {
    /// The sensitivity of the radio, if it is known.
    sensitivity_dbm: Option<f64>,
    /// Whether a late message cannot be saved.
    is_cautious: bool,
    signals: VecDeque<(Instant, f64)>,
    smoothed: Option<(Instant, f64)>,
    level_dbm: Option<f64>,
    learned: Instant,
    /// Mean signal while messages were delivered in time.
    good_dbm: Option<f64>,
    /// How often the path was left, its signal explaining it or not.
    explained: [f64; 2],
}

/// A line: the signal at its end, in dBm; its slope and the standard error of that, in dB/s.
struct Line {
    dbm: f64,
    slope: f64,
    error: f64,
}

impl Forecast {
    /// A forecast from nothing but the minimum sensitivity of the radio: IEEE 802.11-2020,
    /// table 17-18 for 6 Mbit/s in 10 MHz, table 19-23 for the lowest rate in 40 MHz.
    pub(super) fn new(rat: Rat) -> Forecast {
        let sensitivity_dbm = match rat {
            Rat::Ieee80211p => Some(-82.0),
            Rat::Wifi => Some(-79.0),
            Rat::Lte | Rat::Nr | Rat::Other => None,
        };
        let explained = if sensitivity_dbm.is_some() { [MIN_EXPLAINED, 0.0] } else { [0.0; 2] };
        Forecast { level_dbm: sensitivity_dbm, sensitivity_dbm, explained, ..Forecast::default() }
    }

    /// Processes a received signal.
    pub(super) fn observe(&mut self, now: Instant, dbm: f64) {
        push_recent(&mut self.signals, MAX_SIGNALS, (now, dbm));
        let smoothed = match self.smoothed {
            Some((then, before)) if now.since(then) < GAP => {
                before + share(now.since(then), SMOOTHING_S) * (dbm - before)
            }
            _ => dbm,
        };
        self.smoothed = Some((now, smoothed));
    }

    /// The smoothed signal, in dBm.
    pub(super) fn dbm(&self) -> Option<f64> {
        self.smoothed.map(|(_, dbm)| dbm)
    }

    /// The signal now, in dBm, without the delay of the smoothed one; the lesser of both where a late message cannot be
    /// saved.
    pub(super) fn dbm_now(&self, now: Instant) -> Option<f64> {
        let smoothed = self.dbm()?;
        let line = self.line(now, LINE_SPAN, MIN_LINE).map_or(smoothed, |line| line.dbm);
        Some(if self.is_cautious { line.min(smoothed) } else { line })
    }

    /// The level, in dBm; `None` while nothing is known of it.
    pub(super) fn level_dbm(&self) -> Option<f64> {
        let least = self.sensitivity_dbm.filter(|_| self.is_cautious).map(|dbm| dbm - CAUTION_DB);
        self.level_dbm.map(|level| level.max(least.unwrap_or(level)))
    }

    /// Whether messages were delivered in time.
    pub(super) fn is_proven(&self) -> bool {
        self.good_dbm.is_some()
    }

    /// Whether a late message cannot be saved.
    pub(super) fn is_cautious(&self) -> bool {
        self.is_cautious
    }

    /// Whether a message that is late over this path cannot be saved over another.
    pub(super) fn set_cautious(&mut self, is_cautious: bool) {
        self.is_cautious = is_cautious;
    }

    /// Messages were delivered in time.
    pub(super) fn on_delivery(&mut self, now: Instant) {
        let elapsed = now.since(core::mem::replace(&mut self.learned, now));
        if let Some((_, dbm)) = self.smoothed {
            let good_dbm = self.good_dbm.get_or_insert(dbm);
            *good_dbm += share(elapsed, GOOD_S) * (dbm - *good_dbm);
        }
        if let (Some(dbm), Some(level)) = (self.dbm(), &mut self.level_dbm)
            && dbm < *level
        {
            *level += share(elapsed, LEARNING_S) * (dbm - *level);
        }
    }

    /// The path is left; returns whether its signal explains that.
    pub(super) fn on_leave(&mut self) -> bool {
        let Some(dbm) = self.dbm() else { return false };
        let level = self.level_dbm.get_or_insert(dbm);
        let is_low = self.sensitivity_dbm.is_some() || self.good_dbm.is_some_and(|good| dbm <= good - MARGIN_DB);
        let is_explained = is_low && dbm <= *level + MARGIN_DB;
        if is_explained {
            *level += (dbm - *level).max(0.0) / 2.0;
        }
        self.explained = self.explained.map(|count| count * FORGETTING);
        self.explained[usize::from(!is_explained)] += 1.0;
        is_explained && self.is_known()
    }

    /// Whether the signal has explained most of the times that the path was left.
    fn is_known(&self) -> bool {
        let [by_signal, otherwise] = self.explained;
        by_signal >= MIN_EXPLAINED && by_signal > 2.0 * otherwise
    }

    /// Time until the level is reached; `None`: the signal does not fall distinctly, or
    /// too little is known.
    pub(super) fn time_to_loss(&self, now: Instant) -> Option<Duration> {
        let (level, dbm) = (self.level_dbm().filter(|_| self.is_known())?, self.dbm()?);
        let Line { slope, error, .. } = self.line(now, SLOPE_SPAN, MIN_SIGNALS)?;
        if slope >= 0.0 || -slope < SIGNIFICANCE * error {
            return None;
        }
        Some(Duration::from_secs_f64(((dbm - level) / -slope).clamp(0.0, 3600.0)))
    }

    /// The line through the signals of a time by least squares.
    fn line(&self, now: Instant, span: Duration, least: usize) -> Option<Line> {
        let recent = || self.signals.iter().filter(|(at, _)| now.since(*at) <= span);
        let count = recent().count();
        if count < least {
            return None;
        }
        let of = |at: &Instant| -now.since(*at).as_secs_f64();
        let n = count as f64;
        let (mean_t, mean_dbm) = recent().fold((0.0, 0.0), |(t, d), (at, dbm)| (t + of(at) / n, d + dbm / n));
        let (mut tt, mut td) = (0.0, 0.0);
        for (at, dbm) in recent() {
            tt += (of(at) - mean_t) * (of(at) - mean_t);
            td += (of(at) - mean_t) * (dbm - mean_dbm);
        }
        if tt <= 0.0 {
            return None;
        }
        let slope = td / tt;
        let residual = recent().map(|(at, dbm)| dbm - mean_dbm - slope * (of(at) - mean_t));
        let squares: f64 = residual.map(|rest| rest * rest).sum();
        Some(Line { dbm: mean_dbm - slope * mean_t, slope, error: libm::sqrt(squares / (n - 2.0) / tt) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds signals 100 ms apart from `start_ms` on; returns the time of the last.
    fn feed(forecast: &mut Forecast, start_ms: u64, signals: impl IntoIterator<Item = f64>) -> Instant {
        let mut now = Instant::from_millis(start_ms);
        for (place, dbm) in signals.into_iter().enumerate() {
            now = Instant::from_millis(start_ms + 100 * place as u64);
            forecast.observe(now, dbm);
        }
        now
    }

    #[test]
    fn a_falling_signal_reaches_the_level_at_its_slope() {
        let mut forecast = Forecast::new(Rat::Ieee80211p);
        let now = feed(&mut forecast, 0, (0..20).map(|place| -70.0 - 0.2 * f64::from(place)));
        let time = forecast.time_to_loss(now).map_or(0.0, |time| time.as_secs_f64());
        // 2 dB/s; the smoothed signal is 0.6 dB behind -73.8 dBm.
        assert!((4.0..4.6).contains(&time), "{time}");
    }

    #[test]
    fn a_signal_that_scatters_or_rises_or_has_no_level_does_not_tell() {
        let scattered = (0..20).map(|place| -80.0 - 4.0 * f64::from(place * 7 % 5) - 0.05 * f64::from(place));
        for (rat, signals) in [
            (Rat::Ieee80211p, scattered.collect::<alloc::vec::Vec<f64>>()),
            (Rat::Ieee80211p, (0..20).map(|place| -80.0 + f64::from(place)).collect()),
            (Rat::Lte, (0..20).map(|place| -80.0 - f64::from(place)).collect()),
            (Rat::Ieee80211p, alloc::vec![-70.0, -72.0, -74.0]),
        ] {
            let mut forecast = Forecast::new(rat);
            let now = feed(&mut forecast, 0, signals);
            assert_eq!(forecast.time_to_loss(now), None);
        }
    }

    #[test]
    fn delivery_in_time_below_the_level_lowers_it_and_delivery_above_it_changes_nothing() {
        let mut forecast = Forecast::new(Rat::Ieee80211p);
        for place in 0..50 {
            let now = feed(&mut forecast, place * 100, [-70.0]);
            forecast.on_delivery(now);
        }
        assert_eq!(forecast.level_dbm(), Some(-82.0));
        for place in 50..150 {
            let now = feed(&mut forecast, place * 100, [-87.0]);
            forecast.on_delivery(now);
        }
        assert!(forecast.level_dbm().is_some_and(|level| (-87.0..-86.9).contains(&level)), "{forecast:?}");
    }

    #[test]
    fn a_departure_at_a_lower_signal_does_not_lower_the_level() {
        let mut forecast = Forecast::new(Rat::Ieee80211p);
        feed(&mut forecast, 0, [-90.0; 30]);
        assert!(forecast.on_leave());
        assert_eq!(forecast.level_dbm(), Some(-82.0));
    }

    #[test]
    fn where_a_late_message_cannot_be_saved_level_and_signal_are_those_of_a_careful_one() {
        let mut forecast = Forecast::new(Rat::Ieee80211p);
        let mut now = Instant::ZERO;
        for place in 0..50 {
            now = feed(&mut forecast, 100 * place, [-92.0 + 0.2 * place as f64]);
            forecast.on_delivery(now);
        }
        let figures = |forecast: &Forecast| [forecast.level_dbm(), forecast.dbm_now(now)].map(|dbm| dbm.unwrap_or(0.0));
        let [level, dbm] = figures(&forecast);
        assert!(level < -88.0 && (dbm + 82.2).abs() < 0.01, "the signal of a line does not lag: {level} {dbm}");
        forecast.set_cautious(true);
        let [level, dbm] = figures(&forecast);
        assert!(level == -83.0 && dbm < -82.6, "{level} {dbm}");
    }

    #[test]
    fn signals_that_no_delivery_confirms_move_nothing() {
        let mut forecast = Forecast::new(Rat::Ieee80211p);
        for dbm in [-120.0, 0.0, -95.0] {
            feed(&mut forecast, 0, [dbm; 100]);
        }
        assert_eq!(forecast.level_dbm(), Some(-82.0));
    }

    #[test]
    fn of_a_cellular_radio_only_a_signal_lower_than_usual_explains_it_and_more_than_once() {
        for (low_dbm, explains) in [(-100.0, [false, true]), (-90.0, [false, false])] {
            let mut forecast = Forecast::new(Rat::Lte);
            let mut start_ms = 0;
            let mut leave = || {
                for _ in 0..50 {
                    let now = feed(&mut forecast, start_ms, [-90.0]);
                    forecast.on_delivery(now);
                    start_ms += 1000;
                }
                feed(&mut forecast, start_ms, [low_dbm]);
                start_ms += 1000;
                forecast.on_leave()
            };
            let (first, _, last) = (leave(), leave(), leave());
            assert_eq!([first, last], explains, "{low_dbm} dBm");
        }
    }

    #[test]
    fn only_a_signal_near_the_level_explains_that_the_path_is_left() {
        let mut forecast = Forecast::new(Rat::Ieee80211p);
        feed(&mut forecast, 0, [-60.0; 30]);
        assert!(!forecast.on_leave());
        assert_eq!(forecast.level_dbm(), Some(-82.0));
        feed(&mut forecast, 9000, [-80.0; 30]);
        assert!(forecast.on_leave());
        assert_eq!(forecast.level_dbm(), Some(-81.0));
    }
}
