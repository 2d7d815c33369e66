//! Congestion control of one subflow.

use crosslane_core::time::{Duration, Instant};
use serde::{Deserialize, Serialize};

mod bbr;
mod coupled;
mod cubic;
mod sample;

use bbr::Bbr;
pub use coupled::{Coupled, Member, couple};
use cubic::Cubic;
pub use sample::{RateSample, RecoveryState};

/// Initial window, in segments (RFC 6928).
pub const INITIAL_WINDOW: u32 = 10;
/// Minimum slow-start threshold, in segments.
const MIN_SSTHRESH: u32 = 2;

/// Congestion control, set per socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// CUBIC (RFC 9438) as in Linux, with HyStart.
    #[default]
    Cubic,
    /// Reno (RFC 5681).
    Reno,
    /// BBR; the simulator has a model of version 1 (Cardwell et al., ACM Queue 2016).
    Bbr,
    /// Linked increases (RFC 6356); a kernel has it once it is loaded.
    Lia,
    /// Opportunistic linked increases (Khalili et al., CoNEXT 2012; simulator only).
    Olia,
}

/// Input of an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// Time of arrival.
    pub now: Instant,
    /// Segments newly delivered, in order or not (Linux `acked_sacked`).
    pub delivered: u32,
    /// Round-trip time of the last of them, if it was not retransmitted.
    pub rtt: Option<Duration>,
    /// Minimum round-trip time.
    pub min_rtt: Option<Duration>,
    /// First byte not acknowledged.
    pub una: u64,
    /// First byte not sent.
    pub next: u64,
}

/// Congestion control of a subflow.
#[derive(Clone, Debug)]
pub struct Control {
    /// Congestion window, in segments.
    pub window: u32,
    /// Slow-start threshold, in segments; `u32::MAX` before the first loss.
    pub ssthresh: u32,
    /// Fractional part of the window's growth, in segments.
    fraction: f64,
    law: Law,
    /// Segments acknowledged since the last loss, and between the last two
    /// losses.
    acked_since: [u64; 2],
}

#[derive(Clone, Debug)]
enum Law {
    Reno,
    Cubic(Cubic),
    Coupled,
    Bbr(Box<Bbr>),
}

impl Control {
    /// The control of a new subflow.
    pub fn new(algorithm: Congestion) -> Control {
        let law = match algorithm {
            Congestion::Reno => Law::Reno,
            Congestion::Cubic => Law::Cubic(Cubic::default()),
            Congestion::Lia | Congestion::Olia => Law::Coupled,
            Congestion::Bbr => Law::Bbr(Box::default()),
        };
        Control { window: INITIAL_WINDOW, ssthresh: u32::MAX, fraction: 0.0, law, acked_since: [0; 2] }
    }

    /// Segments between losses, for OLIA: the maximum of the current interval
    /// and the previous one.
    pub fn loss_interval(&self) -> u64 {
        self.acked_since[0].max(self.acked_since[1])
    }

    /// True while the window doubles each RTT.
    pub fn in_slow_start(&self) -> bool {
        self.window < self.ssthresh
    }

    /// Notes the RTT of an acknowledgement, also of one out of order (Linux `cubictcp_acked`).
    pub fn note_rtt(&mut self, ack: &Ack) {
        let in_slow_start = self.in_slow_start();
        if let (Law::Cubic(cubic), Some(rtt)) = (&mut self.law, ack.rtt) {
            cubic.note_rtt(ack, rtt);
            if in_slow_start && cubic.leaves_slow_start(ack, self.window) {
                self.ssthresh = self.window;
            }
        }
    }

    /// Processes an acknowledgement; `window_limited` if the window, not the
    /// application, limited the sender.
    pub fn on_ack(&mut self, ack: &Ack, window_limited: bool, coupled: &Coupled) {
        self.acked_since[0] += u64::from(ack.delivered);
        if !window_limited || matches!(self.law, Law::Bbr(_)) {
            return;
        }
        let mut acked = ack.delivered;
        if self.in_slow_start() {
            let grown = self.window.saturating_add(acked).min(self.ssthresh);
            acked -= grown - self.window;
            self.window = grown;
        }
        if acked == 0 {
            return;
        }
        let window = f64::from(self.window);
        let each = match &mut self.law {
            Law::Reno => 1.0 / window,
            Law::Cubic(cubic) => 1.0 / f64::from(cubic.acks_for_one(ack, self.window)),
            Law::Coupled => coupled.increase(window),
            Law::Bbr(_) => return,
        };
        self.fraction += f64::from(acked) * each;
        let whole_segments = libm::floor(self.fraction);
        self.fraction -= whole_segments;
        // A coupled increase may be negative (OLIA).
        self.window = (window + whole_segments).max(1.0) as u32;
    }

