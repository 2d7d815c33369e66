//! Averages that follow their samples and forget old ones.

use crate::path::Transport;
use crate::time::Duration;

/// Time constant of the offered rate, and the time after which it is known.
const OFFERED_S: f64 = 5.0;
const MIN_OFFERED_S: f64 = 1.0;

/// Mean deviations above the mean at which RTTs end.
pub(super) const DEVIATIONS: f64 = 4.0;
/// Recent delays end so much further above the least than usual; less is chance.
pub(super) const UNUSUAL: f64 = 1.25;
/// Time constant of the usual delay, and the greatest share of a sample.
pub(super) const USUAL_S: f64 = 10.0;
pub(super) const USUAL_SHARE: f64 = 0.1;
/// A delay further above the least counts as this, in ms: it is not usual.
pub(super) const MAX_USUAL_MS: f64 = 200.0;

/// Mean and mean deviation, in ms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl Spread {
    pub(super) fn follow(&mut self, value: f64, share: f64) {
        self.deviation += share * (libm::fabs(value - self.mean) - self.deviation);
        self.mean += share * (value - self.mean);
    }

    pub(super) fn end(self, deviations: f64) -> f64 {
        self.mean + deviations * self.deviation
    }
}

/// What the sender usually offers: the rate delivered while nothing waits, in bit/s.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offered {
    bits: f64,
    seconds: f64,
}

impl Offered {
    pub(super) fn follow(&mut self, elapsed: Duration, bits: f64) {
        let kept = 1.0 - share(elapsed, OFFERED_S);
        self.bits = self.bits * kept + bits;
        self.seconds = self.seconds * kept + elapsed.as_secs_f64();
    }

    /// `None` while too little is known.
    pub(super) fn bit_s(self) -> Option<f64> {
        (self.seconds >= MIN_OFFERED_S).then(|| self.bits / self.seconds)
    }
}

/// Share of a sample after `elapsed` for a time constant.
pub(super) fn share(elapsed: Duration, constant_s: f64) -> f64 {
    1.0 - libm::exp(-elapsed.as_secs_f64() / constant_s)
}

pub(super) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The mean of the RTT samples by which the smoothed RTT moved (RFC 6298 section 2: by an eighth of each), in ms. Two
/// segments share an acknowledgement.
pub(super) fn rtt_ms(last: &Transport, transport: &Transport, delivered: u32) -> f64 {
    let kept = libm::pow(7.0 / 8.0, f64::from(delivered.div_ceil(2)));
    let (before, after) = (ms(last.rtt), ms(transport.rtt));
    ((after - kept * before) / (1.0 - kept)).max(0.0)
}
