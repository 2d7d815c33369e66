//! Signal strength compared with a threshold, without flapping.
//!
//! Leaving: the signal, smoothed in time, stays at or below the threshold for
//! the time to trigger.
//!
//! Entering: the smoothed signal stays at or above the threshold plus its hysteresis
//! for the time to trigger. After a loss of the path (no sample reached the threshold
//! for a second), one sample at that level starts the time to trigger, and the mean of
//! the samples since then must only stay above the threshold: the smoothed signal of a
//! lost path would delay the entry.
//!
//! The time to trigger for entering doubles with every quick return, up to a limit.
//! This does not apply to a lost path: the second of loss is sufficient.

use alloc::format;

use super::averages::share;
use super::{Assessor, Belief};
use crate::path::{Sample, SampleKind};
use crate::reason::Reason;
use crate::time::{Duration, Instant};

crate::parameters! {
    /// Parameters of [`Threshold`].
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Params {
        /// Signal at which an 802.11p path is left: smoothed, it has stayed at or below this for the time to
        /// trigger.
        threshold_dbm: f64 = -82.0, "dBm", -120.0 to 0.0;
        /// The same for a Wi-Fi path; unset: as for 802.11p.
        wifi_threshold_dbm: Option<f64> = None, "dBm", -120.0 to 0.0;
        /// The same for a cellular path; unset: it is good while its interface is up.
        cellular_threshold_dbm: Option<f64> = None, "dBm", -120.0 to 0.0;
        /// How far above the threshold the smoothed signal must stay for the time to trigger before the path is
        /// entered. After a loss (1 s without a sample at the threshold) one such sample starts the time to
        /// trigger, and the mean since must stay above the threshold.
        hysteresis_db: f64 = 3.0, "dB", 0.0 to 60.0;
        /// Time to trigger. For re-entry without a loss it doubles after each entry that lasted less than 5 s, up
        /// to 64 times.
        time_to_trigger_ms: u32 = 80, "ms", 0.0 to 60000.0;
        /// Time constant of the smoothing, in time and not in samples, so that a lost message changes nothing; 0:
        /// none.
        smoothing_ms: u32 = 300, "ms", 0.0 to 60000.0;
    }
}

/// Leaving within this time after entering counts as a quick return.
const QUICK_RETURN: Duration = Duration::from_secs(5);
/// Without a sample at the threshold for this long, the path is lost.
const LOSS: Duration = Duration::from_secs(1);
/// Doublings of the time to trigger for entering: 80 ms becomes at most 5.1 s.
const MAX_DOUBLINGS: u32 = 6;

/// The assessor of one path.
#[derive(Clone, Debug, Default)]
pub struct Threshold {
    params: Params,
    threshold_dbm: Option<f64>,
    link_down: bool,
    smoothed: Option<(Instant, f64)>,
    below_since: Option<Instant>,
    /// When a sample last reached the threshold.
    reached: Option<Instant>,
    lost: bool,
    entering: Option<Entering>,
    entered: Option<Instant>,
    doublings: u32,
    belief: Belief,
    reason: Reason,
}

#[derive(Clone, Copy, Debug)]
struct Entering {
    since: Instant,
    sum_dbm: f64,
    samples: u32,
}

impl Entering {
    fn mean_dbm(&self) -> f64 {
        self.sum_dbm / f64::from(self.samples)
    }
}

impl Threshold {
    /// An assessor; without a threshold only the interface counts.
    pub fn new(params: Params, threshold_dbm: Option<f64>) -> Threshold {
        Threshold { params, threshold_dbm, ..Threshold::default() }
    }

    fn on_link(&mut self, up: bool) {
        if up != self.link_down && self.belief != Belief::Unknown {
            return;
        }
        (self.link_down, self.lost) = (!up, true);
        (self.smoothed, self.below_since, self.entering) = (None, None, None);
        match (up, self.threshold_dbm) {
            (false, _) => self.set(Belief::Lost, Reason::plain("threshold.link-down", "the interface is down")),
            (true, None) => self.set(Belief::Good, Reason::plain("threshold.link-up", "the interface is up")),
            (true, Some(_)) => self.set(Belief::Unknown, Reason::plain("threshold.link-up", "no signal sample yet")),
        }
    }

    fn on_signal(&mut self, now: Instant, rssi_dbm: f64, threshold_dbm: f64) {
        self.smooth(now, rssi_dbm);
        self.lost |= self.reached.is_none_or(|reached| now.since(reached) >= LOSS);
        if rssi_dbm >= threshold_dbm {
            self.reached = Some(now);
        }
        if self.belief == Belief::Good {
            return self.watch_leaving(now, threshold_dbm);
        }
        self.watch_entering(now, rssi_dbm, threshold_dbm);
        if self.belief == Belief::Unknown && self.entering.is_none() {
            let enter_dbm = threshold_dbm + self.params.hysteresis_db;
            let text = format!("first signal {rssi_dbm:.1} dBm, the path is entered at {enter_dbm:.1} dBm");
            let inputs = [("rssi_dbm", rssi_dbm), ("threshold_dbm", threshold_dbm)];
            self.set(Belief::Fading, Reason::plain("threshold.weak", text).with(inputs));
        }
    }