    /// Processes a loss: sets the slow-start threshold (RFC 5681 §3.1, RFC 9438
    /// §4.6).
    pub fn on_loss(&mut self) {
        self.acked_since = [0, self.acked_since[0]];
        self.fraction = 0.0;
        self.ssthresh = match &mut self.law {
            Law::Reno | Law::Coupled => (self.window / 2).max(MIN_SSTHRESH),
            Law::Cubic(cubic) => cubic.reduce(self.window).max(MIN_SSTHRESH),
            // BBR does not treat a loss as congestion.
            Law::Bbr(bbr) => {
                bbr.on_loss(self.window);
                self.ssthresh
            }
        };
    }

    /// Undoes a reduction (Linux `tcp_reno_undo_cwnd`, `bbr_undo_cwnd`); window and threshold are those before it.
    pub fn undo(&mut self, window: u32, ssthresh: u32) {
        match &mut self.law {
            Law::Bbr(bbr) => bbr.on_undo(),
            _ => self.window = self.window.max(window),
        }
        self.ssthresh = self.ssthresh.max(ssthresh);
    }

    /// Processes the expiry of the retransmission timer.
    pub fn on_timeout(&mut self) {
        if let Law::Bbr(bbr) = &mut self.law {
            bbr.on_timeout();
        }
    }

    /// True if recovery reduces the window (RFC 6937).
    pub fn reduces(&self) -> bool {
        !matches!(self.law, Law::Bbr(_))
    }

    /// Size of the send buffer, in windows (Linux `tcp_sndbuf_expand`,
    /// `bbr_sndbuf_expand`).
    pub fn windows_buffered(&self) -> u32 {
        if matches!(self.law, Law::Bbr(_)) { 3 } else { 2 }
    }

    /// Completes the handshake, which took `rtt`.
    pub fn begin(&mut self, now: Instant, rtt: Duration) {
        if let Law::Bbr(bbr) = &mut self.law {
            bbr.begin(now, rtt);
        }
    }

    /// Notes a transmission with nothing in flight; `app_limited` if the
    /// application had paused.
    pub fn on_start(&mut self, now: Instant, app_limited: bool) {
        if let Law::Bbr(bbr) = &mut self.law {
            self.window = bbr.on_start(now, app_limited, self.window);
        }
    }

    /// Processes a delivery-rate sample, which sets BBR's window and pacing rate.
    pub fn on_rate(&mut self, sample: &RateSample) {
        if let Law::Bbr(bbr) = &mut self.law {
            self.window = bbr.on_sample(sample, self.window);
        }
    }

    /// True while the window is reduced to measure the minimum RTT.
    pub fn probes_rtt(&self) -> bool {
        matches!(&self.law, Law::Bbr(bbr) if bbr.probes_rtt())
    }

    /// Pacing rate, in bytes per second; `None`: no pacing.
    pub fn pace(&self) -> Option<f64> {
        match &self.law {
            Law::Bbr(bbr) => bbr.pace(),
            _ => None,
        }
    }

    /// Restarts after an idle time longer than the timeout (RFC 2861, Linux
    /// `tcp_cwnd_restart`): halves the window for each timeout that passed.
    pub fn after_idle(&mut self, timeouts: u32) {
        if matches!(self.law, Law::Bbr(_)) {
            return;
        }
        self.ssthresh = self.ssthresh.max(self.window / 4 * 3);
        let restart = INITIAL_WINDOW.min(self.window);
        self.window = (self.window >> timeouts.min(31)).max(restart);
        if let Law::Cubic(cubic) = &mut self.law {
            cubic.epoch = None;
        }
    }
}

#[cfg(test)]
mod tests;
