//! Delivery rate of the network, sampled with each acknowledgement
//! (draft-cheng-iccrg-delivery-rate-estimation, Linux `tcp_rate.c`).

use crosslane_core::time::{Duration, Instant};

use super::super::congestion::RateSample;
use super::Sender;
use super::acknowledgement::Delivered;
use super::in_flight::Stamp;

#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    pub(super) delivered_at: Instant,
    pub(super) first_sent: Instant,
    /// Samples are application-limited until more segments than this are
    /// delivered.
    app_limited_until: u64,
    /// Delivery rate of the last sample, in bit/s.
    pub last_bit_s: f64,
}

impl Rate {
    /// The state for a segment that is sent now; `delivered` segments have been.
    pub(super) fn stamp(&self, delivered: u64) -> Stamp {
        let (delivered_at, first_sent) = (self.delivered_at, self.first_sent);
        Stamp { delivered, delivered_at, first_sent, app_limited: delivered <= self.app_limited_until }
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
        self.rate.app_limited_until = self.delivered + u64::from(self.in_flight());
    }

    /// Linux `tcp_rate_gen`.
    pub(super) fn sample_rate(
        &mut self,
        now: Instant,
        delivered: &Delivered,
        rtt: Option<Duration>,
        in_flight_before: u32,
    ) {
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
            newly: delivered.newly,
            losses: delivered.losses,
            recovery: self.state,
        };
        self.control.on_rate(&sample);
        if self.control.probes_rtt() {
            self.limit_rate();
        }
    }
}
