//! Delivery rate of the network, sampled with each acknowledgement
//! (draft-cheng-iccrg-delivery-rate-estimation, Linux `tcp_rate.c`).

use crosslane_core::time::{Duration, Instant};

use super::super::congestion::{RateSample, RecoveryState};
use super::acknowledgement::Delivered;
use super::in_flight::Stamp;
use super::{Sender, State};

/// State of the estimator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) delivered_at: Instant,
    pub(super) first_sent: Instant,
    /// Samples are application-limited until more segments than this are
    /// delivered.
    pub(super) app_limited_until: Option<u64>,
    pub(super) last_bit_s: f64,
}

impl Rate {
    /// The state for a segment that is sent now; `delivered` segments have been.
    pub(super) fn stamp(&self, delivered: u64) -> Stamp {
        let (delivered_at, first_sent) = (self.delivered_at, self.first_sent);
        Stamp { delivered, delivered_at, first_sent, app_limited: self.app_limited_until.is_some() }
    }

    /// The state before the first acknowledgement: the rate is unknown.
    pub(super) fn new() -> Rate {
        let began = Instant::ZERO;
        Rate { delivered_at: began, first_sent: began, app_limited_until: Some(0), last_bit_s: 0.0 }
    }
}

impl Sender {
    /// A write by the application: the application was the limit if no data was
    /// queued and the window had space (Linux `tcp_rate_check_app_limited`).
    /// Linux does not call this for a subflow of MPTCP.
    pub fn note_write(&mut self) {
        if self.queue.is_empty() && self.has_window() && !self.flight.needs_retransmission() {
            self.limit_rate();
        }
    }

    /// Marks samples as application-limited until the data in flight is
    /// delivered.
    fn limit_rate(&mut self) {
        self.rate.app_limited_until = Some(self.delivered + u64::from(self.in_flight()));
    }

    /// Linux `tcp_rate_gen`.
    pub(super) fn sample_rate(
        &mut self,
        now: Instant,
        delivered: &Delivered,
        rtt: Option<Duration>,
        in_flight_before: u32,
        losses: u32,
    ) {
        if self.rate.app_limited_until.is_some_and(|until| self.delivered > until) {
            self.rate.app_limited_until = None;
        }
        self.rate.delivered_at = now;
        let Some(newest) = delivered.newest else { return };
        self.rate.first_sent = newest.at;
        let stamp = newest.stamp;
        let sending = newest.at.since(stamp.first_sent);
        let interval = sending.max(now.since(stamp.delivered_at));
        let count = self.delivered - stamp.delivered;
        if interval > Duration::ZERO {
            self.rate.last_bit_s = count as f64 * self.mss as f64 * 8.0 / interval.as_secs_f64();
        }
        let sample = RateSample {
            now,
            delivered: count,
            interval: if self.rtt.min().is_some_and(|min| interval < min) { Duration::ZERO } else { interval },
            prior_delivered: stamp.delivered,
            total_delivered: self.delivered,
            rtt,
            app_limited: stamp.app_limited,
            in_flight: [in_flight_before, self.in_flight()],
            newly: delivered.acked + delivered.sacked,
            losses,
            recovery: match self.state {
                State::Open => RecoveryState::None,
                State::Recovery { .. } => RecoveryState::Recovery,
                State::Loss { .. } => RecoveryState::Loss,
            },
        };
        self.control.on_rate(&sample);
        if self.control.probes_rtt() {
            self.limit_rate();
        }
    }
}