    fn watch_entering(&mut self, now: Instant, rssi_dbm: f64, threshold_dbm: f64) {
        let enter_dbm = threshold_dbm + self.params.hysteresis_db;
        let smoothed = self.smoothed.map_or(rssi_dbm, |(_, smoothed)| smoothed);
        let signal_dbm = if self.lost { rssi_dbm } else { smoothed };
        match &mut self.entering {
            None if signal_dbm >= enter_dbm => {
                self.entering = Some(Entering { since: now, sum_dbm: rssi_dbm, samples: 1 });
            }
            None => {}
            Some(entering) => {
                entering.sum_dbm += rssi_dbm;
                entering.samples += 1;
                let stays = if self.lost { entering.mean_dbm() > threshold_dbm } else { smoothed >= enter_dbm };
                self.entering = self.entering.filter(|_| stays);
            }
        }
    }

    fn smooth(&mut self, now: Instant, rssi_dbm: f64) {
        let tau = f64::from(self.params.smoothing_ms) / 1000.0;
        let smoothed = match self.smoothed {
            Some((then, before)) if tau > 0.0 => before + share(now.since(then), tau) * (rssi_dbm - before),
            _ => rssi_dbm,
        };
        self.smoothed = Some((now, smoothed));
    }

    fn watch_leaving(&mut self, now: Instant, threshold_dbm: f64) {
        let below = self.smoothed.is_some_and(|(_, smoothed)| smoothed <= threshold_dbm);
        self.below_since = below.then(|| self.below_since.unwrap_or(now));
    }

    fn leave(&mut self, now: Instant, threshold_dbm: f64) {
        let smoothed = self.smoothed.map_or(threshold_dbm, |(_, smoothed)| smoothed);
        let waited_ms = self.params.time_to_trigger_ms;
        let text =
            format!("smoothed signal {smoothed:.1} dBm stayed at or below {threshold_dbm:.1} dBm for {waited_ms} ms");
        let inputs = [
            ("smoothed_dbm", smoothed),
            ("threshold_dbm", threshold_dbm),
            ("time_to_trigger_ms", f64::from(waited_ms)),
        ];
        let quick = self.entered.is_some_and(|entered| now.since(entered) < QUICK_RETURN);
        self.doublings = if quick { (self.doublings + 1).min(MAX_DOUBLINGS) } else { 0 };
        self.below_since = None;
        self.set(Belief::Fading, Reason::plain("threshold.leave", text).with(inputs));
    }

    fn enter(&mut self, now: Instant, threshold_dbm: f64, entering: Entering) {
        let mean = entering.mean_dbm();
        let waited_ms = now.since(entering.since).as_secs_f64() * 1e3;
        let enter_dbm = threshold_dbm + self.params.hysteresis_db;
        let text = format!("signal reached {enter_dbm:.1} dBm, {mean:.1} dBm on average over {waited_ms:.0} ms");
        let inputs = [
            ("mean_dbm", mean),
            ("threshold_dbm", threshold_dbm),
            ("hysteresis_db", self.params.hysteresis_db),
            ("waited_ms", waited_ms),
        ];
        self.entering = None;
        self.entered = Some(now);
        self.lost = false;
        // A path that was just entered starts with the hysteresis as margin.
        self.smoothed = Some((now, mean.max(enter_dbm)));
        self.set(Belief::Good, Reason::plain("threshold.enter", text).with(inputs));
    }

    fn time_to_enter(&self) -> Duration {
        let doublings = if self.lost { 0 } else { self.doublings };
        Duration::from_millis(u64::from(self.params.time_to_trigger_ms) << doublings)
    }

    fn time_to_leave(&self) -> Duration {
        Duration::from_millis(u64::from(self.params.time_to_trigger_ms))
    }

    fn set(&mut self, belief: Belief, reason: Reason) {
        if belief != self.belief {
            self.belief = belief;
            self.reason = reason;
        }
    }
}

impl Assessor for Threshold {
    fn observe(&mut self, now: Instant, sample: &Sample) {
        match (sample.kind, self.threshold_dbm) {
            (SampleKind::Link { up }, _) => self.on_link(up),
            (SampleKind::Signal(signal), Some(threshold_dbm)) if !self.link_down => {
                self.on_signal(now, f64::from(signal.rssi_dbm), threshold_dbm);
            }
            _ => {}
        }
    }

    fn advance(&mut self, now: Instant) {
        let Some(threshold_dbm) = self.threshold_dbm else { return };
        if let Some(since) = self.below_since
            && now >= since + self.time_to_leave()
        {
            self.leave(now, threshold_dbm);
        }
        if let Some(entering) = self.entering
            && now >= entering.since + self.time_to_enter()
        {
            self.enter(now, threshold_dbm, entering);
        }
    }

