//! Signal strength compared with one threshold, as published.
//!
//! Hapanchak & Costa 2023, Algorithm 1: RSS(t) = (1 − α)·RSS(t−1) + α·RSS, a path is
//! weak at RSS(t) ≤ T. The text calls a large α slow, by the formula it is fast; the
//! formula applies here.

use alloc::format;

use super::{Assessor, Belief};
use crate::path::{Sample, SampleKind};
use crate::reason::Reason;
use crate::time::Instant;

/// The assessor of one path.
#[derive(Clone, Debug, Default)]
pub struct Hapanchak {
    alpha: f64,
    threshold_dbm: Option<f64>,
    smoothed_dbm: Option<f64>,
    link_down: bool,
    belief: Belief,
    reason: Reason,
}

impl Hapanchak {
    /// An assessor with smoothing factor `alpha`; without a threshold only the
    /// interface counts.
    pub fn new(alpha: f64, threshold_dbm: Option<f64>) -> Hapanchak {
        Hapanchak { alpha, threshold_dbm, ..Hapanchak::default() }
    }

    fn on_link(&mut self, up: bool) {
        self.link_down = !up;
        self.smoothed_dbm = self.smoothed_dbm.filter(|_| up);
        match (up, self.threshold_dbm) {
            (false, _) => self.set(Belief::Lost, Reason::plain("hapanchak.unavailable", "the interface is down")),
            (true, None) => self.set(Belief::Good, Reason::plain("hapanchak.available", "the interface is up")),
            (true, Some(_)) => self.set(Belief::Unknown, Reason::plain("hapanchak.available", "no signal sample yet")),
        }
    }

    fn on_signal(&mut self, rssi_dbm: f64) {
        let smoothed = self.smoothed_dbm.map_or(rssi_dbm, |before| (1.0 - self.alpha) * before + self.alpha * rssi_dbm);
        self.smoothed_dbm = Some(smoothed);
        let Some(threshold) = self.threshold_dbm else { return };
        let (belief, rule, relation) = if smoothed <= threshold {
            (Belief::Fading, "hapanchak.weak", "at or below")
        } else {
            (Belief::Good, "hapanchak.strong", "above")
        };
        let text = format!("smoothed signal {smoothed:.1} dBm is {relation} {threshold:.1} dBm");
        let inputs = [("smoothed_dbm", smoothed), ("rssi_dbm", rssi_dbm), ("threshold_dbm", threshold)];
        self.set(belief, Reason::plain(rule, text).with(inputs));
    }

    fn set(&mut self, belief: Belief, reason: Reason) {
        if belief != self.belief {
            (self.belief, self.reason) = (belief, reason);
        }
    }
}

impl Assessor for Hapanchak {
    fn observe(&mut self, _now: Instant, sample: &Sample) {
        match sample.kind {
            SampleKind::Link { up } => self.on_link(up),
            SampleKind::Signal(signal) if !self.link_down => self.on_signal(f64::from(signal.rssi_dbm)),
            _ => {}
        }
    }

    fn advance(&mut self, _now: Instant) {}

    fn belief(&self) -> (Belief, &Reason) {
        (self.belief, &self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{PathId, Signal};

    fn feed(assessor: &mut Hapanchak, rssi_dbm: f32) -> Belief {
        let kind = SampleKind::Signal(Signal { rssi_dbm, ..Signal::default() });
        assessor.observe(Instant::ZERO, &Sample { path: PathId(0), kind });
        assessor.belief().0
    }

    #[test]
    fn a_path_is_weak_at_the_threshold_and_good_above_it() {
        let mut assessor = Hapanchak::new(1.0, Some(-82.0));
        assert_eq!(feed(&mut assessor, -81.9), Belief::Good);
        assert_eq!(feed(&mut assessor, -82.0), Belief::Fading);
        assert_eq!(feed(&mut assessor, -81.9), Belief::Good, "one threshold, no hysteresis");
    }

    #[test]
    fn alpha_weighs_the_new_sample() {
        let mut assessor = Hapanchak::new(0.25, Some(-82.0));
        feed(&mut assessor, -70.0);
        assert_eq!(feed(&mut assessor, -100.0), Belief::Good, "0.75·−70 + 0.25·−100 = −77.5");
        assert_eq!(feed(&mut assessor, -100.0), Belief::Fading, "−83.1");
    }

    #[test]
    fn without_a_threshold_only_the_interface_counts() {
        let mut assessor = Hapanchak::new(0.5, None);
        let link = |up| Sample { path: PathId(0), kind: SampleKind::Link { up } };
        assessor.observe(Instant::ZERO, &link(true));
        assert_eq!(feed(&mut assessor, -130.0), Belief::Good);
        assessor.observe(Instant::ZERO, &link(false));
        assert_eq!(assessor.belief().0, Belief::Lost);
        assert_eq!(feed(&mut assessor, -60.0), Belief::Lost, "a down interface has no signal");
    }
}
