//! Delivery-rate samples.

use crosslane_core::time::{Duration, Instant};

/// State of a subflow's loss recovery (Linux `tcp_ca_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryState {
    /// No recovery.
    #[default]
    None,
    /// Fast recovery.
    Recovery,
    /// Recovery after a timeout.
    Loss,
}

/// Delivery-rate sample of one acknowledgement
/// (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// Time of the acknowledgement.
    pub now: Instant,
    /// Segments delivered since the acknowledged segment was sent.
    pub delivered: u64,
    /// Interval of that delivery; zero if it was shorter than the minimum RTT,
    /// which makes the sample invalid.
    pub interval: Duration,
    /// Total segments delivered before the acknowledged one was sent.
    pub prior_delivered: u64,
    /// Total segments delivered.
    pub total_delivered: u64,
    /// Round-trip time, if measured.
    pub rtt: Option<Duration>,
    /// True if the application did not fill the window when the segment was sent.
    pub app_limited: bool,
    /// Segments in flight before the acknowledgement, and after it.
    pub in_flight: [u32; 2],
    /// Segments newly delivered.
    pub newly: u32,
    /// Segments newly marked lost.
    pub losses: u32,
    /// State of loss recovery.
    pub recovery: RecoveryState,
}

impl RateSample {
    /// Delivery rate, in segments per second; none if the sample is invalid.
    pub(super) fn rate(&self) -> Option<f64> {
        (!self.interval.is_zero()).then(|| self.delivered as f64 / self.interval.as_secs_f64())
    }
}