    fn belief(&self) -> (Belief, &Reason) {
        (self.belief, &self.reason)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let leave = self.below_since.map(|since| since + self.time_to_leave());
        let enter = self.entering.map(|entering| entering.since + self.time_to_enter());
        leave.into_iter().chain(enter).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{PathId, Signal};

    const PERIOD_MS: u64 = 100;

    /// Feeds the signals one period apart from `start_ms` on, each followed by the
    /// wake-ups due before the next.
    fn feed(assessor: &mut Threshold, start_ms: u64, signals: &[f32]) -> Belief {
        for (i, &rssi_dbm) in signals.iter().enumerate() {
            let now = Instant::from_millis(start_ms + i as u64 * PERIOD_MS);
            assessor.advance(now);
            assessor.observe(now, &signal(rssi_dbm));
            assessor.advance(now + Duration::from_millis(PERIOD_MS - 1));
        }
        assessor.belief().0
    }

    fn signal(rssi_dbm: f32) -> Sample {
        Sample { path: PathId(0), kind: SampleKind::Signal(Signal { rssi_dbm, station: Some(1), ..Signal::default() }) }
    }

    fn assessor() -> Threshold {
        Threshold::new(Params::default(), Some(-82.0))
    }

    #[test]
    fn a_strong_path_is_entered_after_the_time_to_trigger() {
        let mut a = assessor();
        a.observe(Instant::ZERO, &signal(-70.0));
        assert_eq!(a.belief().0, Belief::Unknown);
        assert_eq!(a.next_wakeup(), Some(Instant::from_millis(80)));
        a.advance(Instant::from_millis(80));
        assert_eq!(a.belief().0, Belief::Good);
        assert!(a.belief().1.text().contains("-70.0 dBm"), "{}", a.belief().1.text());
    }

    #[test]
    fn a_path_is_not_left_on_one_weak_sample() {
        let mut a = assessor();
        feed(&mut a, 0, &[-75.0; 10]);
        assert_eq!(feed(&mut a, 1000, &[-95.0, -75.0, -75.0]), Belief::Good);
    }

    #[test]
    fn a_path_is_left_when_the_signal_stays_below_the_threshold() {
        let mut a = assessor();
        feed(&mut a, 0, &[-75.0; 10]);
        assert_eq!(feed(&mut a, 1000, &[-88.0; 8]), Belief::Fading);
        assert_eq!(a.belief().1.rule, "threshold.leave");
    }

    #[test]
    fn between_threshold_and_hysteresis_nothing_changes() {
        let mut a = assessor();
        feed(&mut a, 0, &[-75.0; 10]);
        assert_eq!(feed(&mut a, 1000, &[-81.0; 30]), Belief::Good);
        feed(&mut a, 4000, &[-90.0; 10]);
        assert_eq!(feed(&mut a, 5000, &[-81.0; 30]), Belief::Fading);
    }

    #[test]
    fn the_time_to_trigger_doubles_after_a_quick_return() {
        let mut a = assessor();
        feed(&mut a, 0, &[-75.0; 3]);
        assert_eq!(feed(&mut a, 300, &[-95.0; 8]), Belief::Fading);
        assert_eq!(feed(&mut a, 1100, &[-75.0; 4]), Belief::Fading, "smoothed, it is above −79 dBm from 1.5 s on");
        assert_eq!(feed(&mut a, 1500, &[-75.0]), Belief::Fading, "80 ms no longer suffice");
        assert_eq!(feed(&mut a, 1600, &[-75.0]), Belief::Good, "160 ms do");
    }

    #[test]
    fn a_lost_path_is_entered_on_the_current_signal_a_left_one_on_the_smoothed() {
        let mut lost = assessor();
        feed(&mut lost, 0, &[-95.0; 15]);
        assert_eq!(feed(&mut lost, 1500, &[-78.0]), Belief::Good);
        let mut left = assessor();
        feed(&mut left, 0, &[-75.0; 60]);
        feed(&mut left, 6000, &[-95.0; 5]);
        assert_eq!(feed(&mut left, 6500, &[-78.0]), Belief::Fading);
    }

    #[test]
    fn a_lost_path_is_not_entered_on_a_spike_before_weak_samples() {
        let mut a = assessor();
        a.params.time_to_trigger_ms = 150;
        feed(&mut a, 0, &[-95.0; 10]);
        assert_eq!(feed(&mut a, 1000, &[-78.9, -95.0, -95.0]), Belief::Fading);
    }

    #[test]
    fn a_path_just_entered_is_not_left_on_the_next_weak_sample() {
        let mut a = assessor();
        feed(&mut a, 0, &[-95.0; 15]);
        assert_eq!(feed(&mut a, 1500, &[-79.0, -84.0, -84.0, -80.0]), Belief::Good);
    }

    #[test]
    fn a_link_that_goes_down_is_lost_and_starts_again() {
        let mut a = assessor();
        feed(&mut a, 0, &[-70.0; 3]);
        let link = |up| Sample { path: PathId(0), kind: SampleKind::Link { up } };
        a.observe(Instant::from_millis(400), &link(false));
        assert_eq!(a.belief().0, Belief::Lost);
        a.observe(Instant::from_millis(500), &link(true));
        assert_eq!(a.belief().0, Belief::Unknown);
    }
}
