//! The RTT of a path, without the delay of reports at the peer.

use super::super::recv_path::MAX_REPORT_DELAY;
use super::jitter::Jitter;
use crate::time::{Duration, Instant};

/// Mean delay of a report at the peer.
pub(super) const FEEDBACK_DELAY: Duration = Duration::from_millis(3);
/// After this time the min RTT is re-measured, without a queue.
const MIN_LIFETIME: Duration = Duration::from_secs(8);
/// An RTT this close to the minimum confirms it.
const MIN_TOLERANCE: Duration = Duration::from_micros(300);

/// Maximum delay of a report that counts.
const MAX_HELD: Duration = Duration::from_millis(100);
/// Reports that wait for longer at the peer than this, in the mean, wait for packets that the path delays.
const MIN_REORDERING: Duration = Duration::from_millis(3);

/// RTT estimator.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Rtt {
    smoothed: Option<Duration>,
    pub(in super::super) variation: Duration,
    /// The minimum RTT.
    pub(in super::super) min: Option<Duration>,
    min_at: Instant,
    /// Smoothed delay of reports at the peer.
    held: Duration,
    pub(super) jitter: Jitter,
}

impl Rtt {
    /// Smoothed RTT and its variation after RFC 6298, section 2; and the minimum.
    pub(super) fn note(&mut self, now: Instant, rtt: Duration) {
        self.jitter.note(rtt);
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((smoothed * 7 + rtt) / 8);
            }
        }
        if self.min.is_none_or(|min| rtt <= min + MIN_TOLERANCE) {
            self.min = Some(self.min.map_or(rtt, |min| min.min(rtt)));
            self.min_at = now;
        }
    }

    /// Takes the delay of a report at the peer.
    pub(super) fn note_held(&mut self, held: Duration) {
        self.held = (self.held * 7 + held.min(MAX_HELD)) / 8;
    }

    /// Whether reports wait for late packets.
    pub(super) fn reorders(&self) -> bool {
        self.held > MIN_REORDERING
    }

    /// The jitter of a path that reorders, else zero: without reordering, RTTs differ by the queue.
    pub(super) fn reordering_jitter(&self) -> Duration {
        if self.reorders() { self.jitter.mean() } else { Duration::ZERO }
    }

    /// Usual delay of a report: longer if the path reorders, since the peer waits for late packets.
    pub(super) fn feedback_delay(&self) -> Duration {
        if self.held > MAX_REPORT_DELAY { self.held } else { FEEDBACK_DELAY }
    }

    /// Usual time until a packet is reported, without a queue. On a path that reorders, RTTs exceed the minimum by
    /// more than their mean difference.
    pub(super) fn unqueued(&self) -> Option<Duration> {
        let jitter = self.reordering_jitter();
        let delay = if jitter.is_zero() { self.feedback_delay() } else { self.held + jitter * 3 / 2 };
        Some(self.min? + delay)
    }

    /// The smoothed RTT and four times its variation, as in the timeout of RFC 6298; `None` before the first.
    pub(super) fn with_variation(&self) -> Option<Duration> {
        Some(self.smoothed? + self.variation * 4)
    }

    pub(in super::super) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or_default()
    }

    /// Whether the minimum was confirmed too long ago.
    pub(super) fn min_is_old(&self, now: Instant) -> bool {
        now.since(self.min_at) > MIN_LIFETIME
    }

    /// Sets the minimum, measured without a queue.
    pub(super) fn set_min(&mut self, now: Instant, min: Duration) {
        self.min = Some(min);
        self.min_at = now;
    }
}
